"""How much of what a question asks a row says in the same words (BM25), on a scale from 0 to 1."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from weft.capabilities.retrieval.words import asked_terms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from weft.capabilities.retrieval.view import Floats, Postings, Rows, View

    Weights = Mapping[str, float]

# How soon more of the same word says nothing new, and how much a long text is held against it.
_SATURATION, _LENGTH = 1.2, 0.6
# In a huge shelf, words that very many rows hold only refine what rarer words have found.
_MOST_POSTINGS = 1_000_000


class Lexicon:
    """The terms of a question in some views: which rows hold them, and how much each term tells.

    A term tells the more the fewer rows hold it, counted over all these views together.
    """

    def __init__(self, views: Sequence[View], parts: Sequence[str]) -> None:
        self._views = views
        self._asked = [Counter(asked_terms(part)) for part in parts]
        known = sorted({term for asked in self._asked for term in asked})
        self._held: list[dict[str, Postings]] = [{term: view.postings(term) for term in known} for view in views]
        size = sum(view.size for view in views)
        self.mean_length = sum(view.total_terms for view in views) / size if size else 1.0
        self._tells = {term: self._rarity(term, size) for term in known}

    def tells(self, part: int) -> float:
        """Return how much the terms of a part of the question tell together."""
        return sum(often * self._tells[term] for term, often in self._asked[part].items())

    def weights(self, part: int) -> dict[str, float]:
        """Return what each term of a part of the question weighs, so that a text that says all of it has 1."""
        whole = self.tells(part) * (_SATURATION + 1)
        return {term: often * self._tells[term] / whole for term, often in self._asked[part].items()}

    def strongest(self, view: int, weights: Weights, limit: int) -> tuple[Rows, Floats]:
        """Return the rows of a view that say most of what is weighed, and how much they say, in no order."""
        held = self._held[view]
        said = [held[term] for term in sorted(weights, key=lambda term: len(held[term].rows))]
        weight_of = {id(held[term]): weight for term, weight in weights.items()}
        sums = np.zeros(1 + max((int(each.rows[-1]) for each in said if len(each.rows)), default=0), np.float32)
        looked_at = 0
        for each in said:
            looked_at += len(each.rows)
            if len(each.rows) and (looked_at <= _MOST_POSTINGS or looked_at == len(each.rows)):
                lengths = self._views[view].lengths(each.rows) / self.mean_length
                sums[each.rows] += weight_of[id(each)] * _saturated(each.counts, lengths)
        rows = np.flatnonzero(sums)
        if len(rows) > limit:
            rows = rows[np.argpartition(-sums[rows], limit - 1)[:limit]]
        return rows, sums[rows]

    def counts(self, view: int, rows: Rows, terms: Sequence[str]) -> Floats:
        """Return how often each of the rows, which are in order, holds each of the terms."""
        found = np.zeros((len(terms), len(rows)), np.float32)
        for place, term in enumerate(terms):
            held = self._held[view][term]
            if len(held.rows):
                at = np.searchsorted(held.rows, rows).clip(max=len(held.rows) - 1)
                found[place] = np.where(held.rows[at] == rows, held.counts[at], 0.0)
        return found

    def _rarity(self, term: str, size: int) -> float:
        holding = sum(len(held[term].rows) for held in self._held)
        return float(np.log1p((size - holding + 0.5) / (holding + 0.5)))


def said_of(weights: Weights, counts: Floats, relative_lengths: Floats) -> Floats:
    """Return how much of what is weighed texts say that hold its terms so often, and are so long beside the mean."""
    said = np.zeros(counts.shape[1:], np.float32)
    for weight, often in zip(weights.values(), counts, strict=True):
        said += weight * _saturated(often, relative_lengths)
    return said


def _saturated(counts: Floats, relative_lengths: Floats) -> NDArray[np.float32]:
    held_against = _SATURATION * (1 - _LENGTH + _LENGTH * relative_lengths)
    return (counts * (_SATURATION + 1) / (counts + held_against)).astype(np.float32)
