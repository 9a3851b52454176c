"""ASGI application with everything Weftline serves over HTTP."""

from __future__ import annotations

import asyncio
import hmac
import time
from contextlib import asynccontextmanager
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from weftline import __version__
from weftline.app.call_journal import CallJournal
from weftline.app.call_notes import CallNotes
from weftline.kernel.errors import (
    AuthenticationError,
    HostNotAllowed,
    MethodNotAllowed,
    NotFound,
    RateLimited,
    WeftlineError,
)
from weftline.providers.model_upstreams import OFF, UpstreamConnections, Upstreams
from weftline.providers.provider_keys import ProviderKeys
from weftline.transports.console.site import Console
from weftline.transports.http.connections import (
    ByteBudget,
    ConnectionLimits,
    ConnectionTable,
    connection_of,
    trusted_proxies,
)
from weftline.transports.http.http_io import context_of, delay_refusal, error_body, error_headers, refuse
from weftline.transports.http.openapi import openapi_document
from weftline.transports.http.rest import RouteTable
from weftline.transports.http.schemas import schema_routes
from weftline.transports.http.streams import OpenStreams, stream_route
from weftline.transports.http.tool_http_api import shim_routes
from weftline.transports.http.transfer import transfer_routes
from weftline.transports.mcp.http import MCP_PATH, McpEndpoint
from weftline.transports.proxy.callers import KeyCallers
from weftline.transports.proxy.endpoint import ProxyEndpoint
from weftline.transports.proxy.errors import refuse as refuse_proxied
from weftline.transports.proxy.observer import Observer
from weftline.transports.proxy.routes import provider_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from weftline.app.app import App
    from weftline.app.authentication import Credential
    from weftline.kernel.clock import Clock
    from weftline.kernel.operation import Registry
    from weftline.transports.mcp.http import Profile


