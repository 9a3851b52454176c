"""Signals of each candidate: lexical and semantic, of the row itself and of its neighbour window.

All signals share one fixed scale. Row and window count half each, so that a row that matches within a matching passage
ranks above either alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weftline.indexing.entities import query_entity_terms
from weftline.indexing.text_analysis import query_terms
from weftline.kernel.clock import DAY_MICROS
from weftline.kernel.thread_pools import SEARCH_THREADS
from weftline.search.model import DUPLICATE_PENALTY, DUPLICATE_THRESHOLD, SAME_DOCUMENT_PENALTY, Columns, NearestRows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from weftline.search.model import Floats, Postings, RankingWeights, Rows, View

    Weights = Mapping[str, float]


# Selection of the largest values with a defined order of ties.


def largest(
    values: NDArray[Any], limit: int, ties: Callable[[NDArray[np.intp]], NDArray[np.integer]]
) -> NDArray[np.intp]:
    """Return the indices of the largest values, in order; ``ties`` of indices decide between equal values, least first.

    A partition alone chooses among equal values by their position, which depends on how an index is laid out.
    """
    if len(values) <= limit:
        return np.arange(len(values))
    if limit <= 0:
        return np.empty(0, np.intp)
    smallest = np.partition(values, len(values) - limit)[len(values) - limit]
    above = np.flatnonzero(values > smallest)
    equal = np.flatnonzero(values == smallest)
    chosen = equal[np.argsort(ties(equal), kind="stable")[: limit - len(above)]]
    return np.sort(np.concatenate([above, chosen]))


# BM25 lexical scores, normalised from 0 to 1.

# BM25 k1 and b.
_K1, _B = 1.2, 0.6
# Posting lists beyond this total only refine the candidates of rarer terms.
_MAX_POSTINGS = 200_000


class Lexicon:
    """Posting lists and inverse document frequencies of the query terms, over all views together."""

    def __init__(self, views: Sequence[View], parts: Sequence[str]) -> None:
        self._views = views
        self._query_terms = [Counter(query_terms(part)) for part in parts]
        terms = sorted({term for counts_of_part in self._query_terms for term in counts_of_part})
        self._postings: list[dict[str, Postings]] = [{term: view.postings(term) for term in terms} for view in views]
        size = sum(view.size for view in views)
        self.mean_length = sum(view.total_terms for view in views) / max(size, 1) or 1.0
        self._idf = {term: self._idf_of(term, size) for term in terms}

    def total_idf(self, part: int) -> float:
        """Return the sum of the IDFs of a query part's terms."""
        return sum(frequency * self._idf[term] for term, frequency in self._query_terms[part].items())

    def weights(self, part: int) -> dict[str, float]:
        """Return the weight of each term of a query part, normalised so that a full match scores 1."""
        whole = self.total_idf(part) * (_K1 + 1)
        return {term: frequency * self._idf[term] / whole for term, frequency in self._query_terms[part].items()}

    def strongest(self, view: int, weights: Weights, limit: int) -> tuple[Rows, Floats]:
        """Return the rows of a view with the highest BM25 scores, unordered, and their scores."""
        postings = [(*self._postings[view][term].all(), weight) for term, weight in self._rarest_terms(view, weights)]
        sums = np.zeros(1 + max((int(rows[-1]) for rows, *_ in postings), default=0), np.float32)
        for rows, counts, weight in postings:
            sums[rows] += weight * _saturated(counts, self._views[view].lengths(rows) / self.mean_length)
        matching = np.flatnonzero(sums > 0)
        if len(matching) > limit:
            numbers_of = self._views[view].numbers_of
            matching = matching[largest(sums[matching], limit, lambda equal: numbers_of(matching[equal]))]
        return matching, sums[matching]

    def _rarest_terms(self, view: int, weights: Weights) -> list[tuple[str, float]]:
        """Return the indexed terms with their weights, rarest first, up to the maximum number of postings."""
        sizes = {term: self._postings[view][term].size for term in weights}
        indexed = sorted((term for term in weights if sizes[term]), key=sizes.__getitem__)
        over_limit = np.cumsum([sizes[term] for term in indexed]) > _MAX_POSTINGS
        selected = indexed[:1] + [
            term for term, too_many in zip(indexed[1:], over_limit[1:], strict=True) if not too_many
        ]
        return [(term, weights[term]) for term in selected]

    def counts(self, view: int, rows: Rows, terms: Sequence[str]) -> Floats:
        """Return the term frequencies of visible rows."""
        found = np.zeros((len(terms), len(rows)), np.float32)
        for place, term in enumerate(terms):
            found[place] = self._postings[view][term].counts(rows)
        return found

    def _idf_of(self, term: str, size: int) -> float:
        document_frequency = sum(of_view[term].size for of_view in self._postings)
        return float(np.log1p((size - document_frequency + 0.5) / (document_frequency + 0.5)))


