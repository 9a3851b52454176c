"""Read counts of board keys, buffered in memory and flushed periodically; a crash may lose a few."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.storage.sql.board import SqlEntryStore
from weft.storage.sql.database import Scope

if TYPE_CHECKING:
    from weft.storage.sql.database import Database, Transaction

_MAX_BUFFERED = 50_000


class BufferedReadCounts:
    """Buffers read counts by key."""

    def __init__(self) -> None:
        self._reads: dict[tuple[str, str, str], list[int]] = {}

    def note(self, tenant: str, session_id: str, key: str, at: int) -> None:
        noted = self._reads.get((tenant, session_id, key))
        if noted is not None:
            noted[0] += 1
            noted[1] = at
        elif len(self._reads) < _MAX_BUFFERED:
            self._reads[tenant, session_id, key] = [1, at]

    async def flush(self, database: Database) -> None:
        reads, self._reads = self._reads, {}
        for tenant in {tenant for tenant, _, _ in reads}:
            of_tenant = [(s, k, count, at) for (t, s, k), (count, at) in reads.items() if t == tenant]

            async def write_counts(
                transaction: Transaction, of_tenant: list[tuple[str, str, int, int]] = of_tenant
            ) -> None:
                entries = SqlEntryStore(transaction)
                # Sorted, so that two processes lock rows in the same order.
                for session_id, key, count, at in sorted(of_tenant):
                    await entries.add_reads(session_id, key, count, at)

            await database.write(Scope(tenant), write_counts)
