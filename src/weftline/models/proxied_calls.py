"""Receipts of calls through the model proxy: what was sent, what the client gave, and the difference in money."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.kernel.transaction import SqlStore
from weftline.models.language_models.answer_usage import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.transaction import Transaction


# Receipts of calls through the model proxy: what was sent, what the client gave, and the difference in money.

_COLUMNS = (
    "call_id, agent_id, session_id, conversation, model, mode, created_at, given_tokens, input_tokens, output_tokens, "
    "cache_read_tokens, cache_write_tokens, cost_nanos, given_cost_nanos"
)
_ADD = f"""
INSERT INTO proxied_calls (tenant, {_COLUMNS})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
"""  # noqa: S608 - our own columns
_LIST = f"""
SELECT {_COLUMNS} FROM proxied_calls
WHERE tenant = $1 AND agent_id = $2 AND (session_id = $3 OR $3 = '') AND (created_at, call_id) < ($4, $5)
ORDER BY created_at DESC, call_id DESC LIMIT $6
"""  # noqa: S608 - likewise
_HAS = "SELECT 1 FROM proxied_calls WHERE tenant = $1 AND call_id = $2"
_LATEST_NETS = """
SELECT given_cost_nanos - cost_nanos FROM proxied_calls
WHERE tenant = $1 AND agent_id = $2 AND conversation = $3 AND cost_nanos IS NOT NULL AND given_cost_nanos IS NOT NULL
ORDER BY created_at DESC LIMIT $4
"""
_PRUNE = """
DELETE FROM proxied_calls WHERE tenant = $1 AND call_id IN (
    SELECT call_id FROM proxied_calls WHERE tenant = $1 AND created_at < $2 ORDER BY created_at, call_id LIMIT $3)
"""


class EditedTokens(NamedTuple):
    """Tokens that edits leave out of a request, negative for what they add.

    ``earlier``: of what earlier calls had in the same form, ``new``: of what this call is the first to have.
    ``rewritten``: tokens of a prefix that was replaced, so that the cache did not have it any more.
    """

    earlier: int = 0
    new: int = 0
    rewritten: int = 0


class ProxiedCall(NamedTuple):
    """A call of a model. Money is in billionths of a US dollar, None without a price."""

    call_id: str
    agent_id: str
    session_id: str
    conversation: str
    model: str
    mode: str
    created_at: int
    given_tokens: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_nanos: int | None
    given_cost_nanos: int | None


def usage_as_given(usage: Usage, edited: EditedTokens) -> Usage:
    """Return what a call is modelled to have used as its client sent it.

    What earlier calls had would have been read from the cache where this call read any; what is new, written where it
    wrote any.
    """
    total = max(usage.input_tokens + edited.earlier + edited.new, 0)
    read = usage.cache_read_tokens + (edited.earlier if usage.cache_read_tokens else 0)
    # A rewritten prefix is paid again once; as it was given, the cache would have had it.
    read += min(edited.rewritten, usage.input_tokens - usage.cache_read_tokens)
    written = usage.cache_write_tokens + (edited.new if usage.cache_write_tokens else 0)
    read = min(max(read, 0), total)
    written = min(max(written, 0), total - read)
    return Usage(
        input_tokens=total,
        output_tokens=usage.output_tokens,
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=min(usage.cache_write_1h_tokens, written),
        reasoning_tokens=usage.reasoning_tokens,
    )


class ProxiedCallStore(SqlStore):
    """Receipts of the calls of one tenant's agents."""

    async def add(self, call: ProxiedCall) -> None:
        await self._tx.run(_ADD, self._tenant, *call)

    async def has(self, call_id: str) -> bool:
        """Tell whether a call has a receipt."""
        return await self._tx.one(_HAS, self._tenant, call_id) is not None

    async def newest(
        self, agent_id: str, session_id: str, before: tuple[int, str], limit: int
    ) -> Sequence[ProxiedCall]:
        """Return calls of an agent before a time and id, the latest first; of all sessions if none is named."""
        rows = await self._tx.all(_LIST, self._tenant, agent_id, session_id, *before, limit)
        return [ProxiedCall(*row) for row in rows]

    async def latest_nets(self, agent_id: str, conversation: str, limit: int) -> Sequence[int]:
        """Return what the latest calls of a conversation saved, negative where they were dearer."""
        rows = await self._tx.all(_LATEST_NETS, self._tenant, agent_id, conversation, limit)
        return [int(row[0]) for row in rows]

    async def prune(self, before: int, limit: int) -> int:
        """Delete some of the calls before a time; return their number."""
        return await self._tx.changed(_PRUNE, self._tenant, before, limit)


async def tenants_with_calls_before(before: int, transaction: Transaction) -> list[str]:
    """Return the tenants with calls before a time."""
    rows = await transaction.all(
        "SELECT t.tenant FROM tenants t WHERE EXISTS "
        "(SELECT 1 FROM proxied_calls p WHERE p.tenant = t.tenant AND p.created_at < $1)",
        before,
    )
    return [str(row[0]) for row in rows]
