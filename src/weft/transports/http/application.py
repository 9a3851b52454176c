"""ASGI application with everything Weft serves over HTTP."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from weft import __version__
from weft.kernel.errors import MethodNotAllowed, NotFound, WeftError
from weft.transports.http.host_check import HostGuard
from weft.transports.http.http_io import error_body
from weft.transports.http.index_page import landing_page
from weft.transports.http.openapi import openapi_document
from weft.transports.http.rest import rest_routes
from weft.transports.http.schemas import schema_routes
from weft.transports.http.streams import OpenStreams, stream_route
from weft.transports.http.tool_http_api import shim_routes
from weft.transports.http.transfer import transfer_routes
from weft.transports.mcp.http import MCP_PATH, McpEndpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from weft.app.app import App
    from weft.transports.mcp.http import Profile

_METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"


class HttpApplication:
    """ASGI application, with access to its streams for a graceful shutdown."""

    def __init__(self, app: App, profile: Profile | None = None, *, fast_path: bool = True) -> None:
        self._app = app
        self.streams = OpenStreams()
        self.mcp = McpEndpoint(app, profile, fast_path=fast_path)
        self._routed = self._starlette()
        self.asgi: ASGIApp = HostGuard(self._route, app.settings, app.clock)

    def end_waiting(self) -> None:
        """End event streams, and answer calls that wait for an approval: the process shuts down."""
        self.streams.end_all()
        self.mcp.end_streams()
        self._app.held_calls.decisions.end_all()

    def _starlette(self) -> Starlette:
        return Starlette(
            lifespan=self._lifespan,
            exception_handlers={HTTPException: self._not_routed},
            routes=[
                *self.mcp.routes(),
                *rest_routes(self._app),
                stream_route(self._app, self.streams),
                *transfer_routes(self._app),
                *shim_routes(self._app),
                *schema_routes(),
                Route("/", self._landing),
                Route("/health", self._health),
                Route("/ready", self._ready),
                Route("/metrics", self._metrics),
                Route("/openapi.json", self._document),
            ],
        )

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == MCP_PATH:
            # Most calls are MCP; finding the route among all others costs a tenth of the call.
            scope["path_params"] = {}
            await self.mcp(scope, receive, send)
        else:
            await self._routed(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with self.mcp.running():
            yield

    async def _landing(self, _: Request) -> Response:
        return HTMLResponse(landing_page(self._app.registry))

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__})

    async def _ready(self, _: Request) -> Response:
        if not self._app.ready:
            return JSONResponse({"status": "stopping"}, 503)
        try:
            await self._app.tenants.names()
        except WeftError as error:
            return JSONResponse({"status": "unavailable", "code": error.code}, 503)
        return JSONResponse({"status": "ready", "version": __version__})

    async def _metrics(self, _: Request) -> Response:
        return PlainTextResponse(self._app.metrics.exposition(), media_type=_METRICS_TYPE)

    @cached_property
    def _openapi(self) -> dict[str, Any]:
        return openapi_document(self._app.registry)

    async def _document(self, _: Request) -> Response:
        return JSONResponse(self._openapi)

    async def _not_routed(self, request: Request, problem: Exception) -> Response:
        headers = dict(getattr(problem, "headers", None) or {})
        error: WeftError = NotFound(f"There is no route '{request.url.path[:200]}'.")
        if getattr(problem, "status_code", 404) == MethodNotAllowed.http_status:
            error = MethodNotAllowed(f"'{request.method}' is not a method of '{request.url.path[:200]}'.")
        body = msgspec.json.encode(error_body(error, self._app.clock))
        return Response(body, error.http_status, headers, media_type="application/json")
