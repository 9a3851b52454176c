"""How well chunks match the entities that a query names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weftline.indexing.entities import query_entity_terms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.search.index_view import Floats, Rows, View


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
