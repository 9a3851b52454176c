"""What each unit is worth to a reader who has to answer questions about the conversation."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from weftline.windows.compaction.reduction.units import LINE, SENTENCE, WORD

if TYPE_CHECKING:
    from weftline.windows.compaction.reduction.units import Units
    from weftline.windows.compaction.reduction.word_model import WordModel

    Array = np.ndarray[Any, Any]

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
