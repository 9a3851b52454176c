"""Queries, ranking weights and ranked chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import msgspec

from weftline.records.vocabulary import OmissionReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from weftline.indexing.collections import IndexedChunk

    Rows = NDArray[np.int64]
    Counts = NDArray[np.float32]
    Floats = NDArray[np.float32]


DEFAULT_MIN_SCORE = 0.7
DEFAULT_TOP_K = 10
# Recency hardly predicts relevance, so by default it only breaks ties.
DEFAULT_RECENCY_WEIGHT = 0.02
DEFAULT_IMPORTANCE_WEIGHT = 0.15
DEFAULT_HALF_LIFE_DAYS = 30.0
# A search with less confidence is unsure.
CONFIDENT = 0.5
# A collection holds evidence from this probability on; below it is in doubt, and below the second one it holds none.
RELEVANT, DOUBTFUL = 0.3, 0.02
# A passage with a lower probability adds too little for its tokens. A turn of the reader's own conversation takes the
# place of another turn only, so it needs less, and is not in doubt.
MIN_PROBABILITY, MIN_TURN_PROBABILITY = 0.005, 0.0005
# More passages seldom add evidence, but cost tokens in every later call.
MAX_PASSAGE_TOKENS = 8_000
# Of a prompt whose caller named no budget: it did not say that it wants to spend more.
DEFAULT_PASSAGE_TOKENS = 3_000
# A passage that is as likely evidence as this gets its surroundings, and makes its document part of what a prompt
# without retrieval would contain.
LIKELY_PROBABILITY = 0.05
# One with this probability is worth more than older turns of a conversation that would fit as a whole.
STRONG_PROBABILITY = 0.2
# Penalties of a near-duplicate of a better result, and of a chunk of the same short document; they may add up.
DUPLICATE_PENALTY, SAME_DOCUMENT_PENALTY = -0.3, -0.15
# Half-way between the two.
DUPLICATE_THRESHOLD = (DUPLICATE_PENALTY + SAME_DOCUMENT_PENALTY) / 2


class RankingWeights(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of signals other than relevance, and the minimum score of a result."""

    min_score: float = DEFAULT_MIN_SCORE
    recency_weight: float = DEFAULT_RECENCY_WEIGHT
    importance_weight: float = DEFAULT_IMPORTANCE_WEIGHT
    half_life_days: float = DEFAULT_HALF_LIFE_DAYS


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A query, its time in microseconds, and what its results are for.

    ``purpose`` decides what is a result. An answer has the best candidates from the minimum score on, few of them if
    confidence is low, unless ``low_confidence``. A prompt gets what is probably evidence, and in doubt what perhaps is.
    ``max_results`` is the plan's limit; pins come in addition. ``complete``: return every pin, and every omitted
    candidate with its reason. ``tuned``: the caller chose the weights. ``in_doubt``: a prompt gets doubtful results.
    ``is_task``: the text was not written to search with, so that few shared words may be chance.
    """

    text: str
    asked_at: int
    top_k: int = DEFAULT_TOP_K
    max_results: int | None = None
    purpose: Literal["answer", "prompt"] = "answer"
    low_confidence: bool = False
    complete: bool = False
    weights: RankingWeights = RankingWeights()
    tuned: bool = False
    in_doubt: bool = True
    is_task: bool = False


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A ranked chunk. ``score`` is its calibrated relevance from 0 to 1; ``signals`` add up to ``evidence``.

    For a prompt, ``probability`` is that of being evidence. ``doubtful``: its collection probably holds none.
    """

    collection: str
    number: int
    score: float
    signals: dict[str, float]
    evidence: float = 0.0
    pinned: bool = False
    probability: float = 0.0
    doubtful: bool = False


def is_near_duplicate(ranked: Ranked) -> bool:
    """Return whether a chunk was penalised as near-duplicate of a better one."""
    return bool(ranked.signals.get("repetition", 0.0) < DUPLICATE_THRESHOLD)


class OmittedChunk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A scored candidate that is not a result, and why."""

    collection: str
    number: int
    score: float
    reason: OmissionReason


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """Ranked chunks, best first, and the confidence in them; pinned ones separately, whatever their score.

    ``relevant``: a candidate reached the minimum score, and for a prompt, is probably evidence. ``has_evidence``: for a
    prompt, whatever the minimum score is. ``unsure``: nothing did,
    or confidence is low. ``by_meaning``: False if only keywords were matched. Of a complete query, ``omitted`` are all
    other candidates, best first; ``pins_truncated``: there were more pins than its maximum.
    """

    ranked: list[Ranked]
    pinned: list[Ranked]
    confidence: float
    min_score: float
    unsure: bool
    relevant: bool
    has_evidence: bool = False
    searched: int = 0
    by_meaning: bool = True
    omitted: list[OmittedChunk] = []
    pins_truncated: bool = False


# Read view of a collection for one caller, at one snapshot: the input of ranking.
#
# Rows number the chunks of a replica and mean nothing outside of the view. All statistics cover visible rows only, so
# that no score reveals hidden items.


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
