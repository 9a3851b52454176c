"""Content that streams in and out: bundles, document uploads and the hooks of knowledge sources."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.datastructures import Headers
from starlette.routing import Route

from weftline.exchange.transfer.export import FACTS_HEADER
from weftline.kernel.client_gone import ClientGone
from weftline.kernel.errors import InvalidInput, WeftlineError
from weftline.transports.http.http_io import (
    admit,
    context_of,
    hold,
    read_body,
    refuse,
    send_json,
)
from weftline.transports.http.rest import OperationEndpoint, RestRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.types import Receive, Scope, Send

    from weftline.app.app import App
    from weftline.app.transfer import ExportFile

_CHUNK = 65_536
_TYPES = {"ndjson": ("application/x-ndjson", "ndjson"), "json": ("application/json", "json")}
_PROV = ("application/json", "prov.json")


class ExportStream(OperationEndpoint):
    """Export as a file; the request is that of bundle.export, its result is in a header."""

    def __init__(self, app: App) -> None:
        super().__init__(app, app.registry["bundle.export"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            request = RestRequest(self, scope, receive)
            async with self._app.transfers.send(request, context_of(scope)) as export:
                await _send_file(send, export)
        except WeftlineError as error:
            await refuse(scope, send, error, self._app.clock)
        except ClientGone:
            return


class ImportStream(OperationEndpoint):
    """Import of a bundle in the body; other parameters of bundle.import are in the query."""

    def __init__(self, app: App) -> None:
        super().__init__(app, app.registry["bundle.import"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            context, _ = await admit(self._app, scope)
            raw = self._from_query(scope["query_string"])
            if "bundle" in raw:
                raise InvalidInput("bundle: it is the body of the request", field="bundle")
            imported = await self._app.transfers.receive(raw, context, body_of(receive), strict=False)
        except WeftlineError as error:
            await refuse(scope, send, error, self._app.clock)
        else:
            await send_json(send, self._operation.route.status, imported)


async def _send_file(send: Send, export: ExportFile) -> None:
    media_type, ending = _TYPES.get(export.format, _PROV)
    headers = {
        "content-type": media_type,
        "content-length": str(export.facts.bytes),
        "content-disposition": f'attachment; filename="{export.facts.bundle_id}.{ending}"',
        FACTS_HEADER: msgspec.json.encode(export.facts).decode(),
    }
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": raw})
    while chunk := export.file.read(_CHUNK):
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def body_of(receive: Receive) -> AsyncIterator[bytes]:
    """Yield the body of a request as it arrives."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidInput("The connection was closed before the body was complete.")
        yield message.get("body", b"")
        more = message.get("more_body", False)


async def _kept_body(scope: Scope, receive: Receive) -> AsyncIterator[bytes]:
    """Yield a body that is kept in memory until it is complete."""
    async for chunk in body_of(receive):
        hold(scope, len(chunk))
        yield chunk


# Content types of clients that do not know the type.
_GENERIC_TYPES = frozenset({"", "application/octet-stream", "application/x-www-form-urlencoded"})


class Upload(OperationEndpoint):
    """Upload endpoint: the document is the body; other parameters of knowledge.add_document are in the query."""

    def __init__(self, app: App) -> None:
        super().__init__(app, app.registry["knowledge.add_document"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            context, _ = await admit(self._app, scope)
            put = await self._app.uploads.receive(self._described(scope), context, _kept_body(scope, receive))
        except WeftlineError as error:
            await refuse(scope, send, error, self._app.clock)
        else:
            await send_json(send, self._operation.route.status, put)

    def _described(self, scope: Scope) -> dict[str, Any]:
        raw = self._from_query(scope["query_string"])
        for name in ("text", "content"):
            if name in raw:
                raise InvalidInput(f"{name}: it is the body of the request", field=name)
        if "metadata" in raw:
            raw["metadata"] = _object(raw["metadata"])
        sent_as = Headers(scope=scope).get("content-type", "")
        declared = {} if sent_as in _GENERIC_TYPES else {"media_type": sent_as}
        return {**declared, **raw, **scope["path_params"]}


def _object(text: str) -> Any:  # noqa: ANN401 - checked by the request's own type
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise InvalidInput("metadata: not JSON", field="metadata") from None


class HookEndpoint:
    """Endpoint of a source's hook; authenticated by its URL and signature instead of a credential."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            limit = self._app.settings.max_body_bytes
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            named = scope["path_params"]
            hook = (named["tenant"], named["source_id"], named["token"])
            read = partial(read_body, scope, receive, limit)
            answer = await self._app.receive_hook(hook, headers, read, context_of(scope))
        except WeftlineError as error:
            await refuse(scope, send, error, self._app.clock)
        except ClientGone:
            return
        else:
            await send_json(send, HTTPStatus.ACCEPTED, answer)


def transfer_routes(app: App) -> Iterator[Route]:
    yield Route("/v1/export/stream", endpoint=ExportStream(app), methods=["POST"], name="bundle.export.stream")
    yield Route("/v1/import/stream", endpoint=ImportStream(app), methods=["POST"], name="bundle.import.stream")
    yield Route("/v1/domains/{domain}/uploads", endpoint=Upload(app), methods=["PUT"], name="knowledge.upload")
    hook = "/v1/knowledge/hooks/{tenant}/{source_id}/{token}"
    yield Route(hook, endpoint=HookEndpoint(app), methods=["POST"], name="knowledge.hook")
