"""Receipts of assembled prompts in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from weftline.kernel.packed_text import pack, text_of
from weftline.kernel.transaction import SqlStore, batches, placeholders
from weftline.prompts.assembly.receipts import Receipt, ReportedUsage, SavingsTotal, StoredReceipt
from weftline.prompts.efficiency import Efficiency

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.kernel.transaction import Row, Transaction

_RECEIPT = "SELECT body, usage, efficiency, document_tokens FROM receipts WHERE tenant = $1 "
_ADD = """
INSERT INTO receipts (tenant, receipt_id, session_id, agent_id, model, created_at, naive_tokens, assembled_tokens,
                      cached_tokens, cost, naive_cost, body, items, capacity_tokens, overhead_tokens, useful_tokens,
                      efficiency_basis, document_tokens)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
"""
_ADD_TEXT = """
INSERT INTO receipt_texts (tenant, session_id, digest, content) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING
"""
_TEXTS = f"""
SELECT digest, content FROM receipt_texts WHERE tenant = $1 AND session_id = $2 AND digest IN ({placeholders(3)})
"""  # noqa: S608 - placeholders
_LAST_ID = """
SELECT receipt_id FROM receipts WHERE tenant = $1 AND session_id = $2 AND agent_id = $3
ORDER BY created_at DESC, receipt_id DESC LIMIT 1
"""
_REPORT = """
UPDATE receipts SET reported_at = $1, input_tokens = $2, output_tokens = $3, cache_read_tokens = $4,
    cache_write_tokens = $5, reported_cost = $6, usage = $7
