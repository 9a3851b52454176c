"""Derivations, copies and the items of prompts in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.exchange.lineage import (
    MIN_COPIED_BYTES,
    Derivation,
    DerivedSummary,
    SentPrompt,
    StoredVersion,
)
from weftline.kernel.packed_text import text_of
from weftline.kernel.transaction import BATCH_SIZE, SqlStore, batches, placeholders
from weftline.records.item_refs import ItemRef
from weftline.storage.sql.pruning import forget_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.kernel.transaction import Transaction

_ADD = """
INSERT INTO derivations (tenant, source, item, line_id, at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING
"""
_DERIVED = f"""
SELECT source, item, at FROM derivations WHERE tenant = $1 AND source IN ({placeholders(2)}) ORDER BY at, item
"""  # noqa: S608 - placeholders
_SUMMARIES = f"""
SELECT i.item_id, i.record_id, r.recorded_at FROM record_items i
JOIN records r ON r.tenant = i.tenant AND r.type = i.type AND r.record_id = i.record_id
WHERE i.tenant = $1 AND i.type = 'context_summary' AND i.item_id IN ({placeholders(2)})
ORDER BY r.recorded_at, r.record_id
"""  # noqa: S608 - placeholders
_VERSION = """
SELECT c.line_id, c.key, c.incarnation, c.version, c.seq, k.committed_at, k.author, c.blob_hash FROM changes c
JOIN commits k ON k.tenant = c.tenant AND k.line_id = c.line_id AND k.seq = c.seq
"""
_VERSIONS = f"""
{_VERSION}
WHERE c.tenant = $1 AND c.line_id = $2 AND c.key = $3 AND c.pruned = 0 AND c.blob_hash IS NOT NULL
ORDER BY c.seq
"""
_COPIES = f"""
{_VERSION}
JOIN blobs b ON b.tenant = c.tenant AND b.hash = c.blob_hash
WHERE c.tenant = $1 AND c.blob_hash IN ({placeholders(2)}) AND c.pruned = 0
  AND (b.object IS NOT NULL OR LENGTH(b.content) >= ${BATCH_SIZE + 2}) AND k.committed_at >= ${BATCH_SIZE + 3}
ORDER BY k.committed_at, c.line_id, c.key, c.seq LIMIT ${BATCH_SIZE + 4}
"""
_PROMPTS = """
SELECT receipt_id, session_id, agent_id, created_at, items FROM receipts
WHERE tenant = $1 AND (created_at, receipt_id) > ($2, $3) ORDER BY created_at, receipt_id LIMIT $4
"""
_PROMPTS_OF_AGENT = """
SELECT receipt_id, session_id, agent_id, created_at, items FROM receipts
WHERE tenant = $1 AND (created_at, receipt_id) > ($2, $3) AND agent_id = $4 ORDER BY created_at, receipt_id LIMIT $5
"""
_NEXT = """
SELECT MIN(created_at) FROM receipts WHERE tenant = $1 AND session_id = $2 AND agent_id = $3 AND created_at > $4
"""


class _Blocks(msgspec.Struct):
    """The part of a receipt that names the texts of its blocks, and their items."""

    class _Block(msgspec.Struct):
        digest: str
        items: dict[str, str] = {}
        covers: dict[str, str] = {}

    session_id: str
    blocks: tuple[_Block, ...]
    documents: dict[str, str] = {}

    def digests_with(self, item: str) -> set[str]:
        return {
            block.digest
            for block in self.blocks
            if any(_item_of(self.documents.get(ref, ref)) == item for ref in (*block.items, *block.covers))
        }


_blocks = msgspec.json.Decoder(_Blocks).decode


async def add_derivations(transaction: Transaction, item: str, sources: Iterable[str], at: int) -> None:
    """Store that an item declares to be derived from sources."""
    named = {ref.item for source in sources if (ref := ItemRef.parse(source)) is not None}
    line_id = item.partition("/")[0]
    await transaction.many(_ADD, [(transaction.tenant, source, item, line_id, at) for source in sorted(named - {item})])


async def erase_derivations(transaction: Transaction, line_id: str) -> None:
    """Delete what the items of a line, or of a transcript (message:SESSION), declare."""
    await transaction.run("DELETE FROM derivations WHERE tenant = $1 AND line_id = $2", transaction.tenant, line_id)


class SqlLineageStore(SqlStore):
    """Lineage of one tenant."""

    async def derived_from(self, sources: Iterable[str]) -> Sequence[Derivation]:
        found: list[Derivation] = []
        for batch in batches(sorted(set(sources))):
            found += [Derivation(*row) for row in await self._tx.all(_DERIVED, self._tenant, *batch)]
        return found

    async def summaries_of(self, item_ids: Iterable[str]) -> Sequence[DerivedSummary]:
        found: list[DerivedSummary] = []
        for batch in batches(sorted(set(item_ids))):
            found += [DerivedSummary(*row) for row in await self._tx.all(_SUMMARIES, self._tenant, *batch)]
        return found

    async def versions(self, line_id: str, key: str) -> Sequence[StoredVersion]:
        return [StoredVersion(*row) for row in await self._tx.all(_VERSIONS, self._tenant, line_id, key)]

    async def copies(self, blob_hashes: Iterable[bytes], since: int, limit: int) -> Sequence[StoredVersion]:
        found: list[StoredVersion] = []
        for batch in batches(sorted(set(blob_hashes))):
            rows = await self._tx.all(_COPIES, self._tenant, *batch, MIN_COPIED_BYTES, since, limit)
            found += [StoredVersion(*row) for row in rows]
        return found[:limit]

    async def prompts(self, agent_id: str | None, since: tuple[int, str], limit: int) -> Sequence[SentPrompt]:
        if agent_id is None:
            rows = await self._tx.all(_PROMPTS, self._tenant, *since, limit)
        else:
            rows = await self._tx.all(_PROMPTS_OF_AGENT, self._tenant, *since, agent_id, limit)
        return [
            SentPrompt(receipt_id, session_id, agent_id, at, bytes(items or b""))
            for receipt_id, session_id, agent_id, at, items in rows
        ]

    async def next_prompt_at(self, session_id: str, agent_id: str, after: int) -> int | None:
        row = await self._tx.one(_NEXT, self._tenant, session_id, agent_id, after)
        return None if row is None else row[0]

    async def erase_values(self, versions: Sequence[StoredVersion]) -> int:
        freed = 0
        for line_id in sorted({version.line_id for version in versions}):
            going = [(each.key, each.seq, each.blob_hash) for each in versions if each.line_id == line_id]
            freed += await forget_values(self._tx, line_id, going)
        return freed

    async def erase_prompt_texts(self, item: str, receipt_ids: Iterable[str]) -> int:
        going: set[tuple[str, str]] = set()
        for receipt_id in receipt_ids:
            row = await self._tx.one(
                "SELECT body FROM receipts WHERE tenant = $1 AND receipt_id = $2", self._tenant, receipt_id
            )
            if row is not None:
                receipt = _blocks(text_of(row[0]))
                going |= {(receipt.session_id, digest) for digest in receipt.digests_with(item)}
        await self._tx.many(
            "DELETE FROM receipt_texts WHERE tenant = $1 AND session_id = $2 AND digest = $3",
            [(self._tenant, session_id, bytes.fromhex(digest)) for session_id, digest in sorted(going)],
        )
        return len(going)


def _item_of(reference: str) -> str | None:
    parsed = ItemRef.parse(reference)
    return None if parsed is None else parsed.item
