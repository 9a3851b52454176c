"""Penalise near-duplicates of a better result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.capabilities.search.index_view import Floats
    from weft.capabilities.search.scoring import Scores

# Only duplicates near the top matter.
_LOOKED_AT = 100
# From this cosine on two documents say the same: copies of a text, or of a tool under the same name. What is said again
# in the same document or session may be an answer as well: there it stands beside other things.
_SAME = 0.96
_SAYS_THE_SAME = -0.3
# The parts of a short document stand in each other's windows, so what speaks for one speaks for all of them.
_IS_OF_THE_SAME = -0.15
_FEW_PARTS = 5


def penalise_duplicates(evidence: Scores) -> None:
    """Penalise candidates that duplicate a better one or belong to the same short document."""
    order = np.argsort(-evidence.total, kind="stable")
    against = np.zeros(len(order), np.float32)
    if not evidence.view.is_conversation:
        in_short = evidence.beside[order] <= _FEW_PARTS
        against[order] += _IS_OF_THE_SAME * (in_short & _seen_before(evidence.columns.line[order]))
    if evidence.vectors is not None:
        best = order[:_LOOKED_AT]
        against[best] += _SAYS_THE_SAME * _said_before(evidence.vectors[best], evidence.columns.line[best])
    evidence.add("repetition", against)


def _seen_before(lines: NDArray[np.int64]) -> NDArray[np.bool_]:
    before = np.ones(len(lines), np.bool_)
    before[np.unique(lines, return_index=True)[1]] = False
    return before


def _said_before(vectors: Floats, lines: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell for each whether an earlier one of another item, not itself a duplicate, has the same content."""
    alike = np.tril((vectors @ vectors.T >= _SAME) & (lines[:, None] != lines), -1)
    before = np.zeros(len(vectors), np.bool_)
    for place in np.flatnonzero(alike.any(axis=1)):
        before[place] = bool((alike[place] & ~before).any())
    return before