WHERE tenant = $8 AND receipt_id = $9 AND usage IS NULL
"""
_SCORE = """
UPDATE receipts SET overhead_tokens = $1, useful_tokens = $2, efficiency_basis = $3, efficiency = $4
WHERE tenant = $5 AND receipt_id = $6 AND efficiency IS NULL
"""
# Columns that sums can be grouped by.
_GROUPS = {"tenant": "''", "session": "session_id", "agent": "agent_id", "model": "model"}
_MAX_GROUPS = 1_000
_OLDEST = """
SELECT receipt_id, session_id FROM receipts WHERE tenant = $1 AND created_at < $2
ORDER BY created_at, receipt_id LIMIT $3
"""
_BODIES_PAGE = 100
# Completed by the parameter of the clearance and a parenthesis.
_UP_TO_CLEARANCE = (
    "NOT EXISTS (SELECT 1 FROM principals p WHERE p.tenant = receipts.tenant "
    "AND p.principal_id = receipts.agent_id AND p.clearance > "
)
_encode = msgspec.json.Encoder().encode
_receipt = msgspec.json.Decoder(Receipt).decode
_usage = msgspec.json.Decoder(ReportedUsage).decode
_efficiency = msgspec.json.Decoder(Efficiency).decode


class _Digests(msgspec.Struct):
    """The part of a receipt that names its texts."""

    class _Block(msgspec.Struct):
        digest: str

    blocks: tuple[_Block, ...]
    tools_digest: str


_digests = msgspec.json.Decoder(_Digests).decode


class ReceiptStore(SqlStore):
    """Receipts and their texts of the transaction's tenant."""

    async def add(self, receipt: Receipt, texts: Mapping[str, bytes]) -> None:
        """Store a receipt and those of its texts that are new in its session."""
        saved, expected = receipt.savings, receipt.estimate
        await self._tx.run(
            _ADD,
            self._tenant,
            receipt.receipt_id,
            receipt.session_id,
            receipt.agent_id,
            receipt.model or "",
            receipt.created_at,
            saved.naive_baseline_tokens,
            saved.engine_assembled_tokens,
            saved.cached_tokens,
            saved.cost,
            saved.naive_cost,
            pack(_encode(receipt).decode()),
            receipt.item_hashes,
            receipt.limits.window_tokens,
            None if expected is None else expected.overhead_tokens,
            None if expected is None else expected.useful_tokens,
            None if expected is None else expected.basis,
            saved.document_tokens,
        )
        rows = [
            (self._tenant, receipt.session_id, bytes.fromhex(digest), pack(content.decode()))
            for digest, content in sorted(texts.items())
        ]
        await self._tx.many(_ADD_TEXT, rows)

    async def find(self, receipt_id: str) -> StoredReceipt | None:
        row = await self._tx.one(_RECEIPT + "AND receipt_id = $2", self._tenant, receipt_id)
        return None if row is None else _stored(row)

    async def last_id(self, session_id: str, agent_id: str) -> str | None:
        """Return the id of the latest receipt of a window."""
        row = await self._tx.one(_LAST_ID, self._tenant, session_id, agent_id)
        return None if row is None else str(row[0])

    async def texts(self, session_id: str, digests: Iterable[str]) -> dict[str, bytes]:
        """Return the stored texts among these digests."""
        found: dict[str, bytes] = {}
        for batch in batches([bytes.fromhex(digest) for digest in dict.fromkeys(digests)]):
            rows = await self._tx.all(_TEXTS, self._tenant, session_id, *batch)
            found |= {bytes(digest).hex(): text_of(content).encode() for digest, content in rows}
        return found

    async def page(
        self,
        session_id: str | None,
        agent_id: str | None,
        before: tuple[int, str] | None,
        limit: int,
        *,
        max_clearance: int,
    ) -> Sequence[StoredReceipt]:
        """Return receipts of agents up to a clearance, newest first, before a creation time and id."""
        filters = {"session_id": session_id, "agent_id": agent_id}
        given = {column: value for column, value in filters.items() if value is not None}
        where = "".join(f"AND {column} = ${place} " for place, column in enumerate(given, start=2))
        at = 2 + len(given)
        rows = await self._tx.all(
            f"{_RECEIPT} {where} AND (created_at, receipt_id) < (${at}, ${at + 1}) "
            f"AND {_UP_TO_CLEARANCE}${at + 2}) "
            f"ORDER BY created_at DESC, receipt_id DESC LIMIT ${at + 3}",
            self._tenant,
            *given.values(),
            *(before or (2**62, "")),
            max_clearance,
            limit,
        )
        return [_stored(row) for row in rows]

    async def report(self, receipt_id: str, usage: ReportedUsage, *, counts: bool = True) -> bool:
        """Store the usage of a receipt's call; False if some was reported before."""
        # Sums read the columns.
        counted = (
            usage.reported_at,
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.cost,
        )
        changed = await self._tx.changed(
            _REPORT,
            *(counted if counts else (None,) * len(counted)),
            _encode(usage).decode(),
            self._tenant,
            receipt_id,
        )
        return changed > 0

    async def score(self, receipt_id: str, efficiency: Efficiency) -> bool:
        """Store how the answer of a receipt's call used the prompt; False if that is known already."""
        changed = await self._tx.changed(
            _SCORE,
            efficiency.overhead_tokens,
            efficiency.useful_tokens,
            efficiency.basis,
            pack(_encode(efficiency).decode()),
            self._tenant,
            receipt_id,
        )
        return changed > 0

    async def totals(
        self, by: str, session_id: str | None, agent_id: str | None, since: int, until: int, *, max_clearance: int
    ) -> Sequence[SavingsTotal]:
        """Return sums over agents up to a clearance: by agent, session or model, or over all (``tenant``)."""
        group = _GROUPS[by]
        rows = await self._tx.all(
            f"""
            SELECT {group} AS grouped, COUNT(*), SUM(naive_tokens), COALESCE(SUM(document_tokens), 0),
                   SUM(assembled_tokens), SUM(cached_tokens), SUM(cost), SUM(naive_cost), COUNT(reported_at),
                   COALESCE(SUM(input_tokens), 0), COALESCE(SUM(output_tokens), 0), COALESCE(SUM(cache_read_tokens), 0),
                   COALESCE(SUM(cache_write_tokens), 0), SUM(reported_cost)
            FROM receipts
            WHERE tenant = $1 AND created_at >= $2 AND created_at < $3
              AND (CAST($4 AS TEXT) IS NULL OR session_id = $4) AND (CAST($5 AS TEXT) IS NULL OR agent_id = $5)
              AND {_UP_TO_CLEARANCE}$6)
            GROUP BY grouped ORDER BY SUM(assembled_tokens) DESC, grouped LIMIT $7
            """,  # noqa: S608 - a fixed list of columns
            self._tenant,
            since,
            until,
            session_id,
            agent_id,
            max_clearance,
            _MAX_GROUPS,
        )
        return [_total(row) for row in rows]

    async def prune(self, before: int, limit: int) -> int:
        """Delete receipts created before a time, and texts that no other receipt of the session has."""
        oldest = await self._tx.all(_OLDEST, self._tenant, before, limit)
        await self._tx.many(
            "DELETE FROM receipts WHERE tenant = $1 AND receipt_id = $2", [(self._tenant, row[0]) for row in oldest]
        )
        for session_id in sorted({row[1] for row in oldest}):
            await self._prune_texts(session_id)
        return len(oldest)

    async def _prune_texts(self, session_id: str) -> None:
        used = await self._used(session_id)
        rows = await self._tx.all(
            "SELECT digest FROM receipt_texts WHERE tenant = $1 AND session_id = $2", self._tenant, session_id
        )
        unused = [bytes(digest) for (digest,) in rows if bytes(digest).hex() not in used]
        await self._tx.many(
            "DELETE FROM receipt_texts WHERE tenant = $1 AND session_id = $2 AND digest = $3",
            [(self._tenant, session_id, digest) for digest in unused],
        )

    async def _used(self, session_id: str) -> set[str]:
        """Return the digests in the receipts of a session."""
        used: set[str] = set()
        last = ""
        while True:
            rows = await self._tx.all(
                "SELECT receipt_id, body FROM receipts WHERE tenant = $1 AND session_id = $2 AND receipt_id > $3 "
                "ORDER BY receipt_id LIMIT $4",
                self._tenant,
                session_id,
                last,
                _BODIES_PAGE,
            )
            for receipt_id, body in rows:
                named = _digests(text_of(body))
                used |= {named.tools_digest, *(block.digest for block in named.blocks)}
                last = receipt_id
            if len(rows) < _BODIES_PAGE:
                return used


