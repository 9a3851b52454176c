"""Features of units that tell how likely a reader will need a word: general, none of them about a topic."""

from __future__ import annotations

from collections import Counter
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weftline.windows.compaction.reduction.units import LINE, SENTENCE, WORD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.windows.compaction.reduction.units import Form, Units

    Array = np.ndarray[Any, Any]


_SUFFIXES = (
    *("ing", "ed", "ly", "s", "tion", "ment", "ness", "ity", "er", "est"),
    *("ous", "ful", "ive", "able", "al", "ic", "n't", "'s", "ist", "ism"),
)
_MIN_STEM = 3
_LONG = 15
_RANKS = (0, 100, 300, 1000, 3000, 8000)
_LENGTHS = (2, 3, 4, 5, 6)
_FLAGS = (
    *("is_function", "is_filler", "is_negation", "is_condition", "is_number", "is_unit", "has_digit"),
    *("is_capitalised", "ends_clause", "ends_sentence"),
)
_GAPS = (200, 600, 2000)
_NEVER = 10**9


def word_features(units: Units, ranks: Mapping[str, int]) -> dict[str, Array]:
    """Return all features of each unit by name, as the model is trained on them."""
    each = [form_features(form) for form in units.forms]
    columns = {name: np.array([features[name] for features in each])[units.form] for name in each[0]}
    return columns | context_features(units, ranks)


def form_features(form: Form) -> dict[str, float]:
    """Return the features of a word by itself."""
    key = form.key
    columns: dict[str, float] = {flag: getattr(form, flag) for flag in _FLAGS}
    columns["length"] = min(len(key), _LONG) / 10
    columns |= {f"length_{number}": len(key) == number for number in _LENGTHS}
    for suffix in _SUFFIXES:
        columns[f"suffix_{suffix}"] = key.endswith(suffix) and len(key) >= len(suffix) + _MIN_STEM
    columns["has_hyphen"] = "-" in key
    columns["has_symbol"] = "_" in key or "/" in key
    return columns


def context_features(units: Units, ranks: Mapping[str, int]) -> dict[str, Array]:
    """Return the features of each unit in its place; ``ranks``: words by frequency in general, from the commonest."""
    columns: dict[str, Array] = {}
    key = units.keys()
    rank = _ranks(units, key, ranks)
    _add_rank(columns, units, rank)
    _add_frequency(columns, units, key, rank)
    _add_sentence(columns, units, rank)
    _add_neighbours(columns, units, rank)
    gap = gaps(key, units.start)
    columns |= {f"gap_{most}": gap < most for most in _GAPS} | {"is_new": gap >= _NEVER}
    return columns


def gaps(key: Array, start: Array) -> Array:
    """Return the characters since the same word occurred before; a very large number for the first time."""
    order = np.lexsort((start, key))
    same = np.diff(key[order], prepend=-1) == 0
    distance = np.diff(start[order], prepend=0)
    result = np.empty(len(key), np.int64)
    result[order] = np.where(same, distance, _NEVER)
    return result


def _ranks(units: Units, key: Array, ranks: Mapping[str, int]) -> Array:
    """Return the rank of each word by frequency; in another language than English, by that in this text."""
    if units.is_english:
        most = len(ranks)
        of_form = (ranks.get(form.key.partition("'")[0], most) for form in units.forms)
        return np.fromiter(of_form, np.float64, len(units.forms))[units.form]
    frequency = np.bincount(key)
    rank = np.empty(len(frequency))
    rank[np.argsort(-frequency, kind="stable")] = np.arange(len(frequency))
    # A word that occurs once is taken for a rare one.
    return np.where(frequency[key] == 1, float(len(ranks)), rank[key])


def _add_rank(columns: dict[str, Array], units: Units, rank: Array) -> None:
    columns["rank"] = np.log1p(rank) / 10
    for low, high in zip(_RANKS, (*_RANKS[1:], np.inf), strict=True):
        columns[f"rank_{low}"] = (rank >= low) & (rank < high)
    columns["is_name"] = units.flags("is_capitalised") & (np.diff(units.sentence, prepend=-1) == 0)
    columns["cost"] = np.minimum(units.cost, 6) / 3
    columns["in_question"] = units.is_question


