"""BM25 lexical scores, normalised from 0 to 1."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from weftline.indexing.text_analysis import query_terms
from weftline.search.top_k import largest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from weftline.search.index_view import Floats, Postings, Rows, View

    Weights = Mapping[str, float]

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
