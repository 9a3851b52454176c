"""A collection as one caller may see it, at one timestamp: what ranking works on.

Rows number the chunks of a replica; they mean nothing outside of the view. Whatever is counted is counted
over the rows that are visible, so that no score tells anything of what is hidden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]
    Counts = NDArray[np.float32]
    Floats = NDArray[np.float32]


class Postings(Protocol):
    """The visible rows that hold a term."""

    @property
    def size(self) -> int:
        """Return how many these are."""
        ...

    def all(self) -> tuple[Rows, Counts]:
        """Return these rows, in order, and how often each holds it."""
        ...

    def counts(self, rows: Rows) -> Counts:
        """Return how often each of some visible rows holds it."""
        ...


class NearestRows(NamedTuple):
    """Rows whose vectors are nearest, and their cosines, the nearest first."""

    rows: Rows
    cosines: Floats


class Columns(NamedTuple):
    """What is known of some rows, each in an array of its own.

    ``line`` is the same number for rows that follow each other: the chunks of a document, the messages of a session;
    ``position`` is their order in it. ``speaker`` is a number, see View.speakers. ``timestamp`` is in microseconds.
    """

    number: NDArray[np.int64]
    line: NDArray[np.int64]
    position: NDArray[np.int64]
    speaker: NDArray[np.int32]
    timestamp: NDArray[np.int64]
    tokens: NDArray[np.int32]
    importance: Floats
    pinned: NDArray[np.bool_]


class View(Protocol):
    """One collection, as far as its caller may see it and asked for it."""

    collection: str
    # How many changes of the collection are not in it yet: none, unless a large copy of it is being made anew.
    behind: int

    @property
    def size(self) -> int:
        """Return how many rows are visible."""
        ...

    @property
    def total_terms(self) -> int:
        """Return how many terms the visible rows hold together."""
        ...

    @property
    def is_conversation(self) -> bool:
        """Tell whether rows that follow each other are turns of a conversation."""
        ...

    def postings(self, term: str) -> Postings: ...

    def lengths(self, rows: Rows) -> Floats:
        """Return how many terms each row holds."""
        ...

    def columns(self, rows: Rows) -> Columns: ...

    def speakers(self) -> Sequence[str]:
        """Return the names that the numbers in Columns.speaker stand for."""
        ...

    def present_speakers(self) -> frozenset[str]:
        """Return those who said something that is visible."""
        ...

    def neighbours(self, rows: Rows, offsets: Sequence[int]) -> Rows:
        """Return for each row the visible rows that stand so far behind it (before it, if negative); -1 for none."""
        ...

    def newest(self, limit: int) -> Rows:
        """Return the rows of the latest timestamps, newest first."""
        ...

    def pinned(self, limit: int) -> Rows:
        """Return the rows of the latest timestamps that are pinned, newest first."""
        ...

    async def nearest(self, vector: Floats, limit: int) -> NearestRows: ...

    async def cosines(self, rows: Rows, questions: Floats) -> Floats:
        """Return for each question how near its vector is to those of rows; 0 where a row has none."""
        ...

    async def vectors(self, rows: Rows, dimensions: int) -> Floats:
        """Return the vectors of rows; zeros where one has none of so many dimensions, or none yet."""
        ...


class IncompleteItem(NamedTuple):
    """A document of which only the chunks of one version are to be found (0: of none), though there may be others."""

    domain: str
    document_id: str
    found_version: int


class CollectionQuery(NamedTuple):
    """Which part of a collection to look at: None and empty mean all.

    ``places`` are those the caller may look into, ``items`` those that filters left; scopes are looked at as well.
    Moments are in microseconds, ``until`` not in. ``without`` are chunks in the collection that turned out to be gone.
    What is pinned counts as pinned only if ``pins``.
    """

    collection: str
    places: frozenset[str] | None = None
    items: frozenset[str] | None = None
    sources: frozenset[str] = frozenset()
    since: int | None = None
    until: int | None = None
    unfinished: frozenset[IncompleteItem] = frozenset()
    without: frozenset[int] = frozenset()
    pins: bool = True


class Views(Protocol):
    """Makes views of collections that are up to date with what was committed."""

    async def open(self, tenant: str, wish: CollectionQuery, audiences: Audiences, model: str) -> View:
        """Return a view of everything that was committed before this call."""
        ...


class Audiences(Protocol):
    """Whoever asks: an Actor."""

    def matches(self, patterns: Sequence[str]) -> bool: ...
