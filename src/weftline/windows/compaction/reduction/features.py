"""Features of units that tell how likely a reader will need a word: general, none of them about a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

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