# Index page at /: how to use this server. It shows no data.

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Weftline server</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
  :root {{ color-scheme: light dark; --line: #8884; }}
  body {{ font: 16px/1.6 system-ui, sans-serif; max-width: 44rem; margin: 3rem auto; padding: 0 1.5rem; }}
  h1 {{ margin-bottom: 0; }} h1 small {{ font-weight: 400; opacity: .7; font-size: 1rem; }}
  pre {{ border: 1px solid var(--line); border-radius: .5rem; padding: 1rem; overflow-x: auto; }}
  dt {{ font-weight: 600; margin-top: .8rem; }} dd {{ margin: 0; }}
  code {{ font: .9em ui-monospace, monospace; }}
</style></head><body><main>
<h1>Weftline <small>{version}</small></h1>
<p>The context layer for multi-agent systems. This server is running.</p>
<dl>
<dt><a href="/console">Console</a></dt><dd>What agents share, remember and were told, for people.</dd>
<dt>MCP at <code>/mcp</code></dt><dd>Tools for agents, by streamable HTTP, with an API key.</dd>
<dt>REST below <code>/v1</code></dt><dd>{operations} operations, described in <a href="/openapi.json">OpenAPI</a>.</dd>
<dt><a href="/health">Health</a>, <a href="/ready">readiness</a>, <code>/metrics</code></dt>
<dd>For who runs the server; metrics need the operator's token.</dd>
</dl>
<p>On the server's machine:</p>
<pre>weftline console             # open the console, signed in
weftline session list        # list sessions of the data folder
weftline init claude-code    # connect your editor or agent</pre>
</main></body></html>"""


def landing_page(registry: Registry) -> str:
    return _PAGE.format(version=escape(__version__), operations=sum(1 for _ in registry))


# Host and Origin checks against DNS rebinding: a web page must not reach a local server through the browser.

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
# Health probes may use any host name; these paths reveal nothing.
_OPEN_PATHS = frozenset({"/health", "/ready"})


class HostGuard:
    """Middleware that accepts only known Host headers and trusted origins; others are limited by address."""

    def __init__(self, app: App, guarded: ASGIApp) -> None:
        self._app = app
        self._guarded = guarded
        settings = app.settings
        bound = set() if settings.listens_everywhere else {settings.url_host.lower()}
        hosts = LOOPBACK_HOSTS | bound | set(settings.allowed_hosts.lower().split())
        self._names = HostNames(hosts, frozenset(settings.allowed_origins.lower().split()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _OPEN_PATHS:
            refusal = self._names.refusal(scope)
            if refusal is not None:
                await self._refuse(scope, send, refusal)
                return
        await self._guarded(scope, receive, send)

    async def _refuse(self, scope: Scope, send: Send, refusal: WeftlineError) -> None:
        try:
            await self._app.admit_wrong_host(context_of(scope))
        except RateLimited as limited:
            refusal = limited
        provider = provider_of(scope)
        if provider is None:
            await refuse(scope, send, refusal, self._app.clock)
        else:
            await refuse_proxied(scope, send, provider, refusal)


class HostNames:
    """Accepted Host headers and origins."""

    def __init__(self, hosts: frozenset[str], origins: frozenset[str]) -> None:
        self._hosts = hosts
        self._origins = origins

    def refusal(self, scope: Scope) -> HostNotAllowed | None:
        host = origin = None
        for name, value in scope["headers"]:
            # Of two headers a proxy may go by the other one.
            if name == b"host":
                host = value.decode("latin-1").lower() if host is None else ""
            elif name == b"origin":
                origin = value.decode("latin-1").lower() if origin is None else ""
        if host is None or (host not in self._hosts and _without_port(host) not in self._hosts):
            return HostNotAllowed(f"The host name '{(host or '')[:100]}' is not allowed.")
        if origin is not None and not self._trusts(origin, host):
            return HostNotAllowed(f"The origin '{origin[:100]}' is not allowed.")
        return None

    def _trusts(self, origin: str, host: str) -> bool:
        # A page of this server may call it under whatever allowed name it was opened.
        if origin in self._origins or origin in {f"https://{host}", f"http://{host}"}:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme in {"http", "https"} and _without_port(parts.netloc) in LOOPBACK_HOSTS


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


_READY_SECONDS = 1.0
# Limits of the bytes that are buffered for slow clients: in all, and in bodies of the largest size.
_KEPT_BYTES, _KEPT_BODIES = 2**28, 64
_METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"


class MetricsToken(AuthenticationError):
    """Metrics of the server are for its operator, who has the token for them."""

    code = "METRICS_TOKEN"
    hint = (
        "Send 'Authorization: Bearer <token>' with the value of WEFTLINE_METRICS_TOKEN; an operator "
        "who sets none gets no "
        "metrics. Figures of your own tenant: `performance.read`."
    )
    related = ("get_performance_metrics",)


class Readiness:
    """Whether the database answers. Anyone may ask: all share one check, and its result for a second."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._check: asyncio.Task[WeftlineError | None] | None = None
        self._until = 0.0

    async def problem(self) -> WeftlineError | None:
        if self._check is None or (self._check.done() and time.monotonic() > self._until):
            self._check = asyncio.create_task(self._ask())
        # A client that leaves does not end the check of the others.
        return await asyncio.shield(self._check)

    async def _ask(self) -> WeftlineError | None:
        try:
            await self._app.tenants.names()
        except WeftlineError as error:
            return error
        finally:
            self._until = time.monotonic() + _READY_SECONDS
        return None


class HttpApplication:
    """ASGI application, with access to its streams for a graceful shutdown."""

    def __init__(
        self,
        app: App,
        profile: Profile | None = None,
        *,
        fast_path: bool = True,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self._app = app
        self.connections = ConnectionTable(
            limits or ConnectionLimits(),
            trusted_proxies(app.settings),
            ByteBudget(max(_KEPT_BYTES, _KEPT_BODIES * app.settings.max_body_bytes)),
            app.turns,
        )
        self._readiness = Readiness(app)
        self.streams = OpenStreams()
        self._metrics_token = app.settings.metrics_credential
        self.mcp = McpEndpoint(app, profile, fast_path=fast_path)
        self._console = Console(app, self.streams)
        self._operations = RouteTable(app)
        self._proxy = _model_proxy(app)
        self._routed = self._starlette()
        self.asgi: ASGIApp = HostGuard(app, self._route)

    def end_waiting(self) -> None:
        """End event streams, and answer calls that wait for an approval: the process shuts down."""
        self.streams.end_all()
        self.mcp.end_streams()
        self._app.held_calls.decisions.end_all()

    def _starlette(self) -> Starlette:
        return Starlette(
            lifespan=self._lifespan,
            exception_handlers={HTTPException: self._not_routed, WeftlineError: self._refused},
            routes=[
                *self.mcp.routes(),
                *self._operations.routes(),
                stream_route(self._app, self.streams),
                *transfer_routes(self._app),
                *shim_routes(self._app),
                *schema_routes(self._app),
                *self._console.routes(),
                Route("/", self._landing),
                Route("/health", self._health),
                Route("/ready", self._ready),
                Route("/metrics", self._metrics),
                Route("/openapi.json", self._document),
            ],
        )

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope)
        if connection is not None:
            connection.waiting.asks()
        if scope["type"] != "http":
            await self._routed(scope, receive, send)
        elif scope["path"] == MCP_PATH:
            scope["path_params"] = {}
            await self.mcp(scope, receive, send)
        elif (found := self._operations.find(scope["method"], scope["path"])) is not None:
            endpoint, scope["path_params"] = found
            await endpoint(scope, receive, send)
        elif self._proxy is not None and provider_of(scope) is not None:
            await self._proxy(scope, receive, send)
        else:
            await self._routed(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        if self._proxy is not None:
            self._proxy.start()
        async with self.mcp.running():
            yield
        if self._proxy is not None:
            await self._proxy.aclose()

    @cached_property
    def _index_page(self) -> str:
        return landing_page(self._app.registry)

    async def _landing(self, request: Request) -> Response:
        await self._app.admit_without_credential(context_of(request.scope))
        return HTMLResponse(self._index_page)

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__})

    async def _ready(self, _: Request) -> Response:
        if not self._app.ready:
            return JSONResponse({"status": "stopping"}, 503)
        problem = await self._readiness.problem()
        if problem is not None:
            return JSONResponse({"status": "unavailable", "code": problem.code}, 503)
        return JSONResponse({"status": "ready", "version": __version__})

    async def _metrics(self, request: Request) -> Response:
        context = context_of(request.scope)
        if not self._may_read_metrics(context.credential):
            refusal: WeftlineError = MetricsToken()
            try:
                await self._app.note_refused_metrics(context, refusal)
            except RateLimited as limited:
                refusal = limited
            return await self._refused(request, refusal)
        return PlainTextResponse(self._app.metrics.exposition(), media_type=_METRICS_TYPE)

    def _may_read_metrics(self, credential: Credential | None) -> bool:
        """Compare with the token in the settings: no database, so that metrics are there when it is not."""
        return (
            self._metrics_token is not None
            and isinstance(credential, str)
            and hmac.compare_digest(credential.encode(), self._metrics_token)
        )

    @cached_property
    def _openapi(self) -> bytes:
        return msgspec.json.encode(openapi_document(self._app.registry))

    async def _document(self, request: Request) -> Response:
        await self._app.admit_without_credential(context_of(request.scope))
        return Response(self._openapi, media_type="application/json")

    async def _refused(self, request: Request, problem: Exception) -> Response:
        """Return the response to a request that a handler of this class refuses."""
        assert isinstance(problem, WeftlineError)  # noqa: S101 - registered for it
        await delay_refusal(request.scope, problem)
        return _error_response(problem, self._app.clock)

    async def _not_routed(self, request: Request, problem: Exception) -> Response:
        try:
            await self._app.admit_without_credential(context_of(request.scope))
        except RateLimited as limited:
            return await self._refused(request, limited)
        is_missing = getattr(problem, "status_code", 404) == NotFound.http_status
        if is_missing and self._console.is_for_reader(request):
            return await self._console.not_found(request)
        headers = dict(getattr(problem, "headers", None) or {})
        error: WeftlineError = NotFound(f"There is no route '{request.url.path[:200]}'.")
        if getattr(problem, "status_code", 404) == MethodNotAllowed.http_status:
            error = MethodNotAllowed(f"'{request.method}' is not a method of '{request.url.path[:200]}'.")
        return _error_response(error, self._app.clock, headers)


def _model_proxy(app: App) -> ProxyEndpoint | None:
    settings = app.settings
    if settings.proxy_upstreams.strip() == OFF:
        return None
    upstreams = Upstreams(settings.proxy_upstreams)
    return ProxyEndpoint(
        upstreams,
        UpstreamConnections(upstreams, settings.proxy_private_hosts.split()),
        KeyCallers(app, ProviderKeys(settings.proxy_keys)),
        Observer(
            app.call_prices,
            CallNotes(app.proxied_conversations, app.proxied_edits, app.proxied_usage).store,
            journal=CallJournal(settings.call_journal_folder),
        ),
        app.proxied_edits,
        wait_seconds=settings.proxy_wait_ms / 1_000,
    )


def _error_response(error: WeftlineError, clock: Clock, headers: Mapping[str, str] | None = None) -> Response:
    body = msgspec.json.encode(error_body(error, clock))
    about = {name.decode(): value.decode() for name, value in error_headers(error).items()}
    return Response(body, error.http_status, {**about, **(headers or {})}, media_type="application/json")
