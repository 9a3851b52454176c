"""What speaks for each candidate: by words and by meaning, of itself and of what stands around it.

Everything is on one fixed scale. What is said by a row and by its window counts half each, so that neither decides
alone: what says what was asked, and stands where it is talked about, has both.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from weft.capabilities.retrieval.lexical import said_of
from weft.capabilities.retrieval.view import Near
from weft.capabilities.retrieval.windows import Windows, with_neighbours
from weft.kernel.clock import DAY_MICROS
from weft.kernel.threads import SEARCHING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weft.capabilities.retrieval.lexical import Lexicon
    from weft.capabilities.retrieval.model import Weighing
    from weft.capabilities.retrieval.view import Columns, Floats, View

# So many are taken by words and so many by meaning; of a question of many parts, fewer for each of them.
_CANDIDATES, _CANDIDATES_OF_PART = 160, 24
# Of those so many, the most promising, have their neighbours looked at as well.
_WITH_NEIGHBOURS = 100
# Of all that is pinned the newest are looked at, whatever was asked: each search pays for them.
_PINNED = 64
# Of the parts of a long question something answers only some: these count.
_BEST_PARTS = 8
# A row and its window count the same. Words are shared by chance more seldom than meaning is, so they count for more.
_MEANING = 0.5
_WORDS = 0.75
_SPEAKER_BONUS = 0.2
_MIDDLING = 0.5
# The length of a vector that is none.
_NOTHING = 1e-6


@dataclass(slots=True)
class Evidence:
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


@dataclass(slots=True)
class _Part:
    """One part of a question: what its terms weigh, and its meaning if that is known."""

    weights: dict[str, float]
    vector: Floats | None


async def evidence_in(
    place: int, view: View, lexicon: Lexicon, vectors: Floats | None, parts: Sequence[int]
) -> Evidence:
    """Return the candidates of a view for some parts of a question, and how words and meaning speak for each."""
    asked = [_Part(lexicon.weights(part), None if vectors is None else vectors[part]) for part in parts]
    limit = max(_CANDIDATES // max(len(asked), 1), _CANDIDATES_OF_PART)
    said = await SEARCHING.run(_by_words, place, lexicon, asked, limit)
    meant = await asyncio.gather(*(view.nearest(part.vector, limit) for part in asked if part.vector is not None))
    windows = await SEARCHING.run(_windows, view, said, meant)
    near = await view.vectors(windows.rows) if vectors is not None else None
    return await SEARCHING.run(_weighed, place, view, lexicon, windows, asked, near)


def add_speaker(evidence: Evidence, speaker: str | None) -> None:
    """Let it count that something was said by the one whose words are meant."""
    if speaker is None:
        return
    codes = [code for code, name in enumerate(evidence.view.speakers()) if name.casefold() == speaker]
    evidence.add("speaker", _SPEAKER_BONUS * np.isin(evidence.columns.speaker, codes))


def add_weighing(evidence: Evidence, weighing: Weighing, asked_at: int) -> None:
    """Let it count that something is new or important, as much as whoever asks wants it to."""
    columns = evidence.columns
    evidence.add("recency", weighing.recency_weight * recency(columns.moment, asked_at, weighing))
    evidence.add("importance", weighing.importance_weight * (columns.importance - _MIDDLING))


def recency(moment: NDArray[np.int64], asked_at: int, weighing: Weighing) -> NDArray[np.float64]:
    """Return how new something is: 1 at this moment, and half as much after each half-life."""
    days = np.maximum(asked_at - moment, 0) / DAY_MICROS
    halved: NDArray[np.float64] = 0.5 ** (days / weighing.half_life_days)
    return halved


def _by_words(place: int, lexicon: Lexicon, parts: Sequence[_Part], limit: int) -> list[Near]:
    return [Near(*lexicon.strongest(place, part.weights, limit)) for part in parts]


def _windows(view: View, *found: Sequence[Near]) -> Windows:
    """Return the surroundings of what is worth a close look: what was found, what is next to it, what is pinned."""
    promising: dict[int, float] = {}
    for rows, strength in chain(*found):
        for row, strong in zip(rows.tolist(), strength.tolist(), strict=True):
            promising[row] = max(promising.get(row, 0.0), strong)
    best = sorted(promising, key=lambda row: (-promising[row], row))[:_WITH_NEIGHBOURS]
    beside = with_neighbours(view, np.array(best, np.int64))
    rows = np.concatenate([np.array(list(promising), np.int64), beside, view.pinned(_PINNED)])
    return Windows(view, np.unique(rows))


def _weighed(
    place: int, view: View, lexicon: Lexicon, windows: Windows, asked: Sequence[_Part], near: Floats | None
) -> Evidence:
    summed = None if near is None else windows.vectors(near)
    found = [_signals(place, view, lexicon, windows, part, near, summed) for part in asked]
    signals = _best_parts(found)
    centres = windows.rows[windows.centres]
    vectors = None if near is None else near[windows.centres]
    total = np.sum(list(signals.values()), axis=0)
    return Evidence(view, view.columns(centres), vectors, np.count_nonzero(windows.weights, axis=1), signals, total)


def _signals(
    place: int,
    view: View,
    lexicon: Lexicon,
    windows: Windows,
    part: _Part,
    near: Floats | None,
    summed: Floats | None,
) -> dict[str, Floats]:
    """Return what speaks for each window's centre, by one part of a question."""
    counts = lexicon.counts(place, windows.rows, list(part.weights))
    lengths = view.lengths(windows.rows) / lexicon.mean_length
    # A window is as long as what stands in it; the mean one is as full as these are on average.
    window_lengths = windows.sums(lengths) / max(float(windows.weights.sum()) / max(len(windows.weights), 1), 1.0)
    signals = {
        "lexical": _WORDS * said_of(part.weights, counts[:, windows.centres], lengths[windows.centres]),
        "lexical_around": _WORDS * said_of(part.weights, windows.sums(counts), window_lengths),
    }
    if part.vector is not None and near is not None and summed is not None:
        signals["semantic"] = _MEANING * (near[windows.centres] @ part.vector)
        signals["semantic_around"] = _MEANING * (summed @ part.vector) / np.maximum(_lengths(summed), _NOTHING)
    return signals


def _lengths(vectors: Floats) -> Floats:
    lengths: Floats = np.linalg.norm(vectors, axis=1)
    return lengths


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
