"""What each unit is worth to a reader who has to answer questions about the conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.capabilities.compaction.reduction.units import LINE, SENTENCE

if TYPE_CHECKING:
    from weft.capabilities.compaction.reduction.units import Units

    Array = np.ndarray[Any, Any]

# Characters of the reduced text within which a word need not be repeated.
_RECENT = 400
_REPEATED = 0.15


def unit_values(units: Units, share: float) -> Array:
    """Return the value of each unit. ``share``: the part of the text that will be kept."""
    worth = np.ones(len(units.form))
    kind = np.fromiter((form.kind for form in units.forms), np.int64, len(units.forms))[units.form]
    worth[units.flags("is_capitalised")] = 1.3
    worth[units.flags("is_function")] = 0.08
    worth[units.flags("is_filler")] = 0.03
    worth[units.flags("is_condition")] = 0.2
    worth[units.flags("is_negation")] = 0.4
    worth[units.flags("is_number") | units.flags("has_digit")] = 2.0
    worth[units.is_question] *= 0.6
    worth[kind == SENTENCE] = 0.6 * units.cost[kind == SENTENCE]
    worth[kind == LINE] = 0.3 * units.cost[kind == LINE]
    worth *= np.where(_was_said(units, _RECENT / max(share, 0.02)), _REPEATED, 1.0)
    # Later statements replace earlier ones, and distinct values let the target be met closely.
    worth *= 1 + 0.02 * np.arange(len(worth)) / max(len(worth), 1)
    return worth


def _was_said(units: Units, distance: float) -> Array:
    """Return which words were said, and valued as new, less than ``distance`` characters before."""
    keys = {form.key: number for number, form in enumerate(units.forms)}
    key_of_form = np.fromiter((keys[form.key] for form in units.forms), np.int64, len(units.forms))
    last: dict[int, int] = {}
    said = np.zeros(len(units.form), bool)
    is_exempt = units.flags("is_negation") | units.flags("is_condition") | units.flags("is_number")
    for at, (key, start, exempt) in enumerate(
        zip(key_of_form[units.form].tolist(), units.start.tolist(), is_exempt.tolist(), strict=True)
    ):
        before = last.get(key)
        if before is not None and start - before < distance and not exempt:
            said[at] = True
        else:
            last[key] = start
    return said
