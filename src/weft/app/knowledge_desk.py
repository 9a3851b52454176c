"""Putting documents, on record: who put which, never what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.app.unit_of_work import CallerTransactions
from weft.capabilities.knowledge.document_operations import described
from weft.capabilities.knowledge.document_queries import GetDocument
from weft.capabilities.knowledge.documents import Documents

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from weft.app.audit_writer import Auditor
    from weft.capabilities.knowledge.documents import Put
    from weft.kernel.identity import Actor
    from weft.kernel.operation import Operation
    from weft.storage.sql.database import Database, Transaction


class KnowledgeDesk(CallerTransactions[Documents]):
    """Takes documents in, and writes down of each that changed anything who put it."""

    def __init__(self, database: Database, auditor: Auditor) -> None:
        super().__init__(database, Documents)
        self._auditor = auditor

    async def put(
        self, actor: Actor, operation: Operation, work: Callable[[Documents], Awaitable[Sequence[Put]]]
    ) -> Sequence[Put]:
        async def put_on_record(transaction: Transaction, puts: Sequence[Put]) -> None:
            for put in puts:
                if not put.unchanged:
                    which = GetDocument(domain=put.document.domain, document_id=put.document.document_id)
                    await self._auditor.done(transaction, actor, operation, which, described(put))

        return await self.write(actor, work, put_on_record)
