"""Latest calls of agents in SQL: which agents made some, from usage entries, and their figures, from receipts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.capabilities.alerts.conditions import RecentCall
from weft.capabilities.alerts.store import AgentsWithCalls
from weft.storage.sql.database import SqlStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.storage.sql.database import Row, Transaction

_ENTRIES = 2_000
_SINCE = """
SELECT seq, agent_id FROM usage_entries WHERE tenant = $1 AND seq > $2 ORDER BY seq LIMIT $3
"""
_RECENT = """
SELECT receipt_id, created_at, assembled_tokens, capacity_tokens, overhead_tokens, useful_tokens, efficiency_basis
FROM receipts WHERE tenant = $1 AND agent_id = $2 ORDER BY created_at DESC, receipt_id DESC LIMIT $3
"""
_TENANTS = """
SELECT t.tenant FROM tenants t LEFT JOIN jobs j ON j.tenant = t.tenant AND j.job = $1
WHERE t.usage_seq > CAST(COALESCE(NULLIF(j.cursor, ''), '0') AS {bigint}) ORDER BY t.tenant
"""


class SqlAgentCalls(SqlStore):
    """Calls of one tenant's agents."""

    async def since(self, seq: int) -> AgentsWithCalls:
        rows = await self._tx.all(_SINCE, self._tenant, seq, _ENTRIES)
        agents = dict.fromkeys(agent_id for _, agent_id in rows)
        return AgentsWithCalls([*agents], rows[-1][0] if rows else seq, len(rows) == _ENTRIES)

    async def recent(self, limits: Mapping[str, int]) -> Mapping[str, Sequence[RecentCall]]:
        found: dict[str, Sequence[RecentCall]] = {}
        for agent_id, limit in limits.items():
            rows = await self._tx.all(_RECENT, self._tenant, agent_id, limit)
            # Receipts from before have no figures.
            found[agent_id] = [_call(row) for row in rows if row[-1] is not None]
        return found


async def tenants_with_new_calls(transaction: Transaction, job: str) -> list[str]:
    """Return the tenants with usage entries after the cursor of a job."""
    return [row[0] for row in await transaction.all(_TENANTS, job)]


def _call(row: Row) -> RecentCall:
    receipt_id, at, sent, capacity, overhead, useful, basis = row
    return RecentCall(receipt_id, at, sent, capacity or 0, overhead or 0, useful or 0, basis != "answer")
