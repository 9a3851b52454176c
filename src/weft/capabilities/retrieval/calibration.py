"""From evidence to relevance: what a score of 0.7 means, whatever was searched.

The knots were fitted once, on all evaluation sets together (``make evals ARGS=calibration`` shows how well they hold):
nine of ten texts that answer a question have at least 0.7, and of texts that have nothing to do with it hardly one has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from weft.capabilities.retrieval.view import Floats

# Evidence, and the relevance that it stands for; straight lines between.
_EVIDENCE = (0.0, 0.15, 0.35, 0.6, 1.0, 1.6)
_RELEVANCE = (0.0, 0.2, 0.7, 0.85, 0.95, 1.0)
# Below this confidence more is shown than was asked for.
SURE = 0.5
_LIKELY_FROM, _LIKELY_SCALE = 0.45, 0.12


def relevance(evidence: Floats) -> Floats:
    """Return how relevant something is, from 0 to 1."""
    return np.interp(evidence, _EVIDENCE, _RELEVANCE).astype(np.float32)


def confidence(best: Floats) -> float:
    """Return how likely what was asked for is among what was found, by the evidence of the best, the best first."""
    if not len(best):
        return 0.0
    return float(1 / (1 + np.exp(-(float(best[0]) - _LIKELY_FROM) / _LIKELY_SCALE)))