def _add_frequency(columns: dict[str, Array], units: Units, key: Array, rank: Array) -> None:
    frequency = np.bincount(key)[key]
    utterances = int(units.utterance[-1]) + 1
    pairs = np.unique(key * utterances + units.utterance)
    containing = np.bincount(pairs // utterances, minlength=int(key.max()) + 1)[key]
    columns["frequency"] = np.log(frequency) / 5
    columns["once"] = frequency == 1
    columns["twice"] = frequency == 2  # noqa: PLR2004
    columns["few"] = (frequency >= 3) & (frequency <= 5)  # noqa: PLR2004
    columns["idf"] = np.log((utterances + 1) / containing) / 8
    columns["relative_frequency"] = (np.log(frequency / len(key)) + np.log(rank + 10)) / 5


def _add_sentence(columns: dict[str, Array], units: Units, rank: Array) -> None:
    sentence = units.sentence
    content = (~units.is_light()).astype(np.float64)
    number = np.bincount(sentence, content)
    columns["sentence_words"] = np.log1p(number)[sentence] / 3
    columns |= {f"sentence_{words}": (number == words)[sentence] for words in (2, 3)}
    columns["sentence_1"] = (number <= 1)[sentence]
    columns["sentence_density"] = (number / np.maximum(np.bincount(sentence), 1))[sentence]
    rarity = np.bincount(sentence, content * np.minimum(np.log1p(rank), 9)) / np.maximum(number, 1)
    columns["sentence_rarity"] = rarity[sentence] / 10
    details = np.bincount(sentence, units.flags("is_number") | columns["is_name"])
    columns["sentence_details"] = np.minimum(details, 3)[sentence] / 3


def _add_neighbours(columns: dict[str, Array], units: Units, rank: Array) -> None:
    is_light, is_number, is_capitalised = units.is_light(), units.flags("is_number"), units.flags("is_capitalised")
    for name, distance in (("next", 1), ("previous", -1)):
        at = np.roll(np.arange(len(units.form)), -distance)
        same = units.sentence[at] == units.sentence
        columns[f"{name}_is_light"] = is_light[at] & same
        if distance > 0:
            columns[f"{name}_is_none"] = ~same
        columns[f"{name}_is_number"] = is_number[at] & same
        columns[f"{name}_rank"] = np.where(same, np.log1p(rank[at]), 0) / 10
        columns[f"{name}_is_capitalised"] = is_capitalised[at] & same


# The trained model of word values: logistic regression, and the commonest English words in order.

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


# What each unit is worth to a reader who has to answer questions about the conversation.

# The model's probabilities are less certain for other kinds of talk than those it was trained on: they are tempered.
_WORD_EXPONENT = 0.5
# A word in a sentence of much value is worth more: half of a fact is no fact.
_SENTENCE_EXPONENT = 0.25
# A long word says more than a short one, by less than its tokens.
_COST_EXPONENT = 0.4
# Characters of the reduced text within which a word need not be repeated, and what it is worth there.
_RECENT = 400
_REPEATED = 0.15
_LEAST_SHARE = 0.02
_HESITATION = 0.01
# Where lines of code and data rank among the words, and details among them.
_LINE_QUANTILE = 0.7
_DETAIL_QUANTILE = 0.9
_LEAST_PROBABILITY = 1e-4


def unit_values(units: Units, share: float, model: WordModel) -> Array:
    """Return the value of each unit. ``share``: the part of the text that will be kept."""
    kind = units.kinds()
    values = _word_values(units, model)
    is_word = kind == WORD
    density = values[is_word] / units.cost[is_word] if is_word.any() else np.ones(1)
    is_detail = is_word & (units.flags("has_digit") | units.flags("is_number"))
    least = float(np.quantile(density, _DETAIL_QUANTILE)) * units.cost[is_detail]
    values[is_detail] = np.maximum(values[is_detail], least)
    line = float(np.quantile(density, _LINE_QUANTILE))
    values[kind == LINE] = line * units.cost[kind == LINE]
    is_sentence = kind == SENTENCE
    if is_sentence.any():
        values[is_sentence] = line * units.cost[is_sentence] * _rarities(units)[is_sentence]
    values[_was_said(units, _RECENT / max(share, _LEAST_SHARE))] *= _REPEATED
    values[units.flags("is_hesitation")] *= _HESITATION
    return values


def _word_values(units: Units, model: WordModel) -> Array:
    probability = model.probabilities(units)
    content = (~units.is_light()).astype(np.float64)
    mean = np.bincount(units.sentence, content * probability) / np.maximum(np.bincount(units.sentence, content), 1)
    sentence = np.maximum(mean, _LEAST_PROBABILITY)[units.sentence]
    return probability**_WORD_EXPONENT * sentence**_SENTENCE_EXPONENT * units.cost**_COST_EXPONENT


def _rarities(units: Units) -> Array:
    """Return how rare the pairs of characters of each sentence of an unspaced script are, about 1."""
    pairs = [
        {"".join(pair) for pair in pairwise(form.core)} if form.kind == SENTENCE else set() for form in units.forms
    ]
    containing = Counter(pair for found in pairs for pair in found)
    rarity = [sum(1 / containing[pair] for pair in found) / max(len(found), 1) for found in pairs]
    return 0.5 + np.asarray(rarity)[units.form]


def _was_said(units: Units, distance: float) -> Array:
    """Return which words were said, and counted as new, less than ``distance`` characters before."""
    last: dict[int, int] = {}
    said = np.zeros(len(units.form), bool)
    is_exempt = units.flags("is_negation") | units.flags("is_condition") | units.flags("is_number")
    keys, starts = units.keys().tolist(), units.start.tolist()
    for at, (key, start, exempt) in enumerate(zip(keys, starts, is_exempt.tolist(), strict=True)):
        before = last.get(key)
        if before is not None and start - before < distance and not exempt:
            said[at] = True
        else:
            last[key] = start
    return said
