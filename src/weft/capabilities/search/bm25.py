"""How much of what a question asks a row says in the same words (BM25), on a scale from 0 to 1."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from weft.capabilities.indexing.text_analysis import query_terms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from weft.capabilities.search.index_view import Floats, Postings, Rows, View

    Weights = Mapping[str, float]

# How soon more of the same word says nothing new, and how much a long text is held against it.
_SATURATION, _LENGTH = 1.2, 0.6
# In a huge collection, words that very many rows hold only refine what rarer words have found.
_MOST_POSTINGS = 200_000


class Lexicon:
    """The terms of a question in some views: which rows hold them, and how much each term tells.

    A term tells the more the fewer rows hold it, counted over all these views together.
    """

    def __init__(self, views: Sequence[View], parts: Sequence[str]) -> None:
        self._views = views
        self._asked = [Counter(query_terms(part)) for part in parts]
        known = sorted({term for asked in self._asked for term in asked})
        self._held: list[dict[str, Postings]] = [{term: view.postings(term) for term in known} for view in views]
        size = sum(view.size for view in views)
        # What has no words at all is of no length.
        self.mean_length = sum(view.total_terms for view in views) / max(size, 1) or 1.0
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
        told = [(*self._held[view][term].all(), weight) for term, weight in self._telling_most(view, weights)]
        sums = np.zeros(1 + max((int(rows[-1]) for rows, *_ in told), default=0), np.float32)
        for rows, counts, weight in told:
            sums[rows] += weight * _saturated(counts, self._views[view].lengths(rows) / self.mean_length)
        saying = np.flatnonzero(sums > 0)
        best = _largest(saying, sums[saying], limit)
        return best, sums[best]

    def _telling_most(self, view: int, weights: Weights) -> list[tuple[str, float]]:
        """Return terms that are there, with their weights, the rarest first, until very many rows hold them."""
        sizes = {term: self._held[view][term].size for term in weights}
        there = sorted((term for term in weights if sizes[term]), key=sizes.__getitem__)
        many = np.cumsum([sizes[term] for term in there]) > _MOST_POSTINGS
        kept = there[:1] + [term for term, too_many in zip(there[1:], many[1:], strict=True) if not too_many]
        return [(term, weights[term]) for term in kept]

    def counts(self, view: int, rows: Rows, terms: Sequence[str]) -> Floats:
        """Return how often each of the rows, which are visible, holds each of the terms."""
        found = np.zeros((len(terms), len(rows)), np.float32)
        for place, term in enumerate(terms):
            found[place] = self._held[view][term].counts(rows)
        return found

    def _rarity(self, term: str, size: int) -> float:
        holding = sum(held[term].size for held in self._held)
        return float(np.log1p((size - holding + 0.5) / (holding + 0.5)))


def said_of(weights: Weights, counts: Floats, relative_lengths: Floats) -> Floats:
    """Return how much of what is weighed texts say that hold its terms so often, and are so long beside the mean."""
    said = np.zeros(counts.shape[1:], np.float32)
    for weight, often in zip(weights.values(), counts, strict=True):
        said += weight * _saturated(often, relative_lengths)
    return said


def _largest(rows: Rows, values: Floats, limit: int) -> Rows:
    return rows if len(rows) <= limit else rows[np.argpartition(-values, limit - 1)[:limit]]


def _saturated(counts: Floats, relative_lengths: Floats) -> NDArray[np.float32]:
    held_against = _SATURATION * (1 - _LENGTH + _LENGTH * relative_lengths)
    return (counts * (_SATURATION + 1) / (counts + held_against)).astype(np.float32)
