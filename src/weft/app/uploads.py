"""Documents that arrive as they are, larger than a call may be: on the path that every call takes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from weft.capabilities.knowledge.document_content import check_size, packed
from weft.capabilities.knowledge.document_operations import (
    AddDocument,
    Prepared,
    about_of,
    add_document,
    described,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from weft.app.dispatch import CallContext, Dispatcher
    from weft.capabilities.knowledge.document_operations import DocumentPut, DocumentWrites
    from weft.kernel.identity import Actor
    from weft.kernel.transactions import Transactions


class Uploads:
    """Takes in documents a chunk at a time, up to the largest there may be."""

    def __init__(self, dispatcher: Dispatcher, writes: Transactions[DocumentWrites]) -> None:
        self._dispatcher = dispatcher
        self._writes = writes

    async def receive(self, raw: dict[str, Any], arrival: CallContext, chunks: AsyncIterator[bytes]) -> DocumentPut:
        """Put the document that arrives, for whoever may."""
        content = bytearray()

        async def work(actor: Actor, request: AddDocument) -> DocumentPut:
            # What was taken in before the caller's access changed is still here.
            async for chunk in chunks:
                content.extend(chunk)
                check_size(len(content))
            kept = await asyncio.to_thread(packed, bytes(content))
            prepared = Prepared(request.document_id, about_of(request), kept)
            put = await self._writes.write(actor, lambda tx: tx.put_all(add_document, request.domain, [prepared]))
            return described(*put)

        told: DocumentPut = await self._dispatcher.call(
            add_document, {**raw, "text": ""}, arrival, strict=False, work=work
        )
        return told
