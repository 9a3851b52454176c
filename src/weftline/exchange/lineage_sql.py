"""The store of lineage: derivations, copies and the items of prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.history.item_ids import ItemRef
from weftline.history.value_pruning import forget_values
from weftline.kernel.packed_text import text_of
from weftline.kernel.transaction import BATCH_SIZE, SqlStore, batches, placeholders

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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
# Two keys with a shorter value, such as "done" or true, have it by chance.
MIN_COPIED_BYTES = 20
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


class Derivation(NamedTuple):
    """An item of which a version names a source as what it was derived from; both without version."""

    source: str
    item: str
    at: int


class DerivedSummary(NamedTuple):
    """A recorded summary that names an item, in one version, among its sources."""

    source: str
    summary_id: str
    at: int


class StoredVersion(NamedTuple):
    """A version of a key that holds a value, with the time and author of its commit."""

    line_id: str
    key: str
    incarnation: int
    version: int
    seq: int
    at: int
    by: str
    blob_hash: bytes

    @property
    def item(self) -> str:
        return f"{self.line_id}/{self.key}"


class SentPrompt(NamedTuple):
    """A prompt that was assembled for an agent, with the hashes of its items."""

    receipt_id: str
    session_id: str
    agent_id: str
    at: int
    items: bytes


class LineageStore(SqlStore):
    """Derivations, copies and prompts of the transaction's tenant."""

    async def derived_from(self, sources: Iterable[str]) -> Sequence[Derivation]:
        """Return what declares one of these sources."""
        found: list[Derivation] = []
        for batch in batches(sorted(set(sources))):
            found += [Derivation(*row) for row in await self._tx.all(_DERIVED, self._tenant, *batch)]
        return found

    async def summaries_of(self, item_ids: Iterable[str]) -> Sequence[DerivedSummary]:
        """Return the recorded summaries of these items, oldest first."""
        found: list[DerivedSummary] = []
        for batch in batches(sorted(set(item_ids))):
            found += [DerivedSummary(*row) for row in await self._tx.all(_SUMMARIES, self._tenant, *batch)]
        return found

    async def versions(self, line_id: str, key: str) -> Sequence[StoredVersion]:
        """Return the versions of a key on its own line whose values are stored, oldest first."""
        return [StoredVersion(*row) for row in await self._tx.all(_VERSIONS, self._tenant, line_id, key)]

    async def copies(self, blob_hashes: Iterable[bytes], since: int, limit: int) -> Sequence[StoredVersion]:
        """Return versions of any line with one of these values, oldest first; not of values that many keys have."""
        found: list[StoredVersion] = []
        for batch in batches(sorted(set(blob_hashes))):
            rows = await self._tx.all(_COPIES, self._tenant, *batch, MIN_COPIED_BYTES, since, limit)
            found += [StoredVersion(*row) for row in rows]
        return found[:limit]

    async def prompts(self, agent_id: str | None, since: tuple[int, str], limit: int) -> Sequence[SentPrompt]:
        """Return prompts after a time and receipt id, in order, of one agent or of all."""
        if agent_id is None:
            rows = await self._tx.all(_PROMPTS, self._tenant, *since, limit)
        else:
            rows = await self._tx.all(_PROMPTS_OF_AGENT, self._tenant, *since, agent_id, limit)
        return [
            SentPrompt(receipt_id, session_id, agent_id, at, bytes(items or b""))
            for receipt_id, session_id, agent_id, at, items in rows
        ]

    async def next_prompt_at(self, session_id: str, agent_id: str, after: int) -> int | None:
        """Return when the next prompt of a window was assembled."""
        row = await self._tx.one(_NEXT, self._tenant, session_id, agent_id, after)
        return None if row is None else row[0]

    async def erase_values(self, versions: Sequence[StoredVersion]) -> int:
        """Remove values of versions from history, as pruning does; hashes and metadata stay. Return the freed bytes."""
        freed = 0
        for line_id in sorted({version.line_id for version in versions}):
            going = [(each.key, each.seq, each.blob_hash) for each in versions if each.line_id == line_id]
            freed += await forget_values(self._tx, line_id, going)
        return freed

    async def erase_prompt_texts(self, item: str, receipt_ids: Iterable[str]) -> int:
        """Delete the stored texts of the blocks of these prompts that contain an item; return how many."""
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
