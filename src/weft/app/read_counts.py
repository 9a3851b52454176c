"""Read counts, gathered in memory and written down now and then: losing a few in a crash harms nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.storage.sql.board import SqlEntryStore
from weft.storage.sql.database import Scope

if TYPE_CHECKING:
    from weft.storage.sql.database import Database, Transaction

_HOLD_AT_MOST = 50_000


class BufferedReadCounts:
    """Counts reads by key."""

    def __init__(self) -> None:
        self._reads: dict[tuple[str, str, str], list[int]] = {}

    def note(self, tenant: str, session_id: str, key: str, at: int) -> None:
        noted = self._reads.get((tenant, session_id, key))
        if noted is not None:
            noted[0] += 1
            noted[1] = at
        elif len(self._reads) < _HOLD_AT_MOST:
            self._reads[tenant, session_id, key] = [1, at]

    async def flush(self, database: Database) -> None:
        reads, self._reads = self._reads, {}
        for tenant in {tenant for tenant, _, _ in reads}:
            of_tenant = [(s, k, count, at) for (t, s, k), (count, at) in reads.items() if t == tenant]

            async def write_down(
                transaction: Transaction, of_tenant: list[tuple[str, str, int, int]] = of_tenant
            ) -> None:
                entries = SqlEntryStore(transaction)
                # Sorted, so that two processes writing theirs down take row locks in the same order.
                for session_id, key, count, at in sorted(of_tenant):
                    await entries.add_reads(session_id, key, count, at)

            await database.write(Scope(tenant), write_down)
