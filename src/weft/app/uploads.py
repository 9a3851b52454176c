"""Documents that are uploaded as a stream of bytes, on the path of every call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from weft.capabilities.knowledge.document_content import check_size, pack_content
from weft.capabilities.knowledge.document_operations import PreparedDocument, add_document, document_meta, put_response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from weft.app.dispatch import CallContext, Dispatcher
    from weft.capabilities.knowledge.document_operations import AddDocument, DocumentPut, DocumentWrites
    from weft.kernel.guards import GuardedCall, Guards
    from weft.kernel.transactions import Transactions


class Uploads:
    """Receives documents in chunks, up to the largest allowed."""

    def __init__(self, dispatcher: Dispatcher, guards: Guards, writes: Transactions[DocumentWrites]) -> None:
        self._dispatcher = dispatcher
        self._guards = guards
        self._writes = writes

    async def receive(self, raw: dict[str, Any], context: CallContext, chunks: AsyncIterator[bytes]) -> DocumentPut:
        upload = _Upload(self._guards, self._writes, chunks)
        put: DocumentPut = await self._dispatcher.call(
            add_document, {**raw, "text": ""}, context, strict=False, entry="upload", handler=upload
        )
        return put


class _Upload:
    """One document being received; what was received is kept for a second run."""

    def __init__(self, guards: Guards, writes: Transactions[DocumentWrites], chunks: AsyncIterator[bytes]) -> None:
        self._guards = guards
        self._writes = writes
        self._chunks = chunks
        self._content: bytes | None = None

    async def run(self, call: GuardedCall) -> DocumentPut:
        request: AddDocument = call.request
        assert call.actor is not None  # noqa: S101 - uploads need a credential
        if self._content is None:
            self._content = await self._received(call)
        content = await asyncio.to_thread(pack_content, self._content)
        prepared = PreparedDocument(request.document_id, document_meta(request), content)
        put = await self._writes.write(call.actor, lambda tx: tx.put_all(add_document, request.domain, [prepared]))
        return put_response(*put)

    async def _received(self, call: GuardedCall) -> bytes:
        content = bytearray()
        async for chunk in self._guards.stream(call, self._chunks):
            content.extend(chunk)
            check_size(len(content))
        return bytes(content)
