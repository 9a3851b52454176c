"""Immutable columnar segment of a collection's index, in memory or memory-mapped from a file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft.search_index.term_hash import POSITION_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.search_index.quantized_vectors import Vectors

NO_ROWS: NDArray[np.uint32] = np.empty(0, np.uint32)
NO_COUNTS: NDArray[np.uint8] = np.empty(0, np.uint8)


class VisibilityGroup(NamedTuple):
    """What decides who may see a row: rows of the same group are visible to the same callers."""

    source: str
    place: str
    scope: str


class Coded(NamedTuple):
    """What occurs, each once, and what each group has of it."""

    names: tuple[str, ...]
    codes: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of rows, which are in the order of their chunks' numbers.

    ``group``, ``line``, ``item`` and ``speaker`` are places in the lists of what occurs in this segment. ``lines`` and
    ``items`` are sorted. ``length`` is how many terms a row holds. ``order`` has the rows line by line, in the order of
    their positions.
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
class Words:
    """Which rows hold a term, and how often. Those of the term at place ``t`` lie between ``starts[t : t + 2]``.

    A count ends at 255, beyond which no ranking tells one from another.
    """

    terms: NDArray[np.int64]
    starts: NDArray[np.int64]
    rows: NDArray[np.uint32]
    counts: NDArray[np.uint8]

    def postings(self, term: int) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        place = int(np.searchsorted(self.terms, term))
        if place == len(self.terms) or self.terms[place] != term:
            return NO_ROWS, NO_COUNTS
        held = slice(self.starts[place], self.starts[place + 1])
        return self.rows[held], self.counts[held]


def standpoints(line: NDArray[np.uint32], position: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return rows' lines and their positions in them, as one number each."""
    return line.astype(np.int64) << POSITION_BITS | position


@dataclass(frozen=True)
class Segment:
    """Rows of a collection with their words and vectors; without vectors where a database keeps these."""

    facts: Facts
    words: Words
    vectors: Vectors
    groups: tuple[VisibilityGroup, ...]
    speakers: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.facts.number)

    @cached_property
    def bytes(self) -> int:
        """Return how much memory its arrays take."""
        parts = (self.facts, self.words, self.vectors)
        return sum(getattr(part, field.name).nbytes for part in parts for field in fields(part))

    @cached_property
    def standpoints(self) -> NDArray[np.int64]:
        """Return where each row stands."""
        return standpoints(self.facts.line, self.facts.position)

    @cached_property
    def pinned(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.facts.pinned)

    @cached_property
    def scopes(self) -> Coded:
        return _coded([group.scope for group in self.groups])

    @cached_property
    def sources(self) -> Coded:
        return _coded([group.source for group in self.groups])

    @cached_property
    def is_message(self) -> NDArray[np.bool_]:
        """Tell which groups are of messages."""
        return np.array([group.source == "message" for group in self.groups], np.bool_)

    @cached_property
    def groups_of_place(self) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for code, group in enumerate(self.groups):
            places.setdefault(group.place, []).append(code)
        return places

    def holds(self, item: int) -> bool:
        """Tell whether anything of an item is here."""
        place = int(np.searchsorted(self.facts.items, item))
        return place < len(self.facts.items) and bool(self.facts.items[place] == item)

    def find(self, numbers: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the rows of those of the chunks that are here."""
        if not self.size:
            return np.empty(0, np.intp)
        rows = np.searchsorted(self.facts.number, numbers).clip(max=self.size - 1)
        found: NDArray[np.intp] = rows[self.facts.number[rows] == numbers]
        return found


def _coded(values: list[str]) -> Coded:
    known: dict[str, int] = {}
    codes = np.array([known.setdefault(value, len(known)) for value in values], np.intp)
    return Coded(tuple(known), codes)
