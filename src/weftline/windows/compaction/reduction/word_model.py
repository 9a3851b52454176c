"""The trained model of word values: logistic regression, and the commonest English words in order."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weftline.windows.compaction.reduction.features import context_features, form_features

if TYPE_CHECKING:
    from weftline.windows.compaction.reduction.units import Form, Units

    Array = np.ndarray[Any, Any]

_FILE = "word_model.npz"
# Scores that are kept in memory, as the same words recur: about 20 MB.
_MAX_SCORES = 50_000


class WordModel(NamedTuple):
    """Weights of the features by name and of common words by themselves; ``ranks``: English words by frequency.

    ``scores``: those of words that occurred before.
    """

    weights: dict[str, float]
    words: dict[str, float]
    ranks: dict[str, int]
    bias: float
    scores: dict[Form, float]

    def probabilities(self, units: Units) -> Array:
        """Return for each unit how likely it is part of something that a reader will be asked for."""
        of_form = np.fromiter((self._score(form) for form in units.forms), np.float64, len(units.forms))
        score = self.bias + of_form[units.form]
        for name, column in context_features(units, self.ranks).items():
            score += self.weights[name] * column
        return 1 / (1 + np.exp(-score))

    def _score(self, form: Form) -> float:
        """Return the part of the score that does not depend on the place of a word."""
        score = self.scores.get(form)
        if score is None:
            features = form_features(form)
            score = sum(self.weights[name] * value for name, value in features.items()) + self.words.get(form.key, 0.0)
            if len(self.scores) < _MAX_SCORES:
                self.scores[form] = score
        return score


@cache
def load_model() -> WordModel:
    """Read the model that is part of the package."""
    with resources.files(__package__).joinpath(_FILE).open("rb") as file, np.load(file) as stored:
        return WordModel(
            dict(zip(stored["features"].tolist(), stored["weights"].tolist(), strict=True)),
            dict(zip(stored["words"].tolist(), stored["word_weights"].tolist(), strict=True)),
            {word: rank for rank, word in enumerate(stored["ranked"].tolist())},
            float(stored["bias"]),
            {},
        )
