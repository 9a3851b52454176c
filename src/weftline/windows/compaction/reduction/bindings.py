"""Units that must be kept together, so that a shortened sentence does not claim something else.

A negation or condition stays with what it applies to; the words of a number stay together, with their unit; a number
range keeps its connector; a label such as "Daycare:" stays with what is said under it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weftline.windows.compaction.reduction.units import CONNECTORS

if TYPE_CHECKING:
    from weftline.windows.compaction.reduction.units import Units

    Array = np.ndarray[Any, Any]

# How many words after a negation it may apply to, within its clause.
_SCOPE = 5
# Content words that a kept negation keeps: verb and object.
_TARGETS = 2
_RANGE_WORDS = frozenset(("to", "by", "of", "or", "bis", "\xe0", "a"))


# "At least" and "more than" are limits, each with its first word.
_LIMITERS = frozenset(("at", "more", "less", "fewer", "up"))
_LIMITS = frozenset(("least", "most", "than", "to"))


class Bindings(NamedTuple):
    """Which units are bound, as indexes.

    ``scopes``: for each distance, (negation, word in its scope); ``targets``: (negation, a word it negates);
    ``pairs``: neighbours of which either needs the other; ``ranges``: connectors between two numbers; ``strays``: other
    connectors; ``labels``: (word, the label of its sentence).
    """

    scopes: list[tuple[Array, Array]]
    targets: tuple[Array, Array]
    pairs: tuple[Array, Array]
    ranges: Array
    strays: Array
    labels: tuple[Array, Array]

    def apply(self, kept: Array) -> Array:
        """Return the kept units with those that they need, and without stray connectors."""
        kept = kept.copy()
        word, label = self.labels
        kept[label[kept[word]]] = True
        for _ in range(2):
            for negation, word in self.scopes:
                kept[negation[kept[word]]] = True
            negation, target = self.targets
            kept[target[kept[negation]]] = True
            left, right = self.pairs
            for _ in range(3):
                either = kept[left] | kept[right]
                kept[left[either]] = True
                kept[right[either]] = True
        kept[self.strays] = False
        kept[self.ranges] = kept[self.ranges - 1] & kept[self.ranges + 1]
        return kept


def find_bindings(units: Units) -> Bindings:
    """Find negations with their scopes, numbers with their units, and ranges."""
    size = len(units.form)
    is_light = units.flags("is_function") | units.flags("is_filler")
    is_number, is_unit = units.flags("is_number"), units.flags("is_unit")
    binds = np.flatnonzero(units.flags("is_negation") | units.flags("is_condition"))
    scopes = []
    found = np.zeros(len(binds), np.int64)
    targets = []
    for distance in range(1, _SCOPE + 1):
        at = binds + distance
        is_near = at < size
        is_near[is_near] &= units.clause[at[is_near]] == units.clause[binds[is_near]]
        content = is_near.copy()
        content[is_near] &= ~is_light[at[is_near]]
        scopes.append((binds[content], at[content]))
        is_target = content & (found < _TARGETS)
        targets.append((binds[is_target], at[is_target]))
        found += content
    left = np.arange(size - 1) if size else np.arange(0)
    together = units.sentence[left] == units.sentence[left + 1]
    joined = units.clause[left] == units.clause[left + 1]
    is_pair = is_number[left] & (is_number[left + 1] | is_unit[left + 1])
    is_pair |= units.among(_LIMITERS)[left] & units.among(_LIMITS)[left + 1]
    before = left[joined & is_pair]
    return Bindings(
        scopes,
        (np.concatenate([pair[0] for pair in targets]), np.concatenate([pair[1] for pair in targets])),
        (before, before + 1),
        *_ranges(units, is_number, is_unit, together),
        _labels(units, is_light),
    )


def _ranges(units: Units, is_number: Array, is_unit: Array, together: Array) -> tuple[Array, Array]:
    """Return the connectors between two numbers, and the others."""
    is_connector, is_word = units.among(CONNECTORS), units.among(_RANGE_WORDS)
    size = len(units.form)
    middle = np.arange(1, max(size - 1, 1))[: max(size - 2, 0)]
    between = (is_number | is_unit)[middle - 1] & is_number[middle + 1] & together[middle - 1] & together[middle]
    ranges = middle[between & (is_connector | is_word)[middle]]
    strays = np.flatnonzero(is_connector)
    return ranges, np.setdiff1d(strays, ranges)


def _labels(units: Units, is_light: Array) -> tuple[Array, Array]:
    """Return the content words of sentences that begin with a label of one word, and the label of each."""
    sentence = units.sentence
    begins = np.diff(sentence, prepend=-1) != 0
    found = np.flatnonzero(begins & units.flags("is_label") & ~is_light)
    label_of = np.full(int(sentence[-1]) + 1 if len(sentence) else 0, -1)
    label_of[sentence[found]] = found
    label = label_of[sentence]
    words = np.flatnonzero((label >= 0) & ~is_light)
    return words, label[words]