def bm25_scores(weights: Weights, counts: Floats, relative_lengths: Floats) -> Floats:
    """Return BM25 scores from term frequencies and lengths relative to the mean."""
    scores = np.zeros(counts.shape[1:], np.float32)
    for weight, frequency in zip(weights.values(), counts, strict=True):
        scores += weight * _saturated(frequency, relative_lengths)
    return scores


def _saturated(counts: Floats, relative_lengths: Floats) -> NDArray[np.float32]:
    length_norm = _K1 * (1 - _B + _B * relative_lengths)
    return (counts * (_K1 + 1) / (counts + length_norm)).astype(np.float32)


# Neighbour windows: rows around a candidate support it, as an answer seldom repeats the words of its question.

# A neighbour's weight decreases linearly with its distance, to 0 at this one.
_RADIUS = 6
_DISTANCES = range(1 - _RADIUS, _RADIUS)
_WEIGHTS = 1 - np.abs(np.array(_DISTANCES, np.float32)) / _RADIUS
# Rows this close to a match become candidates themselves.
_CANDIDATE_OFFSETS = range(-2, 3)


@dataclass(frozen=True, slots=True)
class NeighbourWindows:
    """Windows around centre rows, with weights.

    ``rows`` are all rows of all windows, in order. For each window, ``places`` are the positions of its rows in it,
    ``weights`` their weights (0 for none) and ``centres`` the position of its centre.
    """

    rows: Rows
    places: NDArray[np.intp]
    weights: Floats
    centres: NDArray[np.intp]

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Return the number of rows in each window."""
        sizes: NDArray[np.intp] = np.count_nonzero(self.weights, axis=1)
        return sizes

    def only(self, chosen: NDArray[np.intp]) -> NeighbourWindows:
        """Return a subset of the windows."""
        used, places = np.unique(self.places[chosen], return_inverse=True)
        centres = np.searchsorted(used, self.centres[chosen])
        return NeighbourWindows(self.rows[used], places.reshape(-1, len(_DISTANCES)), self.weights[chosen], centres)

    def sums(self, values: Floats) -> Floats:
        """Return the weighted sum of a value per row for each window. The last axis is that of the rows."""
        summed: Floats = (values[..., self.places] * self.weights).sum(axis=-1)
        return summed

    def lengths(self, vectors: Floats) -> Floats:
        """Return the length of each window's weighted sum of vectors."""
        summed = np.zeros((len(self.places), vectors.shape[1]), np.float32)
        for step in range(self.places.shape[1]):
            summed += self.weights[:, step, None] * vectors[self.places[:, step]]
        lengths: Floats = np.linalg.norm(summed, axis=1)
        return lengths


def windows_around(view: View, centres: Rows) -> NeighbourWindows:
    around = view.neighbours(centres, _DISTANCES)
    weights = np.where(around >= 0, _WEIGHTS, 0.0).astype(np.float32)
    # Missing rows have weight 0, so any row can fill their place.
    rows, places = np.unique(np.where(around >= 0, around, centres[:, None]), return_inverse=True)
    return NeighbourWindows(rows, places.reshape(around.shape), weights, np.searchsorted(rows, centres))


def with_neighbours(view: View, rows: Rows) -> Rows:
    """Return rows together with their close neighbours."""
    found = np.unique(view.neighbours(rows, _CANDIDATE_OFFSETS))
    return found[found >= 0]


# How well chunks match the entities that a query names.


