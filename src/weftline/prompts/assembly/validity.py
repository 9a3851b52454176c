"""Checks that the content of an earlier prompt may still be sent: it exists, unchanged, and the caller may read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.exchange.record_log.lookup import RecordFinder
from weftline.prompts.assembly.records import item_id
from weftline.records.record_ids import StoredRecordId, VersionId, parse_item_id
from weftline.search.passages import readable_chunks
from weftline.search.persistent_memory import current_refs, memory_place
from weftline.search.stores import SearchStores

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weftline.prompts.assembly.model import PlannedBlock
    from weftline.state.agent_context.store import PinnedContext

_CHECKED = ("retrieved", "pins")


class ValidityStores(msgspec.Struct, frozen=True):
    """Stores in which the items of a prompt are looked up."""

    search: SearchStores
    finder: RecordFinder


def to_check(blocks: Iterable[PlannedBlock], current: Mapping[str, str]) -> dict[str, str]:
    """Return the passages in blocks that the current search has not just read, by ref."""
    items = {ref: version for block in blocks if block.kind in _CHECKED for ref, version in block.items.items()}
    return {ref: version for ref, version in items.items() if current.get(ref) != version}


async def invalid_items(items: Mapping[str, str], held: PinnedContext | None, stores: ValidityStores) -> frozenset[str]:
    """Return the items that were removed, changed or redacted, or that the caller may not read any more.

    ``held`` is the snapshot of the session: entries of memory that are not in it, after a pull, are not valid.
    """
    chunks = {ref: key for ref in items if (key := _chunk_key(ref)) is not None}
    readable = await readable_chunks(chunks.values(), stores.search) if chunks else set[tuple[str, int]]()
    others = {ref: parse_item_id(item_id(ref, version)) for ref, version in items.items() if ref not in chunks}
    named = {ref: each for ref, each in others.items() if not isinstance(each.origin, StoredRecordId)}
    found = await (await stores.finder.look(None)).records(list(named.values())) if named else []
    valid = {ref for ref, key in chunks.items() if key in readable}
    valid |= {ref for ref, record in zip(named, found, strict=True) if record is not None and record.redaction is None}
    memories = {ref: name for ref in valid if (name := _memory_entry(ref, items[ref])) is not None}
    valid -= memories.keys() - await current_refs(memories, stores.search, held)
    return frozenset(ref for ref in items if ref not in valid)


def _memory_entry(ref: str, version: str) -> VersionId | None:
    """Return the version of an entry of persistent memory; None if the item is something else."""
    name = VersionId.parse(item_id(ref, version))
    return None if name is None or memory_place(name.line_id) is None else name


def _chunk_key(ref: str) -> tuple[str, int] | None:
    """Return collection and number of a chunk's ref, such as domain:handbook/42; None if it names an item."""
    collection, _, number = ref.rpartition("/")
    return (collection, int(number)) if collection.startswith("domain:") and number.isdecimal() else None
