"""Routes of the console: assets, signing in, pages, forms, live events."""

from __future__ import annotations

import hashlib
import logging
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from weftline.kernel.client_gone import ClientGone
from weftline.kernel.errors import AuthenticationError, InternalError, InvalidInput, NotFound, WeftlineError
from weftline.transports.cli.command_names import command_name
from weftline.transports.console.actions import FORM_TOKEN, RETURN_TO, perform
from weftline.transports.console.pages import MENU, PAGES
from weftline.transports.console.paths import PATH, SIGN_IN
from weftline.transports.console.rendering import render
from weftline.transports.console.sign_in import (
    TOKEN_COOKIE,
    ForeignForm,
    forget,
    keep_alive,
    remember,
    signed_in,
    token_for,
)
from weftline.transports.console.view import PageView
from weftline.transports.http.http_io import (
    ANONYMOUS_BODY_BYTES,
    context_of,
    delay_refusal,
    error_body,
    note_caller,
    read_body,
)
from weftline.transports.http.streams import EventStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from starlette.types import Scope

    from weftline.app.app import App
    from weftline.app.dispatch import CallContext
    from weftline.kernel.identity import Actor
    from weftline.sessions.events.model import EventPage
    from weftline.transports.console.view import Page
    from weftline.transports.http.streams import OpenStreams

_log = logging.getLogger("weftline.console")
_SECURITY = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
_ASSET_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_FORM_BYTES = 1_048_576
_MANY_FIELDS = 1_000
_SHOWN_CHARACTERS = 200
_OVERVIEW_LINKS_ALL = "The menu of the overview has all pages; / searches for anything else."
# What the pages of errors are called whose reader can go on elsewhere.
_HEADINGS = {400: "Not understood", 403: "Not allowed", 404: "Not found", 409: "Not possible now"}
_CLIENT_LEFT = 499
_SIGN_IN_AGAIN = "Go back to the overview, sign in and send the form again. Nothing was changed."