def entity_weights(query: str, asked_at: int, views: Sequence[View]) -> dict[str, float]:
    """Return the entities of a query that visible chunks mention, as index terms, with weights that add up to 1.

    Rarer entities weigh more, by their inverse document frequency.
    """
    size = sum(view.size for view in views)
    weights = {}
    for term in query_entity_terms(query, asked_at):
        frequency = sum(view.postings(term).size for view in views)
        if frequency:
            weights[term] = float(np.log1p((size - frequency + 0.5) / (frequency + 0.5)))
    total = sum(weights.values()) or 1.0
    return {term: weight / total for term, weight in weights.items()}


def entity_matches(view: View, rows: Rows, weights: Mapping[str, float]) -> Floats:
    """Return, for each visible row, the weighted share of a query's entities that it mentions, from 0 to 1."""
    found = np.zeros(len(rows), np.float32)
    for term, weight in weights.items():
        found += weight * (view.postings(term).counts(rows) > 0)
    return found


# Candidates per retriever (lexical, semantic); fewer per part for a query of many parts.
_CANDIDATES, _CANDIDATES_OF_PART = 160, 24
# The best of these also contribute their neighbours.
_EXPANDED = 100
# Maximum pins of a search, and of each view.
MAX_PINS = 256
# Candidates that are rescored with the exact vectors of their windows.
_MAX_RESCORED = 256
# Typical length of a window's summed vector relative to the sum of lengths: consecutive texts are similar.
_TYPICAL_LENGTH = 0.7
# A result answers only some parts of a long query: the best of them count.
_BEST_PARTS = 8
# Row and window have equal weight. Lexical matches are less often accidental, so they weigh more.
_SEMANTIC_WEIGHT = 0.5
_LEXICAL_WEIGHT = 0.75
_SPEAKER_BONUS = 0.2
# Names and dates are terms as well, so that an entity adds little: at 0.1 tau2 loses more than LoCoMo gains.
_ENTITY_WEIGHT = 0.03
_NEUTRAL_IMPORTANCE = 0.5
_SEMANTIC_AROUND = "semantic_around"
# Avoids division by zero.
_EPSILON = 1e-6
# Only duplicates near the top matter.
_CONSIDERED = 100
# Cosine from which documents count as duplicates: copies of a text, or of a tool under the same name. Repetition within
# one document or session may be an answer, in another context.
_DUPLICATE_COSINE = 0.96
# The chunks of a short document share their windows, so they all score alike.
_SHORT_DOCUMENT_CHUNKS = 5


@dataclass(slots=True)
class Scores:
    """Candidates of one view with their signals, which add up to ``total``.

    ``vectors`` are their embeddings, None if unavailable. ``window_sizes`` is the number of rows in each window.
    """

    view: View
    rows: Rows
    columns: Columns
    vectors: Floats | None
    window_sizes: NDArray[np.int64]
    signals: dict[str, Floats]
    total: Floats

    def add(self, name: str, values: NDArray[np.floating]) -> None:
        """Add a signal."""
        self.signals[name] = values.astype(np.float32)
        self.total = self.total + self.signals[name]


class _Rescoring(NamedTuple):
    """Candidates to rescore, with their signals per query part; ``lengths`` are the estimated window lengths."""

    windows: NeighbourWindows
    columns: Columns
    lengths: Floats
    signals: list[dict[str, Floats]]


@dataclass(slots=True)
class _Part:
    """One part of a query: term weights and, if available, its embedding."""

    weights: dict[str, float]
    vector: Floats | None


