"""Signing in: who a browser acts as.

A browser gets a token for its API key, or for the token of a one-time link, and keeps it in a cookie that scripts
cannot read. The token is replaced while pages are opened, so it lasts as long as any token: a while after the last
page, and never longer than a proof by key.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.app.tenants import ADMIN
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import AuthenticationError, Forbidden, WeftlineError
from weftline.transports.console.paths import PATH
from weftline.transports.http.http_io import context_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from weftline.app.app import App
    from weftline.kernel.identity import Actor

TOKEN_COOKIE, FORM_COOKIE = "weftline_console", "weftline_console_forms"
_FORM_SECRET_BYTES = 32
# A token is replaced when this part of its lifetime has passed.
_REPLACED_AFTER = 0.5
_HOUR_SECONDS = 3_600
# A token has two dots, an API key three.
_DOTS_OF_TOKEN = 2


class ForeignForm(Forbidden):
    """A form was sent by a page of another site or server, or by a page of an earlier sign-in."""

    code = "FOREIGN_FORM"
    hint = "Reload the page and send the form again. Nothing was changed."


class SignInLinkInvalid(AuthenticationError):
    """The link was used already, is older than five minutes, or belongs to another server."""

    code = "SIGN_IN_LINK_INVALID"
    hint = "Get another link: run weftline console."
    related: tuple[str, ...] = ()


class Browser(NamedTuple):
    """A signed-in browser: where its calls come from, whose they are, and the secret of its forms."""

    context: CallContext
    actor: Actor
    form_secret: str

    @property
    def form_token(self) -> str:
        """Return what a form of this browser has to send back; it does not tell the secret."""
        return hashlib.sha256(f"form:{self.form_secret}".encode()).hexdigest()

    def check_form(self, presented: object) -> None:
        if not isinstance(presented, str) or not hmac.compare_digest(presented.encode(), self.form_token.encode()):
            raise ForeignForm


async def signed_in(app: App, request: Request) -> Browser:
    """Return the browser of a request; raises AuthenticationError."""
    token, secret = request.cookies.get(TOKEN_COOKIE), request.cookies.get(FORM_COOKIE)
    context = structs.replace(context_of(request.scope), credential=token or None)
    if not token or not secret:
        await app.admit_without_credential(context)
        raise AuthenticationError("You are not signed in.", hint="Sign in with an API key.")
    return Browser(context, await app.identify(context), secret)


async def token_for(app: App, presented: str, request: Request) -> str:
    """Exchange what was typed or opened for a token: an API key, or a one-time link, whole or without its address."""
    credential = presented.rpartition("#")[2].strip()
    context = structs.replace(context_of(request.scope), credential=credential)
    if credential.count(".") != _DOTS_OF_TOKEN:
        return await _issue(app, credential, context)
    try:
        issued: Any = await app.call(app.registry["token.refresh"], {}, context)
    except AuthenticationError as error:
        raise SignInLinkInvalid from error
    return str(issued.token)


async def link_token(app: App, tenant: str, principal_id: str) -> str:
    """Return a token for a link, for a process that has the database itself and needs no key.

    The API key that it is bound to is known to nobody, and expires when the browser would need one again.
    """
    fields = {"agent_id": principal_id, "expires_in": app.settings.token_max_age_hours * _HOUR_SECONDS}
    made: Any = await app.call(app.registry["key.create"], fields, CallContext(Local(tenant, ADMIN)))
    return await _issue(app, made.api_key, CallContext(made.api_key), single_use=True)


async def _issue(app: App, api_key: str, context: CallContext, *, single_use: bool = False) -> str:
    """Exchange an API key for a token with all permissions of its principal."""
    actor = await app.identify(context)
    fields = {
        "agent_id": actor.principal_id,
        "agent_type": actor.agent_type,
        "api_key": api_key,
        "requested_permissions": sorted(actor.permissions),
        "single_use": single_use,
    }
    issued: Any = await app.call(app.registry["token.issue"], fields, structs.replace(context, credential=None))
    return str(issued.token)


async def keep_alive(app: App, browser: Browser, response: Response, *, secure: bool) -> None:
    """Replace the token of a browser that is in use, once half of its lifetime has passed."""
    if browser.actor.valid_until is None:
        return
    left = browser.actor.valid_until - to_micros(app.clock.now())
    if left > app.settings.token_minutes * 60_000_000 * _REPLACED_AFTER:
        return
    try:
        issued: Any = await app.call(app.registry["token.refresh"], {}, browser.context)
    except WeftlineError:
        # Too old to be replaced: it is used until it expires.
        return
    _set(response, TOKEN_COOKIE, issued.token, secure=secure)


def remember(response: Response, token: str, *, secure: bool) -> None:
    """Sign a browser in."""
    _set(response, TOKEN_COOKIE, token, secure=secure)
    _set(response, FORM_COOKIE, secrets.token_urlsafe(_FORM_SECRET_BYTES), secure=secure)


def forget(response: Response) -> None:
    """Sign a browser out."""
    response.delete_cookie(TOKEN_COOKIE, path=PATH)
    response.delete_cookie(FORM_COOKIE, path=PATH)


def _set(response: Response, name: str, value: str, *, secure: bool) -> None:
    response.set_cookie(name, value, path=PATH, httponly=True, samesite="strict", secure=secure)
