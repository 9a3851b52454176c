"""From evidence to figures that mean the same whatever was searched: relevance, and confidence in a whole answer.

All constants were fitted once, on all evaluation sets together; ``make evals ARGS=calibration`` tells if they hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from weft.capabilities.search.index_view import Floats

# Evidence, and the relevance that it stands for; straight lines between. 0.7: of texts that answer a question and are
# among its ten best, not one in a hundred has less. 0.9: of as many texts that answer as come up where nothing answers,
# nine of ten with so much are those that answer.
_EVIDENCE = (0.0, 0.2, 0.7, 1.0, 1.6)
_RELEVANCE = (0.0, 0.7, 0.9, 0.97, 1.0)
# Confidence is how much of what is looked for is probably among the ten best, if one question in five has no answer.
# It rests on how far the best stands out, and on what speaks for it beside its words: words alone are shared by chance.
_LOOKED_AT = 10
_START, _STANDS_OUT, _BESIDE_WORDS = -3.24, 5.81, 5.65
# Where less than half is probably there, more is shown than was asked for.
SURE = 0.5


def relevance(evidence: Floats) -> Floats:
    """Return how relevant something is, from 0 to 1."""
    return np.interp(evidence, _EVIDENCE, _RELEVANCE).astype(np.float32)


def confidence(best: Floats, beside_words: float) -> float:
    """Return how likely what is looked for is among the best.

    ``best`` is their evidence, the best first; ``beside_words`` what speaks for the first of them beside its words.
    """
    if not len(best):
        return 0.0
    others = float(best[1:_LOOKED_AT].sum()) / (_LOOKED_AT - 1)
    leaning = _START + _STANDS_OUT * (float(best[0]) - others) + _BESIDE_WORDS * beside_words
    return float(1 / (1 + np.exp(-leaning)))
