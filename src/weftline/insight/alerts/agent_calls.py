"""Latest calls of agents in SQL: which agents made some, from usage entries, and their figures, from receipts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.insight.alerts.conditions import RecentCall
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.kernel.transaction import Transaction, Value


class AgentsWithCalls(NamedTuple):
    """The agents of new usage entries, and the number of the last of these."""

    agents: Sequence[str]
    seq: int
    has_more: bool


_ENTRIES = 2_000
_SINCE = """
SELECT seq, agent_id FROM usage_entries WHERE tenant = $1 AND seq > $2 ORDER BY seq LIMIT $3
"""
# Agents of one statement: a thousand statements are a thousand round trips to PostgreSQL.
_AGENTS = 20
_RECENT = " UNION ALL ".join(
    f"""
SELECT * FROM (
    SELECT agent_id, receipt_id, created_at, assembled_tokens, capacity_tokens, overhead_tokens, useful_tokens,
        efficiency_basis
    FROM receipts WHERE tenant = $1 AND agent_id = ${place} ORDER BY created_at DESC, receipt_id DESC LIMIT ${place + 1}
) AS calls_of_{place}
"""  # noqa: S608 - constants
    for place in range(2, 2 + 2 * _AGENTS, 2)
)
_TENANTS = """
SELECT t.tenant FROM tenants t LEFT JOIN jobs j ON j.tenant = t.tenant AND j.job = $1
WHERE t.usage_seq > CAST(COALESCE(NULLIF(j.cursor, ''), '0') AS {bigint}) ORDER BY t.tenant
"""


class AgentCalls(SqlStore):
    """Calls of agents, as metering and receipts have them."""

    async def since(self, seq: int) -> AgentsWithCalls:
        """Return the agents of the next usage entries after a number: of new calls, reports and scores."""
        rows = await self._tx.all(_SINCE, self._tenant, seq, _ENTRIES)
        agents = dict.fromkeys(agent_id for _, agent_id in rows)
        return AgentsWithCalls([*agents], rows[-1][0] if rows else seq, len(rows) == _ENTRIES)

    async def recent(self, limits: Mapping[str, int]) -> Mapping[str, Sequence[RecentCall]]:
        """Return the latest calls of agents, newest first, as many as each one's limit; only those with figures."""
        found: dict[str, list[RecentCall]] = {agent_id: [] for agent_id in limits}
        asked = [*limits.items()]
        for start in range(0, len(asked), _AGENTS):
            batch = asked[start : start + _AGENTS]
            # Nobody fills the last statement, so that there is one to prepare.
            batch += [("", 0)] * (_AGENTS - len(batch))
            asked_for: list[Value] = [value for pair in batch for value in pair]
            for agent_id, *call in await self._tx.all(_RECENT, self._tenant, *asked_for):
                # Receipts from before have no figures.
                if call[-1] is not None:
                    found[agent_id].append(_call(call))
        return {agent_id: sorted(calls, key=_age, reverse=True) for agent_id, calls in found.items()}


async def tenants_with_new_calls(transaction: Transaction, job: str) -> list[str]:
    """Return the tenants with usage entries after the cursor of a job."""
    return [row[0] for row in await transaction.all(_TENANTS, job)]


def _age(call: RecentCall) -> tuple[int, str]:
    return call.at, call.receipt_id


def _call(row: Sequence[Any]) -> RecentCall:
    receipt_id, at, sent, capacity, overhead, useful, basis = row
    return RecentCall(receipt_id, at, sent, capacity or 0, overhead or 0, useful or 0, basis != "answer")
