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
_MOST_POSTINGS = 200_000


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
        said = self._telling_most(view, weights)
        sums = np.zeros(1 + max((int(held.rows[-1]) for held, _ in said), default=0), np.float32)
        for held, weight in said:
            lengths = self._views[view].lengths(held.rows) / self.mean_length
            sums[held.rows] += weight * _saturated(held.counts, lengths)
        rows = np.concatenate([np.empty(0, np.int64), *(held.rows for held, _ in said)])
        # A row stands in there once for each term that it holds.
        rows = np.unique(_largest(rows, sums[rows], limit * max(len(said), 1)))
        rows = _largest(rows, sums[rows], limit)
        return rows, sums[rows]

    def _telling_most(self, view: int, weights: Weights) -> list[tuple[Postings, float]]:
        """Return which rows hold each term, the rarest term first, until that are many rows."""
        held = sorted(
            ((self._held[view][term], weight) for term, weight in weights.items()), key=lambda each: len(each[0].rows)
        )
        there = [each for each in held if len(each[0].rows)]
        many = np.cumsum([len(postings.rows) for postings, _ in there]) > _MOST_POSTINGS
        return there[:1] + [each for each, too_many in zip(there[1:], many[1:], strict=True) if not too_many]

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


def _largest(rows: Rows, values: Floats, limit: int) -> Rows:
    return rows if len(rows) <= limit else rows[np.argpartition(-values, limit - 1)[:limit]]


def _saturated(counts: Floats, relative_lengths: Floats) -> NDArray[np.float32]:
    held_against = _SATURATION * (1 - _LENGTH + _LENGTH * relative_lengths)
    return (counts * (_SATURATION + 1) / (counts + held_against)).astype(np.float32)
