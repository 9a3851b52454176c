"""Collections: indexed chunks and their vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import msgspec

from weftline.kernel.events import NewEvent
from weftline.kernel.identity import ANYONE, PERMISSION, Permission

# Chunks, the collections they are indexed in, and the kinds of sources they come from.

SESSIONS = "sessions"
MEMORY = "memory"
WINDOWS = "windows"
_DOMAIN = "domain:"


class SourceKind(NamedTuple):
    """A kind of searchable source. ``collection`` is None where each domain has its own.

    ``is_spoken``: items are numbered turns of a conversation, each with a speaker. ``prior``: by which part a match
    counts more than one of a document, because a conclusion outranks what it was drawn from. ``is_together``: the items
    of a place are about one subject, so that each supports the others.
    """

    collection: str | None
    base_importance: float
    is_spoken: bool = False
    prior: float = 0.0
    is_together: bool = False


# Every kind of searchable source: a new kind needs one entry here. Text written on purpose (board, memory) is more
# important than a message. All priors were chosen on the open half of `make evals ARGS=board_answers`: the largest with
# which no document loses its place, and no conclusion of another session comes first.
SOURCES = {
    "document": SourceKind(None, 0.5),
    "message": SourceKind(SESSIONS, 0.35, is_spoken=True),
    "board": SourceKind(SESSIONS, 0.6, prior=0.3, is_together=True),
    "memory": SourceKind(MEMORY, 0.6),
    "event": SourceKind(WINDOWS, 0.35, is_spoken=True),
}
# Priors of messages whose category says that something was settled, by the kind of their chunks, and of messages to one
# reader.
PROSE, DECISION, FACT = "prose", "decision", "fact"
PRIORS = {DECISION: 0.25, FACT: 0.15}
DIRECT_PRIOR = 0.5
if TYPE_CHECKING:
    Source = str
else:
    Source = Literal[tuple(SOURCES)]
# Order in which a transaction locks several collections, to avoid deadlocks.
LOCK_ORDER = tuple(dict.fromkeys(kind.collection for kind in SOURCES.values() if kind.collection is not None))

_MIN_RETAINED_CHANGES = 50_000

# Empty scope: visible to everyone who may read the place.
WHOLE_PLACE = ""


def domain_collection(domain: str) -> str:
    """Return the collection of a domain's documents."""
    return f"{_DOMAIN}{domain}"


def collection_domain(collection: str) -> str | None:
    """Return the domain of a collection; None if it holds no documents."""
    return collection.removeprefix(_DOMAIN) if collection.startswith(_DOMAIN) else None


def embedded_text(heading: str, text: str, speaker: str = "") -> str:
    """Return the text to embed: heading, speaker and text."""
    spoken = f"{speaker}: {text}" if speaker else text
    return f"{heading}\n{spoken}" if heading else spoken


class ChunkOwner(NamedTuple):
    """The item that a chunk belongs to, and its ACL."""

    source: Source
    place: str
    item: str
    scope: str = WHOLE_PLACE

    def digest_of(self, embedded: str) -> bytes:
        """Return the key of an embedded text in the cache of vectors.

        Items that everyone in the place may read share it: whoever can tell by the time, or by a figure, that there is
        a vector already could read the text as well. Of items with an ACL the owner is part of it. Removing the last
        chunk with a text deletes its vector, so nobody can tell what was removed either.
        """
        owner = self._replace(item="") if self.scope == WHOLE_PLACE else self
        return hashlib.sha256("\0".join((*owner, embedded)).encode()).digest()


