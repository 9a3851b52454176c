"""Likelihood that an answer used an item, by what their texts have in common.

The constants were fitted on the development half of the evaluation sets, on answers whose evidence is known: ``make
evals ARGS=efficiency_fit`` prints them, and ``make evals ARGS=efficiency`` reports how well they agree with the
evidence of the other half.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from weftline.prompts.efficiency.features import ItemFeatures

_MAX_RUN = 8


class UseModel(NamedTuple):
    """Log-odds of use: an intercept and a coefficient for each feature. ``likeness`` is the cosine of vectors."""

    intercept: float
    said: float
    lead: float
    density: float
    asked: float
    run: float
    size: float
    likeness: float = 0.0


# By words alone, and by words and vectors.
WORDS = UseModel(-5.61, 1.15, 5.84, 0.0, 2.21, 0.0, -0.32)
VECTORS = UseModel(-8.76, 1.53, 6.5, 0.07, 4.29, 0.19, -0.27, 3.26)
# From this likelihood on an item counts as used: the best mean F1 of the sets.
USED_LIKELIHOOD = 0.4
# Between these, words alone do not decide. Chosen by hand.
DOUBT = (0.05, 0.8)
# Without an answer: log-odds of use of a passage by its score of retrieval (intercept, slope), and the used share of
# tokens without one. Chosen by hand: the sets have no scores of retrieval.
SCORES = (-4.0, 5.0)
UNRANKED_USE = 0.1
# Terms in a row that make a quotation.
QUOTED_TERMS = 5
# Of a shorter text, all of them, but at least these.
MIN_QUOTED_TERMS = 3


def is_quotation(features: ItemFeatures, terms: int = QUOTED_TERMS) -> bool:
    """Tell whether an answer quotes a text: a long run of its terms, or the whole of a short text."""
    return features.run >= terms or MIN_QUOTED_TERMS <= features.length == features.run


def figures(features: ItemFeatures, likeness: float = 0.0) -> tuple[float, ...]:
    """Return the features as the model weighs them."""
    run = min(features.run, _MAX_RUN)
    return features.said, features.lead, features.density, features.asked, run, features.size, likeness


def by_words(features: ItemFeatures, model: UseModel = WORDS) -> float:
    return _likelihood(model, figures(features))


def by_likeness(features: ItemFeatures, likeness: float, model: UseModel = VECTORS) -> float:
    return _likelihood(model, figures(features, likeness))


def _likelihood(model: UseModel, found: tuple[float, ...]) -> float:
    log_odds = model.intercept + sum(weight * figure for weight, figure in zip(model[1:], found, strict=True))
    return 1 / (1 + exp(-log_odds))