class Console:
    """The pages of one server."""

    def __init__(self, app: App, streams: OpenStreams) -> None:
        self._app = app
        self._streams = streams

    def routes(self) -> Iterator[Route]:
        yield Route(f"{PATH}/assets/{{name}}", self._guarded(self._asset), methods=["GET"])
        yield Route(SIGN_IN, self._guarded(self._sign_in_page), methods=["GET"])
        yield Route(SIGN_IN, self._guarded(self._sign_in), methods=["POST"])
        yield Route(f"{PATH}/sign-out", self._guarded(self._sign_out), methods=["POST"])
        yield Route(f"{PATH}/actions/{{operation}}", self._guarded(self._action), methods=["POST"])
        yield Route(f"{PATH}/events", ConsoleEvents(self._app, self._streams), methods=["GET"])
        for page in PAGES:
            yield Route(f"{PATH}{page.path}", self._guarded(self._shown(page)), methods=["GET"])

    def is_for_reader(self, request: Request) -> bool:
        """Tell whether a request that has no route is of a reader of the console, who should get a page."""
        path = request.url.path
        is_page = path == PATH or path.startswith(f"{PATH}/")
        return is_page and request.method == "GET" and "text/html" in request.headers.get("accept", "")

    async def not_found(self, request: Request) -> Response:
        """Return the page of an address that no page has."""
        path = request.url.path[:_SHOWN_CHARACTERS]
        missing = NotFound(f"The console has no page '{path}'.", hint=_OVERVIEW_LINKS_ALL)
        return _secured(await self._error_page(missing, request))

    def _guarded(self, handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Show errors as pages, send who is not signed in to the sign-in, and add the security headers."""

        async def guarded(request: Request) -> Response:
            try:
                response = await handle(request)
            except AuthenticationError as error:
                response = await self._to_sign_in(request, error)
            except WeftlineError as error:
                await delay_refusal(request.scope, error)
                response = await self._error_page(error, request)
            except ClientGone:
                # Nobody reads what is answered here.
                response = Response(status_code=_CLIENT_LEFT)
            except Exception:  # noqa: BLE001 - the reader gets a page in any case
                _log.exception("page failed")
                response = await self._error_page(InternalError(), request)
            return _secured(response)

        return guarded

    def _shown(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            browser = await signed_in(self._app, request)
            response = await page.show(PageView(self._app, request, browser, MENU))
            if not _is_update(request):
                await keep_alive(self._app, browser, response, secure=_is_secure(request))
            return response

        return show

    async def _sign_in_page(self, request: Request) -> Response:
        await self._app.admit_without_credential(context_of(request.scope))
        values = {"error": None, "return_to": _own_path(request.query_params.get(RETURN_TO))}
        return HTMLResponse(render("sign_in.html", values))

    async def _sign_in(self, request: Request) -> Response:
        await self._app.admit_without_credential(context_of(request.scope))
        self._check_same_origin(request)
        form = await _form(request, ANONYMOUS_BODY_BYTES)
        return_to = _own_path(form.get(RETURN_TO))
        try:
            token = await token_for(self._app, form.get("api_key", "").strip(), request)
        except AuthenticationError as error:
            body = error_body(error, self._app.clock, _command)
            return HTMLResponse(render("sign_in.html", {"error": body, "return_to": return_to}), error.http_status)
        response = RedirectResponse(return_to, HTTPStatus.SEE_OTHER)
        remember(response, token, secure=_is_secure(request))
        return response

    async def _sign_out(self, request: Request) -> Response:
        self._check_same_origin(request)
        browser = await signed_in(self._app, request)
        form = await _form(request)
        browser.check_form(form.get(FORM_TOKEN))
        what = {"agent_id": browser.actor.principal_id} if form.get("everywhere") else {"refreshed": True}
        await self._app.call(self._app.registry["token.revoke"], what, browser.context)
        response = RedirectResponse(SIGN_IN, HTTPStatus.SEE_OTHER)
        forget(response)
        return response

    async def _action(self, request: Request) -> Response:
        self._check_same_origin(request)
        browser = await signed_in(self._app, request)
        form = await _form(request)
        browser.check_form(form.get(FORM_TOKEN))
        operation, path = request.path_params["operation"], _own_path(form.get(RETURN_TO))
        answer = await perform(self._app, browser, operation, form)
        if getattr(answer, "api_key", None):
            # The only time that it can be shown.
            view = PageView(self._app, request, browser, MENU)
            return view.render("created.html", answer=answer, operation=operation, return_to=path)
        return RedirectResponse(f"{path}{'&' if '?' in path else '?'}done={quote(operation)}", HTTPStatus.SEE_OTHER)

    def _check_same_origin(self, request: Request) -> None:
        """Refuse forms of other pages: of other sites, and of another port of this host, which shares its cookies."""
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        if site is not None:
            is_own = site in {"same-origin", "none"}
        else:
            # Browsers do not send it to other hosts by plain HTTP. A proxy may have changed the name of the host.
            own = {f"{scheme}://{request.headers.get('host')}" for scheme in ("http", "https")}
            is_own = origin is None or origin.lower() in {*own, *self._app.settings.allowed_origins.lower().split()}
        if not is_own:
            raise ForeignForm

    async def _asset(self, request: Request) -> Response:
        await self._app.admit_without_credential(context_of(request.scope))
        name = request.path_params["name"]
        content = _assets().get(name)
        if content is None:
            raise NotFound(f"There is no file '{name[:100]}'.")
        etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        headers = {"cache-control": "private, max-age=3600", "etag": etag}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=_ASSET_TYPES[name.rpartition(".")[2]])

    async def _to_sign_in(self, request: Request, error: AuthenticationError) -> Response:
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        if request.method != "GET" or _is_update(request):
            # What a program has to send is of no use to the reader of a page.
            return await self._error_page(AuthenticationError(error.message, hint=_SIGN_IN_AGAIN), request)
        response = RedirectResponse(f"{SIGN_IN}?{RETURN_TO}={quote(here)}", HTTPStatus.SEE_OTHER)
        if TOKEN_COOKIE in request.cookies:
            # A link on another site is opened without cookies, and must not sign its reader out.
            forget(response)
        return response

    async def _error_page(self, error: WeftlineError, request: Request) -> Response:
        """Return a page that says what did not work, with the menu if its reader is signed in."""
        values = {"error": error_body(error, self._app.clock, _command), "heading": _HEADINGS.get(error.http_status)}
        status = error.http_status
        view = await self._view(request) if status in _HEADINGS else None
        if view is not None:
            return view.render("error.html", status, **values)
        return HTMLResponse(render("error.html", {**values, "view": None}), status)

    async def _view(self, request: Request) -> PageView | None:
        """Return the view of a signed-in reader; None of anybody else."""
        try:
            return PageView(self._app, request, await signed_in(self._app, request), MENU)
        except WeftlineError:
            return None


class ConsoleEvents(EventStream):
    """Tells a signed-in browser that something changed: once for each page of events, and not what."""

    async def _admit(self, scope: Scope) -> tuple[CallContext, Actor]:
        browser = await signed_in(self._app, Request(scope))
        note_caller(scope, browser.actor)
        return browser.context, browser.actor

    def _messages(self, page: EventPage, source: str) -> Iterator[tuple[int, bytes]]:
        del source
        changed = b"id: %d\ndata: changed\n\n" % page.reached if page.recorded else b": still here\n\n"
        yield page.reached, changed


def _secured(response: Response) -> Response:
    for name, value in _SECURITY.items():
        response.headers.setdefault(name, value)
    return response


def _command(operation: str) -> str:
    """Name an operation by its command: that is what a reader of a hint can type."""
    return f"weftline {command_name(operation)}"


def _is_secure(request: Request) -> bool:
    return request.url.scheme == "https"


def _is_update(request: Request) -> bool:
    """Tell whether a page that is open fetches its live part again, which is no use of the browser by its reader."""
    return "hx-request" in request.headers


def _own_path(path: str | None) -> str:
    """Return the page to return to; anything that is not a page of the console becomes its first page."""
    try:
        parts = urlsplit(path or "")
    except ValueError:
        return PATH
    own = not parts.scheme and not parts.netloc and (parts.path == PATH or parts.path.startswith(f"{PATH}/"))
    return path if path and own and "\\" not in path and path.isascii() else PATH


async def _form(request: Request, limit: int = _FORM_BYTES) -> dict[str, str]:
    body = await read_body(request.scope, request.receive, limit)
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MANY_FIELDS))
    except ValueError as error:
        raise InvalidInput("The form could not be read.") from error


@cache
def _assets() -> dict[str, bytes]:
    folder = files("weftline.transports.console") / "assets"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in _ASSET_TYPES}
