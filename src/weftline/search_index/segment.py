"""Immutable columnar segment of a collection's index, in memory or memory-mapped from a file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weftline.indexing.collections import DIRECT_PRIOR, PRIORS, SOURCES
from weftline.kernel.identity import PRINCIPAL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weftline.indexing.collections import IndexedChunk
    from weftline.search_index.quantized_vectors import Vectors

NO_ROWS: NDArray[np.uint32] = np.empty(0, np.uint32)
NO_COUNTS: NDArray[np.uint8] = np.empty(0, np.uint8)
_CACHED_TERMS = 2**16
_SEPARATOR = "\x00"
# A message's position combines its number and the ordinal of its chunk.
_PART_BITS = 12
_MAX_PARTS = 1 << _PART_BITS
# The index of a line in its segment and a position in the line form one sort key.
POSITION_BITS = 40
_MAX_POSITION = (1 << POSITION_BITS) - 1


class VisibilityGroup(NamedTuple):
    """Determines visibility: rows of the same group are visible to the same callers, and of the same prior."""

    source: str
    place: str
    scope: str
    kind: str = ""

    @property
    def prior(self) -> float:
        """Return the share by which a match is raised. The ACL of a direct message names sender and reader."""
        is_direct = self.source == "message" and self.scope.count(f'"{PRINCIPAL}') > 1
        return max(SOURCES[self.source].prior, PRIORS.get(self.kind, 0.0), DIRECT_PRIOR if is_direct else 0.0)


class Dictionary(NamedTuple):
    """Distinct values, and the code of each group's value."""

    names: tuple[str, ...]
    codes: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Columns of rows, sorted by chunk number.

    ``group``, ``line``, ``item`` and ``speaker`` are codes: positions in the segment's lists. ``lines`` and ``items``
    are sorted. ``length`` is the number of terms. ``order`` lists the rows by line and position.
    """

    number: NDArray[np.int64]
    group: NDArray[np.uint32]
    line: NDArray[np.uint32]
    item: NDArray[np.uint32]
    position: NDArray[np.int64]
    speaker: NDArray[np.uint32]
    timestamp: NDArray[np.int64]
    tokens: NDArray[np.int32]
    importance: NDArray[np.float32]
    pinned: NDArray[np.bool_]
    length: NDArray[np.int32]
    order: NDArray[np.uint32]
    lines: NDArray[np.int64]
    items: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TermPostings:
    """Posting lists: rows and term frequencies of term ``t`` are between ``starts[t : t + 2]``.

    Frequencies are capped at 255, beyond which the ranking does not change.
    """

    terms: NDArray[np.int64]
    starts: NDArray[np.int64]
    rows: NDArray[np.uint32]
    counts: NDArray[np.uint8]

    def find(self, term: int) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        index = int(np.searchsorted(self.terms, term))
        if index == len(self.terms) or self.terms[index] != term:
            return NO_ROWS, NO_COUNTS
        postings = slice(self.starts[index], self.starts[index + 1])
        return self.rows[postings], self.counts[postings]


def line_positions(line: NDArray[np.uint32], position: NDArray[np.int64]) -> NDArray[np.int64]:
    """Combine lines and positions of rows into one sort key each."""
    return line.astype(np.int64) << POSITION_BITS | position


@dataclass(frozen=True)
class Segment:
    """Rows of a collection with their posting lists and vectors; without vectors if a database stores them."""

    columns: RowColumns
    postings: TermPostings
    vectors: Vectors
    groups: tuple[VisibilityGroup, ...]
    speakers: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.columns.number)

    @cached_property
    def bytes(self) -> int:
        """Return the size of its arrays."""
        parts = (self.columns, self.postings, self.vectors)
        return sum(getattr(part, field.name).nbytes for part in parts for field in fields(part))

    @cached_property
    def line_positions(self) -> NDArray[np.int64]:
        """Return the sort key of each row."""
        return line_positions(self.columns.line, self.columns.position)

    @cached_property
    def pinned(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.columns.pinned)

    @cached_property
    def scopes(self) -> Dictionary:
        return _dictionary([group.scope for group in self.groups])

    @cached_property
    def sources(self) -> Dictionary:
        return _dictionary([group.source for group in self.groups])

    @cached_property
    def is_message(self) -> NDArray[np.bool_]:
        """Return which groups are turns of a conversation."""
        return np.array([SOURCES[group.source].is_spoken for group in self.groups], np.bool_)

    @cached_property
    def prior(self) -> NDArray[np.float32]:
        """Return the prior of each group."""
        return np.array([group.prior for group in self.groups], np.float32)

    def prior_of(self, rows: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return the prior of rows."""
        prior: NDArray[np.float32] = self.prior[self.columns.group[rows]]
        return prior

    @cached_property
    def groups_of_place(self) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for code, group in enumerate(self.groups):
            places.setdefault(group.place, []).append(code)
        return places

    def has_item(self, item: int) -> bool:
        """Return whether the segment has chunks of an item."""
        index = int(np.searchsorted(self.columns.items, item))
        return index < len(self.columns.items) and bool(self.columns.items[index] == item)

    def find(self, numbers: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the rows of the chunks that are in the segment."""
        if not self.size:
            return np.empty(0, np.intp)
        rows = np.searchsorted(self.columns.number, numbers).clip(max=self.size - 1)
        found: NDArray[np.intp] = rows[self.columns.number[rows] == numbers]
        return found


def _dictionary(values: list[str]) -> Dictionary:
    known: dict[str, int] = {}
    codes = np.array([known.setdefault(value, len(known)) for value in values], np.intp)
    return Dictionary(tuple(known), codes)


class LinePosition(NamedTuple):
    """The line a chunk belongs to, and its position in it."""

    line: int
    position: int


def name_hash(*names: str) -> int:
    """Return a 63-bit hash of a name, stored instead of the text and stable across versions.

    Two of a million names collide in one of ten million collections.
    """
    digest = hashlib.blake2b(_SEPARATOR.join(names).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@lru_cache(_CACHED_TERMS)
def term_hash(term: str) -> int:
    return name_hash(term)


def line_position_of(chunk: IndexedChunk) -> LinePosition:
    """Return the line of a chunk: a session or window for turns of a conversation, a board, else the item's version."""
    if SOURCES[chunk.source].is_spoken and chunk.item.isdecimal():
        position = int(chunk.item) << _PART_BITS | min(chunk.ordinal, _MAX_PARTS - 1)
        return LinePosition(name_hash(chunk.source, chunk.place), min(position, _MAX_POSITION))
    if SOURCES[chunk.source].is_together:
        return LinePosition(name_hash(chunk.source, chunk.place), min(chunk.number, _MAX_POSITION))
    line = line_hash(chunk.source, chunk.place, chunk.item, chunk.version)
    return LinePosition(line, min(chunk.ordinal, _MAX_POSITION))


def line_hash(source: str, place: str, item: str, version: int) -> int:
    """Return the line of an item's version."""
    return name_hash(source, place, item, str(version))