class NewChunk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A part of an item: its characters from ``start`` to ``end``.

    ``place`` is the domain, session, agent or window that the item belongs to; ``scope`` is the ACL within the place:
    participant patterns in JSON, empty for all. ``terms`` are the index terms, separated by spaces; ``entities`` are as
    packed by pack_entities. ``digest`` is the key of its cached vectors. ``timestamp`` is in microseconds.
    Importance is from 0 to 1; pinned chunks are always returned.
    ``semantic``: it gets a vector; otherwise it is found by its words only.
    """

    source: Source
    place: str
    item: str
    ordinal: int
    start: int
    end: int
    terms: str
    digest: bytes
    tokens: int
    timestamp: int
    version: int = 1
    scope: str = WHOLE_PLACE
    kind: str = PROSE
    heading: str = ""
    speaker: str = ""
    importance: float = 0.5
    pinned: bool = False
    metadata: str = "{}"
    entities: str = ""
    semantic: bool = True
    text: str

    @property
    def embedded(self) -> str:
        """Return the text to embed."""
        return embedded_text(self.heading, self.text, self.speaker if SOURCES[self.source].is_spoken else "")


class Chunk(NewChunk, frozen=True, kw_only=True, gc=False):
    """A stored chunk; ``number`` is its sequence number in the collection."""

    collection: str
    number: int

    @property
    def chunk_id(self) -> str:
        return f"{self.collection}/{self.number}"


def retained_changes(chunks: int) -> int:
    """Return how many changes of a collection are retained; a replica that missed more reads it from the start."""
    return 2 * max(chunks, _MIN_RETAINED_CHANGES)


class CollectionState(msgspec.Struct, frozen=True):
    """Sequence number and number of chunks of a collection.

    A collection that was deleted and created again has another ``generation``: replicas of the old one are invalid.
    Changes up to the number ``pruned_up_to`` are no longer retained.
    """

    number: int = 0
    chunks: int = 0
    generation: int = 0
    pruned_up_to: int = 0

    @property
    def prunable(self) -> int:
        """Return how many retained changes may be deleted."""
        return max(0, self.number - retained_changes(self.chunks) - self.pruned_up_to)


class Removal(msgspec.Struct, frozen=True, gc=False):
    """Tombstone of a chunk, with the sequence number of its removal."""

    number: int
    removed: int


class VectorUpdate(msgspec.Struct, frozen=True, gc=False):
    """Range of chunks that got vectors of another model, with the sequence number of that change."""

    number: int
    first: int
    last: int


class NearChunk(msgspec.Struct, frozen=True, gc=False):
    """A chunk number and the cosine similarity to the query vector."""

    number: int
    cosine: float


class PackedVectors(msgspec.Struct, frozen=True, gc=False):
    """Concatenated half-precision vectors, in order of their chunk numbers."""

    numbers: list[int]
    vectors: bytes


class IndexedChunk(msgspec.Struct, frozen=True, gc=False):
    """The columns of a chunk that ranking needs; the vector is in half precision."""

    number: int
    source: Source
    place: str
    scope: str
    item: str
    version: int
    ordinal: int
    kind: str
    speaker: str
    timestamp: int
    tokens: int
    importance: float
    pinned: bool
    terms: str
    entities: str
    vector: bytes | None

    @property
    def is_damaged(self) -> bool:
        """Return whether the vector is not one of 16-bit numbers."""
        return self.vector is not None and len(self.vector) % 2 > 0


_ADMINS = (f"{PERMISSION}{Permission.ADMIN}",)


def index_damaged(collection: str, actor: str, readable_by: tuple[str, ...] = ANYONE) -> NewEvent:
    """Return the event for a damaged index. No text is lost: the index is rebuilt, and searches continue.

    Only admins who may read the collection receive it.
    """
    return NewEvent(
        type="index.damaged",
        session_id=None,
        subject=collection,
        actor=actor,
        participants=_ADMINS,
        readable_by=readable_by,
    )


# Ids of board keys and memory keys as items of a collection; the id of a message or an event is its number.

# Prevents a board key named 3 from having the id of message 3 of the same session.
_KEY_PREFIX = "key/"


class WindowPlace(NamedTuple):
    """The window of an agent in a session, as a place of a collection."""

    session_id: str
    agent_id: str

    def __str__(self) -> str:
        return f"{self.session_id}:{self.agent_id}"

    @classmethod
    def parse(cls, place: str) -> WindowPlace:
        session_id, _, agent_id = place.partition(":")
        return cls(session_id, agent_id)


class MemoryKey(NamedTuple):
    """A key of an agent's memory, global or of a session, as an item id."""

    session_id: str | None
    key: str

    def __str__(self) -> str:
        return f"{self.session_id or ''}/{self.key}"

    @classmethod
    def parse(cls, item: str) -> MemoryKey:
        session_id, _, key = item.partition("/")
        return cls(session_id or None, key)


def item_of_key(key: str) -> str:
    """Return the item id of a board key."""
    return f"{_KEY_PREFIX}{key}"


def key_of_item(item: str) -> str:
    return item.removeprefix(_KEY_PREFIX)


# The port to a database's own vector search.


class VectorSearch(Protocol):
    """Nearest-neighbour search of one collection and model in the database. Vectors are in half precision."""

    async def nearest(self, vector: bytes, limit: int) -> Sequence[NearChunk]:
        """Return the nearest chunks, nearest first; approximate for large collections."""
        ...

    async def nearest_among(self, vector: bytes, limit: int, numbers: Sequence[int]) -> Sequence[NearChunk]:
        """Return the nearest of these chunks, nearest first; exact."""
        ...

    async def cosines(self, vectors: Sequence[bytes], numbers: Sequence[int]) -> Mapping[int, Sequence[float]]:
        """Return the cosines of these chunks with each of the vectors, by number."""
        ...

    async def find(self, numbers: Sequence[int], dimensions: int) -> PackedVectors:
        """Return the vectors of these chunks that have these dimensions."""
        ...

    async def prepare(self) -> bool:
        """Build the vector index; return whether it is ready. False if another process is building it.

        Readers and writers do not wait for it.
        """
        ...

    async def discard(self) -> None:
        """Drop the vector index: these vectors are no longer searched."""
        ...
