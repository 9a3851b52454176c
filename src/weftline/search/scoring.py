"""Signals of each candidate: lexical and semantic, of the row itself and of its neighbour window.

All signals share one fixed scale. Row and window count half each, so that a row that matches within a matching passage
ranks above either alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weftline.kernel.clock import DAY_MICROS
from weftline.kernel.thread_pools import SEARCH_THREADS
from weftline.search.bm25 import bm25_scores
from weftline.search.entity_matches import entity_matches
from weftline.search.index_view import Columns, NearestRows
from weftline.search.model import DUPLICATE_PENALTY, DUPLICATE_THRESHOLD, SAME_DOCUMENT_PENALTY
from weftline.search.neighbour_windows import windows_around, with_neighbours
from weftline.search.top_k import largest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from weftline.search.bm25 import Lexicon, Weights
    from weftline.search.index_view import Floats, Rows, View
    from weftline.search.model import RankingWeights
    from weftline.search.neighbour_windows import NeighbourWindows

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
