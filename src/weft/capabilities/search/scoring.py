"""What speaks for each candidate: by words and by meaning, of itself and of what stands around it.

Everything is on one fixed scale. What is said by a row and by its window counts half each, so that neither decides
alone: what says what was asked, and stands where it is talked about, has both.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft.capabilities.search.bm25 import said_of
from weft.capabilities.search.index_view import Columns, NearestRows
from weft.capabilities.search.neighbour_windows import windows_around, with_neighbours
from weft.kernel.clock import DAY_MICROS
from weft.kernel.thread_pools import SEARCH_THREADS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weft.capabilities.search.bm25 import Lexicon, Weights
    from weft.capabilities.search.index_view import Floats, View
    from weft.capabilities.search.model import RankingWeights
    from weft.capabilities.search.neighbour_windows import Windows

# So many are taken by words and so many by meaning; of a question of many parts, fewer for each of them.
_CANDIDATES, _CANDIDATES_OF_PART = 160, 24
# Of those so many, the most promising, have their neighbours looked at as well.
_WITH_NEIGHBOURS = 100
# Of all that is pinned the newest are looked at, whatever was asked: each search pays for them.
_PINNED = 64
# So many, the most promising, are looked at more closely: the vectors of their windows are added up.
_LOOKED_AT_CLOSELY = 256
# How long such a sum is beside the sum of lengths, about: texts that follow each other are like each other.
_USUAL_LENGTH = 0.7
# Of the parts of a long question something answers only some: these count.
_BEST_PARTS = 8
# A row and its window count the same. Words are shared by chance more seldom than meaning is, so they count for more.
_MEANING = 0.5
_WORDS = 0.75
_SPEAKER_BONUS = 0.2
_MIDDLING = 0.5
_MEANT_AROUND = "semantic_around"
# The length of a vector that is none.
_NOTHING = 1e-6


@dataclass(slots=True)
class Scores:
    """Candidates of one view, and what speaks for each: ``signals`` add up to ``total``.

    ``vectors`` are what they mean; None if that is not known. ``beside`` is how many rows stand in the window of each.
    """

    view: View
    columns: Columns
    vectors: Floats | None
    beside: NDArray[np.int64]
    signals: dict[str, Floats]
    total: Floats

    def add(self, name: str, values: NDArray[np.floating]) -> None:
        """Let something more speak for the candidates, or against them."""
        self.signals[name] = values.astype(np.float32)
        self.total = self.total + self.signals[name]


class _Close(NamedTuple):
    """What is looked at more closely: what is known of it, and what speaks for it by each part of a question.

    ``lengths`` is how long the sums of the windows' vectors were taken to be.
    """

    windows: Windows
    columns: Columns
    lengths: Floats
    signals: list[dict[str, Floats]]


@dataclass(slots=True)
class _Part:
    """One part of a question: what its terms weigh, and its meaning if that is known."""

    weights: dict[str, float]
    vector: Floats | None


async def evidence_in(place: int, view: View, lexicon: Lexicon, vectors: Floats | None, parts: Sequence[int]) -> Scores:
    """Return the candidates of a view for some parts of a question, and how words and meaning speak for each."""
    asked = [_Part(lexicon.weights(part), None if vectors is None else vectors[part]) for part in parts]
    limit = max(_CANDIDATES // max(len(asked), 1), _CANDIDATES_OF_PART)
    said = await SEARCH_THREADS.run(_by_words, place, lexicon, asked, limit)
    meant = await asyncio.gather(*(view.nearest(part.vector, limit) for part in asked if part.vector is not None))
    windows = await SEARCH_THREADS.run(_windows, view, said, meant)
    cosines = None if vectors is None else await view.cosines(windows.rows, vectors[list(parts)])
    close = await SEARCH_THREADS.run(_close, place, view, lexicon, windows, asked, cosines)
    near = None if vectors is None else await view.vectors(close.windows.rows, vectors.shape[1])
    return await SEARCH_THREADS.run(_weighed, view, close, near)


def add_speaker(evidence: Scores, speaker: str | None) -> None:
    """Let it count that something was said by the one whose words are meant."""
    if speaker is None:
        return
    codes = [code for code, name in enumerate(evidence.view.speakers()) if name.casefold() == speaker]
    evidence.add("speaker", _SPEAKER_BONUS * np.isin(evidence.columns.speaker, codes))


def add_weighing(evidence: Scores, weighing: RankingWeights, asked_at: int) -> None:
    """Let it count that something is new or important, as much as whoever asks wants it to."""
    columns = evidence.columns
    evidence.add("recency", weighing.recency_weight * recency(columns.timestamp, asked_at, weighing))
    evidence.add("importance", weighing.importance_weight * (columns.importance - _MIDDLING))


def recency(timestamp: NDArray[np.int64], asked_at: int, weighing: RankingWeights) -> NDArray[np.float64]:
    """Return how new something is: 1 at this timestamp, and half as much after each half-life."""
    days = np.maximum(asked_at - timestamp, 0) / DAY_MICROS
    halved: NDArray[np.float64] = 0.5 ** (days / weighing.half_life_days)
    return halved


def _by_words(place: int, lexicon: Lexicon, parts: Sequence[_Part], limit: int) -> list[NearestRows]:
    return [NearestRows(*lexicon.strongest(place, part.weights, limit)) for part in parts]


def _windows(view: View, *found: Sequence[NearestRows]) -> Windows:
    """Return the surroundings of what is worth a close look: what was found, what is next to it, what is pinned."""
    promising: dict[int, float] = {}
    for rows, strength in chain(*found):
        for row, strong in zip(rows.tolist(), strength.tolist(), strict=True):
            promising[row] = max(promising.get(row, 0.0), strong)
    best = sorted(promising, key=lambda row: (-promising[row], row))[:_WITH_NEIGHBOURS]
    beside = with_neighbours(view, np.array(best, np.int64))
    rows = np.concatenate([np.array(list(promising), np.int64), beside, view.pinned(_PINNED)])
    return windows_around(view, np.unique(rows))


def _close(
    place: int, view: View, lexicon: Lexicon, windows: Windows, asked: Sequence[_Part], cosines: Floats | None
) -> _Close:
    """Return what is still to be looked at more closely: what probably has most for it, and what is pinned."""
    lengths = np.maximum(_USUAL_LENGTH * windows.weights.sum(axis=1), 1.0)
    relative = view.lengths(windows.rows) / lexicon.mean_length
    found = []
    for number, part in enumerate(asked):
        signals = _by_said(lexicon.counts(place, windows.rows, list(part.weights)), relative, windows, part.weights)
        if cosines is not None:
            signals |= _by_meant(cosines[number], windows, lengths)
        found.append(signals)
    total = np.sum(list(_best_parts(found).values()), axis=0)
    columns = view.columns(windows.rows[windows.centres])
    best = np.argsort(-total, kind="stable")
    chosen = np.sort(best[(np.arange(len(best)) < _LOOKED_AT_CLOSELY) | columns.pinned[best]])
    return _Close(
        windows.only(chosen),
        Columns._make(column[chosen] for column in columns),
        lengths[chosen],
        [{name: values[chosen] for name, values in signals.items()} for signals in found],
    )


def _weighed(view: View, close: _Close, near: Floats | None) -> Scores:
    """Return what speaks for each, now that the vectors are at hand and lengths are known."""
    windows, signals = close.windows, _best_parts(close.signals)
    if near is not None:
        taken_for = close.lengths / np.maximum(windows.lengths(near), _NOTHING)
        signals[_MEANT_AROUND] *= taken_for.astype(np.float32)
    vectors = None if near is None else near[windows.centres]
    return Scores(view, close.columns, vectors, windows.beside, signals, np.sum(list(signals.values()), axis=0))


def _by_said(counts: Floats, lengths: Floats, windows: Windows, weights: Weights) -> dict[str, Floats]:
    """Return how words speak for each window's centre: ``counts`` and ``lengths`` are those of all rows."""
    # A window is as long as what stands in it; the mean one is as full as these are on average.
    fullness = max(float(windows.weights.sum()) / max(len(windows.weights), 1), 1.0)
    return {
        "lexical": _WORDS * said_of(weights, counts[:, windows.centres], lengths[windows.centres]),
        "lexical_around": _WORDS * said_of(weights, windows.sums(counts), windows.sums(lengths) / fullness),
    }


def _by_meant(cosines: Floats, windows: Windows, lengths: Floats) -> dict[str, Floats]:
    """Return how meaning speaks for each window's centre. The cosine of a sum is the sum of cosines by its length."""
    return {
        "semantic": _MEANING * cosines[windows.centres],
        _MEANT_AROUND: _MEANING * windows.sums(cosines) / lengths,
    }


def _best_parts(found: Sequence[dict[str, Floats]]) -> dict[str, Floats]:
    """Return the mean of what speaks for each candidate over the parts that speak for it most."""
    if len(found) == 1:
        return found[0]
    totals = np.stack([np.sum(list(signals.values()), axis=0) for signals in found])
    best = np.argsort(-totals, axis=0, kind="stable")[:_BEST_PARTS]
    return {
        name: np.take_along_axis(np.stack([signals[name] for signals in found]), best, axis=0).mean(axis=0)
        for name in found[0]
    }