async def tenants_to_prune(before: int, transaction: Transaction) -> list[str]:
    """Return the tenants with receipts created before a time."""
    rows = await transaction.all(
        "SELECT tenant FROM tenants t WHERE EXISTS ("
        "SELECT 1 FROM receipts r WHERE r.tenant = t.tenant AND r.created_at < $1) ORDER BY tenant",
        before,
    )
    return [row[0] for row in rows]


def _stored(row: Row) -> StoredReceipt:
    body, usage, scored, document_tokens = row
    receipt = _receipt(text_of(body))
    if document_tokens is None:
        receipt = _without_claim(receipt)
    return StoredReceipt(
        receipt,
        None if usage is None else _usage(usage),
        None if scored is None else _efficiency(text_of(scored)),
    )


def _without_claim(receipt: Receipt) -> Receipt:
    """Return an earlier receipt without savings: its baseline counted documents that the prompt did not need."""
    saved = receipt.savings
    claimed = structs.replace(
        saved,
        naive_baseline_tokens=saved.engine_assembled_tokens,
        savings_ratio=0.0,
        naive_cached_tokens=saved.cached_tokens,
        naive_cost=saved.cost,
    )
    return structs.replace(receipt, savings=claimed)


def _total(row: Row) -> SavingsTotal:
    group, calls, naive, documents, assembled, cached, cost, naive_cost, reported, *sums, reported_cost = row
    read_in, out, cache_read, cache_write = map(int, sums)
    return SavingsTotal(
        group=group,
        calls=calls,
        naive_baseline_tokens=int(naive),
        document_tokens=int(documents),
        engine_assembled_tokens=int(assembled),
        cached_tokens=int(cached),
        cost=cost,
        naive_cost=naive_cost,
        reported=reported,
        input_tokens=read_in,
        output_tokens=out,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        reported_cost=reported_cost,
    )
