"""What a chunk is, and which collection it stands on."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

Source = Literal["document", "message", "board", "memory"]

SESSIONS = "sessions"
MEMORY = "memory"
# Whoever changes both locks them in this order, so that nobody waits in a circle.
LOCKED_IN_ORDER = (SESSIONS, MEMORY)
_DOMAIN = "domain:"

_FEWEST_KEPT = 50_000

# In place of a scope: everyone who may look into the place at all.
WHOLE_PLACE = ""


def domain_collection(domain: str) -> str:
    """Return the collection that the documents of a domain stand on."""
    return f"{_DOMAIN}{domain}"


def collection_domain(collection: str) -> str | None:
    """Return the domain whose documents stand in a collection; None if it is no domain's."""
    return collection.removeprefix(_DOMAIN) if collection.startswith(_DOMAIN) else None


def embedded_text(heading: str, text: str, speaker: str = "") -> str:
    """Return what a vector is made of: what is said, who says it if that is one of many, and what it stands under."""
    said = f"{speaker}: {text}" if speaker else text
    return f"{heading}\n{said}" if heading else said


def digest_of(embedded: str) -> bytes:
    """Return what stands for a text that is embedded."""
    return hashlib.sha256(embedded.encode()).digest()


class NewChunk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A part of an item: its characters from ``start`` to ``end``.

    ``place`` is the domain, session or agent that the item belongs to; ``scope`` says who of those that may look into
    the place may see it: participant patterns in JSON, empty for all. ``terms`` are its words as they are compared,
    separated by spaces. ``digest`` is the SHA-256 of what is embedded. ``timestamp`` is when it was said or written, in
    microseconds. Importance is from 0 to 1; what is pinned is always found.
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
    kind: str = "prose"
    heading: str = ""
    speaker: str = ""
    importance: float = 0.5
    pinned: bool = False
    metadata: str = "{}"
    text: str

    @property
    def embedded(self) -> str:
        """Return what the vector is made of."""
        return embedded_text(self.heading, self.text, self.speaker if self.source == "message" else "")


class Chunk(NewChunk, frozen=True, kw_only=True, gc=False):
    """A chunk in a collection, under the number that it got there."""

    collection: str
    number: int

    @property
    def chunk_id(self) -> str:
        return f"{self.collection}/{self.number}"


def changes_kept(chunks: int) -> int:
    """Return how many changes of a collection are retained; a replica that missed more reads it from the start."""
    return 2 * max(chunks, _FEWEST_KEPT)


class CollectionState(msgspec.Struct, frozen=True):
    """How much has happened to a collection, and how many chunks stand on it.

    A collection that was deleted and created again has another ``birth``: replicas of the old one are invalid.
    What was removed, or got further vectors, up to the number ``forgotten`` is not told any more.
    """

    number: int = 0
    chunks: int = 0
    birth: int = 0
    forgotten: int = 0

    @property
    def forgettable(self) -> int:
        """Return how many changes more can be forgotten."""
        return max(0, self.number - changes_kept(self.chunks) - self.forgotten)


class Removal(msgspec.Struct, frozen=True, gc=False):
    """A chunk that is gone, and the number that its going took."""

    number: int
    removed: int


class Return(msgspec.Struct, frozen=True, gc=False):
    """Chunks that got vectors of a further model, and the number that this took."""

    number: int
    first: int
    last: int


class NearChunk(msgspec.Struct, frozen=True, gc=False):
    """A chunk by its number, and the cosine of its vector with the one that was asked for."""

    number: int
    cosine: float


class PackedVectors(msgspec.Struct, frozen=True, gc=False):
    """Vectors in halves, one behind the other, in the order of the numbers of their chunks: thousands at once."""

    numbers: list[int]
    vectors: bytes


class IndexedChunk(msgspec.Struct, frozen=True, gc=False):
    """What a copy of a collection keeps of one chunk: everything that ranking asks for. The vector is in halves."""

    number: int
    source: Source
    place: str
    scope: str
    item: str
    version: int
    ordinal: int
    speaker: str
    timestamp: int
    tokens: int
    importance: float
    pinned: bool
    terms: str
    vector: bytes | None
