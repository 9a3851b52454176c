"""Read view of a collection for one caller, at one snapshot: the input of ranking.

Rows number the chunks of a replica and mean nothing outside of the view. All statistics cover visible rows only, so
that no score reveals hidden items.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from weftline.indexing.collections.model import IndexedChunk

    Rows = NDArray[np.int64]
    Counts = NDArray[np.float32]
    Floats = NDArray[np.float32]


class Postings(Protocol):
    """Posting list of a term, restricted to visible rows."""

    @property
    def size(self) -> int:
        """Return the number of rows."""
        ...

    def all(self) -> tuple[Rows, Counts]:
        """Return the rows in order, with their term frequencies."""
        ...

    def counts(self, rows: Rows) -> Counts:
        """Return the term frequencies of some visible rows."""
        ...


class NearestRows(NamedTuple):
    """Nearest rows and their cosines, nearest first."""

    rows: Rows
    cosines: Floats


class Columns(NamedTuple):
    """Columns of some rows, one array each.

    ``line`` is the same number for rows of one sequence, the chunks of a document or the messages of a session;
    ``position`` is their order in it. ``speaker`` is a code, see View.speakers. ``timestamp`` is in microseconds.
    ``prior``: by which part a match counts more, because of the kind of its source.
    """

    number: NDArray[np.int64]
    line: NDArray[np.int64]
    position: NDArray[np.int64]
    speaker: NDArray[np.int32]
    timestamp: NDArray[np.int64]
    tokens: NDArray[np.int32]
    importance: Floats
    prior: Floats
    pinned: NDArray[np.bool_]


class View(Protocol):
    """The rows of a collection that are visible to the caller and match its query."""

    collection: str
    # Its vectors are in the database, so that a search of it waits for more than threads.
    asks_database: bool
    # Number of changes that the replica lacks: 0 unless a large one is being rebuilt.
    lag: int

    @property
    def size(self) -> int:
        """Return the number of visible rows."""
        ...

    @property
    def total_terms(self) -> int:
        """Return the total number of terms of visible rows."""
        ...

    @property
    def is_conversation(self) -> bool:
        """Tell whether consecutive rows are turns of a conversation."""
        ...

    def postings(self, term: str) -> Postings: ...

    def lengths(self, rows: Rows) -> Floats:
        """Return the number of terms of each row."""
        ...

    def columns(self, rows: Rows) -> Columns: ...

    def speakers(self) -> Sequence[str]:
        """Return the names for the codes in Columns.speaker."""
        ...

    def present_speakers(self) -> frozenset[str]:
        """Return the speakers of visible rows."""
        ...

    def numbers_of(self, rows: Rows) -> Rows:
        """Return the chunk number of each row; unlike rows, the same in every replica."""
        ...

    def neighbours(self, rows: Rows, offsets: Sequence[int]) -> Rows:
        """Return for each row the visible rows at these offsets; -1 for none."""
        ...

    def newest(self, limit: int) -> Rows:
        """Return the rows of the latest timestamps, newest first."""
        ...

    def pinned(self, limit: int) -> Rows:
        """Return the pinned rows with the latest timestamps, newest first."""
        ...

    async def nearest(self, vector: Floats, limit: int) -> NearestRows: ...

    async def nearest_each(self, vectors: Sequence[Floats], limit: int) -> Sequence[NearestRows]: ...

    async def cosines(self, rows: Rows, queries: Floats) -> Floats:
        """Return the cosines of each query vector and each row; 0 where a row has no vector."""
        ...

    async def vectors(self, rows: Rows, dimensions: int) -> Floats:
        """Return the vectors of rows; zeros where a row has none of these dimensions."""
        ...


class IncompleteItem(NamedTuple):
    """A document being re-indexed: only chunks of this version are visible (0: none)."""

    domain: str
    document_id: str
    found_version: int


class CollectionQuery(NamedTuple):
    """Filters on a collection; None and empty mean all.

    ``places`` are those the caller may read, ``items`` those that match its filters; ACLs are checked as well. Times
    are in microseconds, ``until`` exclusive. A chunk must have all ``entities``, given as index terms. ``without`` are
    chunks that were found to be deleted. Pins only count if ``pins``.
    """

    collection: str
    places: frozenset[str] | None = None
    items: frozenset[str] | None = None
    sources: frozenset[str] = frozenset()
    since: int | None = None
    until: int | None = None
    entities: frozenset[str] = frozenset()
    unfinished: frozenset[IncompleteItem] = frozenset()
    without: frozenset[int] = frozenset()
    pins: bool = True


class Views(Protocol):
    """Opens views of collections."""

    async def open(self, tenant: str, query: CollectionQuery, audiences: Audiences, model: str) -> View:
        """Return a view that includes everything committed before this call."""
        ...

    async def open_chunks(self, chunks: Sequence[IndexedChunk], query: CollectionQuery, audiences: Audiences) -> View:
        """Return a view of chunks that are in no collection, sorted by number."""
        ...


class Audiences(Protocol):
    """The caller, matched against ACL patterns."""

    def matches(self, patterns: Sequence[str]) -> bool: ...
