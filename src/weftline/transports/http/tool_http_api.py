"""Plain HTTP calls of the collaboration API: tools and resources by name, without the MCP protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec
from starlette.routing import Route

from weftline.insight.metrics import COLLECTION_INTERVAL
from weftline.kernel.client_gone import ClientGone
from weftline.kernel.errors import InvalidInput, WeftlineError
from weftline.kernel.guards import collected_warnings
from weftline.transports.http.http_io import (
    ANONYMOUS_BODY_BYTES,
    context_of,
    note_caller,
    parse_object,
    read_body,
    refuse,
    send_json,
    warning_headers,
)
from weftline.transports.references import tool_reference
from weftline.transports.resources import check_may_watch, parse_uri, read_resource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Receive, Scope, Send

    from weftline.app.app import App
    from weftline.app.dispatch import CallContext
    from weftline.kernel.identity import Actor
    from weftline.sessions.events.model import EventFilter


class _Shim(ABC):
    """ASGI endpoint with JSON error responses."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with collected_warnings() as warnings:
                content = await self.answer(scope, receive)
        except WeftlineError as error:
            await refuse(scope, send, error, self._app.clock, tool_reference)
        except ClientGone:
            return
        else:
            await send_json(send, 200, content, warning_headers(warnings))

    @abstractmethod
    async def answer(self, scope: Scope, receive: Receive) -> object:
        """Return the response body."""

    async def _admit(self, scope: Scope) -> tuple[CallContext, Actor]:
        """Identify and limit the caller, before anything of its body is read."""
        context = context_of(scope)
        caller = await self._app.admit(context)
        note_caller(scope, caller)
        return context, caller

    async def _object(self, scope: Scope, receive: Receive, caller: Actor) -> dict[str, object]:
        body = await read_body(scope, receive, self._app.settings.max_body_bytes)
        return await self._app.json_bodies.decode(parse_object, body, caller)


class ToolShim(_Shim):
    """POST /mcp/tool/{name}: arguments in the body, result in the response."""

    def __init__(self, app: App) -> None:
        super().__init__(app)
        self._without_credential = {view.name for view in app.toolbox.listed_without_credential()}

    async def answer(self, scope: Scope, receive: Receive) -> object:
        name = scope["path_params"]["name"]
        if name in self._without_credential:
            context = context_of(scope)
            await self._app.admit_without_credential(context)
            arguments = parse_object(await read_body(scope, receive, ANONYMOUS_BODY_BYTES))
        else:
            context, caller = await self._admit(scope)
            arguments = await self._object(scope, receive, caller)
        operation, raw = await self._app.resolve_tool(name, arguments, context)
        return await self._app.call(operation, raw, context)


class ResourceShim(_Shim):
    """GET /mcp/resource/{uri}: content of a resource."""

    async def answer(self, scope: Scope, receive: Receive) -> object:
        del receive
        context, _ = await self._admit(scope)
        # Some clients and proxies collapse the two slashes of a URI in a path.
        uri = scope["path_params"]["uri"]
        scheme, _, rest = uri.partition(":/")
        resource = parse_uri(f"{scheme}://{rest.lstrip('/')}")
        return msgspec.Raw(await read_resource(self._app, resource, context))


class SubscribeShim(_Shim):
    """POST /mcp/resource/subscribe: URL of the event stream of a resource."""

    async def answer(self, scope: Scope, receive: Receive) -> object:
        context, caller = await self._admit(scope)
        uri = (await self._object(scope, receive, caller)).get("uri")
        if not isinstance(uri, str):
            raise InvalidInput("uri: required, as text", field="uri")
        resource = parse_uri(uri)
        await check_may_watch(self._app, resource, context)
        where = {"success": True, "uri": uri, "resource": f"/mcp/resource/{uri}"}
        if resource.interest is None:
            return {**where, "poll_seconds": COLLECTION_INTERVAL}
        after = await self._app.position(context)
        query = urlencode(_query(resource.interest, after), doseq=True)
        return {
            **where,
            "after": after,
            "stream": f"/v1/events/stream?{query}",
            "poll": f"/v1/events?{query}&wait_seconds=30",
        }


def _query(interest: EventFilter, after: int) -> dict[str, object]:
    query = {"keys": interest.keys, "types": interest.types, "after": after}
    for name in ("personal", "addressed"):
        if getattr(interest, name):
            query[name] = "true"
    if interest.session_id is not None:
        query["session_id"] = interest.session_id
    return query


def shim_routes(app: App) -> Iterator[Route]:
    yield Route("/mcp/tool/{name}", endpoint=ToolShim(app), methods=["POST"])
    yield Route("/mcp/resource/subscribe", endpoint=SubscribeShim(app), methods=["POST"])
    yield Route("/mcp/resource/{uri:path}", endpoint=ResourceShim(app), methods=["GET"])
