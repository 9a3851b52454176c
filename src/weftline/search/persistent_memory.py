"""Persistent memory in the index and in searches: places, ids, versions and texts of its entries.

The place of an entry is the root line of its memory, so that it is never mixed up with private memory, whose place is
the agent's id.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import msgspec

from weftline.history.composite_lines import PART_MARK
from weftline.history.item_ids import VersionId
from weftline.history.line_kinds import find_kind, names_in
from weftline.history.object_storage import Pointer
from weftline.indexing.collections import MEMORY
from weftline.indexing.embeddings import TenantModelStore
from weftline.indexing.sql import CollectionStore
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.identity import Actor
from weftline.kernel.outbox import Outbox
from weftline.knowledge.domains import Domains
from weftline.knowledge.sql import DocumentStore
from weftline.records.sql import RecordStore
from weftline.safety.trust.model import TrustPolicies
from weftline.sessions.messages.store import MessageStore
from weftline.sessions.recorder import Recorder
from weftline.sessions.sql import SessionStore
from weftline.state.agent_context.memory_version import MemoryVersion
from weftline.state.agent_context.model import ContextLine, EntryAddress, readable_memory_owners
from weftline.state.agent_context.service import Contexts
from weftline.state.board.sql import EntryStore
from weftline.state.memory.sql import MemoryStore
from weftline.windows.service import Windows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from weftline.history.model import Version
    from weftline.search.scope import RequestedScope
    from weftline.state.agent_context.sql import PinnedContext
    from weftline.state.agent_context.views import PersistedEntry


# Larger values are found by their key alone.
MAX_INDEXED_BYTES = 1_048_576
_VERSION_BYTES = 8
_VERSION_MASK = 2**62 - 1
_INDENT = "  "
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml", "application/x-yaml")
_TEXT_SUFFIXES = ("+json", "+xml", "+yaml")


def memory_place(line_id: str) -> str | None:
    """Return the place of a line of persistent memory, whatever its part and branch; None for any other line."""
    kind = find_kind(line_id)
    names = names_in(line_id)
    return f"{kind.prefix}:{names[0]}" if kind is not None and kind.composite and names else None


def is_persistent(place: str) -> bool:
    """Tell whether a place of the collection of memories is that of a persistent memory: agent ids have no colon."""
    return ":" in place


def own_place(principal_id: str) -> str:
    return ContextLine(principal_id, None, None).line_id


def readable_places(actor: Actor) -> frozenset[str]:
    """Return the places of persistent memory that a caller reads as its own: also its teams' and users'."""
    return frozenset(ContextLine(owner, None, None).line_id for owner in readable_memory_owners(actor))


def item_of_entry(address: EntryAddress) -> str:
    """Return the item id of an entry. No part has a slash in its name."""
    return f"{address.part}{PART_MARK}{address.key}"


def entry_of_item(item: str) -> EntryAddress:
    part, _, key = item.partition(PART_MARK)
    return EntryAddress(part, key)


def version_of_entry(version: Version) -> int:
    """Return a number that identifies a version of an entry: two branches may both have its version 2."""
    change = version.change
    written = f"{change.incarnation}.{change.version}.{version.committed_at}.{(change.blob_hash or b'').hex()}"
    digest = hashlib.sha256(written.encode()).digest()
    return int.from_bytes(digest[:_VERSION_BYTES], "big") & _VERSION_MASK


async def version_id(memory: MemoryVersion, entry: PersistedEntry) -> VersionId:
    """Return the item id of an entry in records."""
    change = entry.version.change
    return VersionId(await memory.line_of(entry), change.key, change.incarnation, change.version)


class EntryContent(NamedTuple):
    """The text of an entry, or the pointer to a value that has to be fetched for it."""

    text: str = ""
    pointer: Pointer | None = None
    media_type: str | None = None


def content_of(version: Version) -> EntryContent | None:
    """Return the content to index; None if the value was pruned. A value that is not text is found by its key."""
    if version.value is None:
        return None
    meta, key_only = version.change.meta, EntryContent(version.change.key)
    if not meta.outside:
        return EntryContent(readable_json(version.value) or version.change.key)
    is_indexed = meta.size <= MAX_INDEXED_BYTES and (meta.media_type is None or _is_text(meta.media_type))
    return EntryContent("", Pointer.decode(version.value), meta.media_type) if is_indexed else key_only


def text_of_value(content: bytes, media_type: str | None) -> str:
    """Return the text of a value from object storage; empty if it is not text after all."""
    try:
        text = content.decode()
        is_json = media_type is None or media_type == "application/json" or media_type.endswith("+json")
        return readable_json(text) if is_json else text
    except (UnicodeDecodeError, msgspec.DecodeError):
        return ""


def readable_json(text: str) -> str:
    """Return JSON as text to read and search: a string as it is, anything else as indented keys and values."""
    value = msgspec.json.decode(text)
    return value if isinstance(value, str) else "\n".join(_lines(value, ""))


def _lines(value: Any, indent: str) -> Iterator[str]:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _named(f"{indent}{key}:", each, indent)
    elif isinstance(value, list):
        for each in value:
            yield from _named(f"{indent}-", each, indent)
    else:
        yield f"{indent}{_scalar(value)}"


def _named(name: str, value: Any, indent: str) -> Iterator[str]:  # noqa: ANN401 - any JSON
    if isinstance(value, dict | list):
        yield name
        yield from _lines(value, indent + _INDENT)
    else:
        yield f"{name} {_scalar(value)}"


def _scalar(value: Any) -> str:  # noqa: ANN401 - a JSON scalar
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _is_text(media_type: str) -> bool:
    return media_type.startswith(_TEXT_TYPES) or media_type.endswith(_TEXT_SUFFIXES)


async def readable_entries(
    place: str, items: Sequence[str], stores: SearchStores, held: PinnedContext | None = None
) -> tuple[MemoryVersion, dict[str, PersistedEntry]] | None:
    """Return the entries of items that the caller may read, now or in the snapshot of a session.

    None if it may not read the memory.
    """
    if place not in readable_places(stores.actor):
        return None
    if held is None:
        memory = await MemoryVersion.find(stores.contexts, place, stores.actor.principal_id)
    else:
        memory = await MemoryVersion.pinned(stores.contexts, held, place)
    if memory is None:
        return None
    return memory, {item_of_entry(entry.place): entry for entry in await memory.some_entries(map(entry_of_item, items))}


async def current_refs(
    names: Mapping[str, VersionId], stores: SearchStores, held: PinnedContext | None
) -> frozenset[str]:
    """Return those refs whose version is the current one of its entry, or the one in the snapshot of a session."""
    by_place: dict[str, dict[str, str]] = {}
    for ref, name in names.items():
        part = ContextLine.parse(name.line_id).part or ""
        item = item_of_entry(EntryAddress(part, name.key))
        by_place.setdefault(memory_place(name.line_id) or "", {})[ref] = item
    found: set[str] = set()
    for place, items in by_place.items():
        readable = await readable_entries(place, sorted(set(items.values())), stores, held)
        if readable is not None:
            memory, entries = readable
            ids = {item: await version_id(memory, entry) for item, entry in entries.items()}
            found |= {ref for ref, item in items.items() if ids.get(item) == names[ref]}
    return frozenset(found)


async def text_of_entry_id(name: VersionId, stores: SearchStores) -> str | None:
    """Return the current text of the entry that an item id names, as it was indexed; None if it is not readable."""
    place, part = memory_place(name.line_id), ContextLine.parse(name.line_id).part
    item = item_of_entry(EntryAddress(part or "", name.key))
    found = None if place is None else await readable_entries(place, [item], stores)
    if place is None or found is None or item not in found[1]:
        return None
    memory, entries = found
    entry = entries[item]
    if await stores.records.redactions([str(await version_id(memory, entry))]):
        return None
    text = ""
    for chunk in await stores.collections.of_item(MEMORY, place, item, version_of_entry(entry.version)):
        text = text[: chunk.start].ljust(chunk.start) + chunk.text
    return text or None


# Stores that a search reads, for one caller in one transaction.

T = TypeVar("T")


class PendingEvents(NamedTuple):
    """Number of unindexed events in scope that the caller may see; ``own`` are those that it caused, in order.

    ``memories``: of each root of persistent memory with changes that are not indexed, the version before them.
    ``by_words``: the caller's last chunk that is found by words only so far, of each collection with one.
    """

    total: int
    own: tuple[int, ...] = ()
    memories: Mapping[str, int] = {}
    by_words: Mapping[str, int] = {}


class Lag(Protocol):
    """Lag of the index."""

    async def pending(self, actor: Actor, filters: RequestedScope, readable: Collection[str]) -> PendingEvents:
        """Return the unindexed events in scope that the caller may see; very many are not all counted.

        ``readable`` are the places of persistent memory that it may read.
        """
        ...


class IndexWait(Protocol):
    """Waits for the index, so that a search finds what its caller has just written."""

    async def until_indexed(self, actor: Actor, own: Sequence[int]) -> bool:
        """Wait for a short time until these events of the caller are indexed; False if they are not."""
        ...

    async def until_embedded(self, actor: Actor, chunks: Mapping[str, int], since: float) -> bool:
        """Wait for a short time since then until these chunks of the caller are found by meaning; False if not."""
        ...


class KnownSessions(Protocol):
    """Cached session ACLs, so that a search does not read every session."""

    async def admitting(self, actor: Actor) -> frozenset[str]:
        """Return the sessions that a caller may read."""
        ...


class SearchStores(msgspec.Struct, frozen=True):
    """Stores of a search by one caller."""

    actor: Actor
    clock: Clock
    collections: CollectionStore
    domains: Domains
    documents: DocumentStore
    sessions: SessionStore
    windows: Windows
    messages: MessageStore
    entries: EntryStore
    memories: MemoryStore
    contexts: Contexts
    records: RecordStore
    recorder: Recorder
    models: TenantModelStore
    lag: Lag
    known_sessions: KnownSessions
    outbox: Outbox
    policies: TrustPolicies

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())