async def score_candidates(
    view_index: int, view: View, lexicon: Lexicon, vectors: Floats | None, parts: Sequence[int]
) -> Scores:
    """Return the candidates of a view for query parts, with lexical and semantic signals."""
    searched = [_Part(lexicon.weights(part), None if vectors is None else vectors[part]) for part in parts]
    limit = max(_CANDIDATES // max(len(searched), 1), _CANDIDATES_OF_PART)
    lexical = await SEARCH_THREADS.run(_lexical_candidates, view_index, lexicon, searched, limit)
    semantic = await view.nearest_each([part.vector for part in searched if part.vector is not None], limit)
    windows = await SEARCH_THREADS.run(_candidate_windows, view, lexical, semantic)
    cosines = None if vectors is None else await view.cosines(windows.rows, vectors[list(parts)])
    rescoring = await SEARCH_THREADS.run(_prefilter, view_index, view, lexicon, windows, searched, cosines)
    near = None if vectors is None else await view.vectors(rescoring.windows.rows, vectors.shape[1])
    return await SEARCH_THREADS.run(_rescored, view, rescoring, near)


def add_speaker(scores: Scores, speaker: str | None) -> None:
    """Add a bonus for rows of the speaker that the query names."""
    if speaker is None:
        return
    codes = [code for code, name in enumerate(scores.view.speakers()) if name.casefold() == speaker]
    scores.add("speaker", _SPEAKER_BONUS * np.isin(scores.columns.speaker, codes))


def add_entities(scores: Scores, weights: Mapping[str, float]) -> None:
    """Add a bonus for rows that mention the entities of the query, given as index terms with their weights."""
    if weights:
        scores.add("entities", _ENTITY_WEIGHT * entity_matches(scores.view, scores.rows, weights))


def add_prior(scores: Scores) -> None:
    """Add what a match counts more because of the kind of its source, if anything in the view has such a prior."""
    if scores.columns.prior.any():
        scores.add("kind", scores.columns.prior * np.maximum(scores.total, 0))


def add_recency_and_importance(scores: Scores, weights: RankingWeights, asked_at: int) -> None:
    """Add recency and importance with the query's weights."""
    columns = scores.columns
    scores.add("recency", weights.recency_weight * recency(columns.timestamp, asked_at, weights))
    scores.add("importance", weights.importance_weight * (columns.importance - _NEUTRAL_IMPORTANCE))


def recency(timestamp: NDArray[np.int64], asked_at: int, weights: RankingWeights) -> NDArray[np.float64]:
    """Return the recency: 1 now, halved after each half-life."""
    days = np.maximum(asked_at - timestamp, 0) / DAY_MICROS
    halved: NDArray[np.float64] = 0.5 ** (days / weights.half_life_days)
    return halved


def _lexical_candidates(view_index: int, lexicon: Lexicon, parts: Sequence[_Part], limit: int) -> list[NearestRows]:
    return [NearestRows(*lexicon.strongest(view_index, part.weights, limit)) for part in parts]


def _candidate_windows(view: View, *found: Sequence[NearestRows]) -> NeighbourWindows:
    """Return the windows of all candidates: matches, their neighbours and pinned rows."""
    strengths: dict[int, float] = {}
    for rows, strength in chain(*found):
        for row, value in zip(rows.tolist(), strength.tolist(), strict=True):
            strengths[row] = max(strengths.get(row, 0.0), value)
    matches = np.array(list(strengths), np.int64)
    best = largest(np.array(list(strengths.values())), _EXPANDED, lambda equal: view.numbers_of(matches[equal]))
    # One more pin shows whether there are too many.
    rows = np.concatenate([matches, with_neighbours(view, matches[best]), view.pinned(MAX_PINS + 1)])
    return windows_around(view, np.unique(rows))


def _prefilter(
    view_index: int,
    view: View,
    lexicon: Lexicon,
    windows: NeighbourWindows,
    searched: Sequence[_Part],
    cosines: Floats | None,
) -> _Rescoring:
    """Keep the candidates with the highest estimated scores, and pinned ones, for rescoring."""
    lengths = np.maximum(_TYPICAL_LENGTH * windows.weights.sum(axis=1), 1.0)
    relative = view.lengths(windows.rows) / lexicon.mean_length
    found = []
    for number, part in enumerate(searched):
        signals = _lexical_signals(
            lexicon.counts(view_index, windows.rows, list(part.weights)), relative, windows, part.weights
        )
        if cosines is not None:
            signals |= _semantic_signals(cosines[number], windows, lengths)
        found.append(signals)
    total = np.sum(list(_best_parts(found).values()), axis=0)
    columns = view.columns(windows.rows[windows.centres])
    best = np.lexsort((columns.number, -total))
    chosen = np.sort(best[(np.arange(len(best)) < _MAX_RESCORED) | columns.pinned[best]])
    return _Rescoring(
        windows.only(chosen),
        Columns._make(column[chosen] for column in columns),
        lengths[chosen],
        [{name: values[chosen] for name, values in signals.items()} for signals in found],
    )


def _rescored(view: View, rescoring: _Rescoring, near: Floats | None) -> Scores:
    """Rescore with the exact lengths of the windows' vectors."""
    windows, signals = rescoring.windows, _best_parts(rescoring.signals)
    if near is not None:
        correction = rescoring.lengths / np.maximum(windows.lengths(near), _EPSILON)
        signals[_SEMANTIC_AROUND] *= correction.astype(np.float32)
    vectors = None if near is None else near[windows.centres]
    rows, total = windows.rows[windows.centres], np.sum(list(signals.values()), axis=0)
    return Scores(view, rows, rescoring.columns, vectors, windows.sizes, signals, total)


def _lexical_signals(counts: Floats, lengths: Floats, windows: NeighbourWindows, weights: Weights) -> dict[str, Floats]:
    """Return the lexical signals of each window's centre; ``counts`` and ``lengths`` cover all rows."""
    # Normalised by the mean number of rows in a window.
    fullness = max(float(windows.weights.sum()) / max(len(windows.weights), 1), 1.0)
    return {
        "lexical": _LEXICAL_WEIGHT * bm25_scores(weights, counts[:, windows.centres], lengths[windows.centres]),
        "lexical_around": _LEXICAL_WEIGHT
        * bm25_scores(weights, windows.sums(counts), windows.sums(lengths) / fullness),
    }


def _semantic_signals(cosines: Floats, windows: NeighbourWindows, lengths: Floats) -> dict[str, Floats]:
    """Return the semantic signals. The cosine with a sum of vectors is the sum of cosines over its length."""
    return {
        "semantic": _SEMANTIC_WEIGHT * cosines[windows.centres],
        _SEMANTIC_AROUND: _SEMANTIC_WEIGHT * windows.sums(cosines) / lengths,
    }


def _best_parts(found: Sequence[dict[str, Floats]]) -> dict[str, Floats]:
    """Return the mean of each candidate's signals over its best query parts."""
    if len(found) == 1:
        return found[0]
    totals = np.stack([np.sum(list(signals.values()), axis=0) for signals in found])
    best = np.argsort(-totals, axis=0, kind="stable")[:_BEST_PARTS]
    return {
        name: np.take_along_axis(np.stack([signals[name] for signals in found]), best, axis=0).mean(axis=0)
        for name in found[0]
    }


def penalise_duplicates(scores: Scores) -> None:
    """Penalise candidates that duplicate a better one or belong to the same short document."""
    order = np.lexsort((scores.columns.number, -scores.total))
    penalty = np.zeros(len(order), np.float32)
    if not scores.view.is_conversation:
        # Each conclusion is a statement of its own.
        in_short = (scores.window_sizes[order] <= _SHORT_DOCUMENT_CHUNKS) & (scores.columns.prior[order] == 0)
        penalty[order] += SAME_DOCUMENT_PENALTY * (in_short & _repeated_lines(scores.columns.line[order]))
    if scores.vectors is not None:
        best = order[:_CONSIDERED]
        penalty[best] += DUPLICATE_PENALTY * _duplicates(scores.vectors[best], scores.columns.line[best])
    scores.add("repetition", penalty)


def near_duplicates(scores: Scores) -> NDArray[np.bool_]:
    """Return which candidates were penalised as near-duplicates of a better one."""
    found: NDArray[np.bool_] = scores.signals["repetition"] < DUPLICATE_THRESHOLD
    return found


def _repeated_lines(lines: NDArray[np.int64]) -> NDArray[np.bool_]:
    repeated = np.ones(len(lines), np.bool_)
    repeated[np.unique(lines, return_index=True)[1]] = False
    return repeated


def _duplicates(vectors: Floats, lines: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which candidates duplicate an earlier one of another line that is not itself a duplicate."""
    similar = np.tril((vectors @ vectors.T >= _DUPLICATE_COSINE) & (lines[:, None] != lines), -1)
    repeated = np.zeros(len(vectors), np.bool_)
    for index in np.flatnonzero(similar.any(axis=1)):
        repeated[index] = bool((similar[index] & ~repeated).any())
    return repeated
