"""Closed word classes: function words, fillers, words that change the truth of a statement, numbers and units.

English in full, of other languages the commonest; a language's lists apply only to texts in it, because "war" and "die"
are content in English. For languages without a list, values rest on length and repetition.
"""

from __future__ import annotations

from typing import NamedTuple

from weftline.kernel.data_files import WordFile


class WordLists(NamedTuple):
    """The closed classes of one language, in lower case."""

    function: frozenset[str]
    fillers: frozenset[str]
    negations: frozenset[str]
    conditions: frozenset[str]
    numbers: frozenset[str]
    units: frozenset[str]


_LISTS = WordFile("windows/compaction/reduction/word_lists.txt")
_UNITS = _LISTS()["units"]


def _lists_of(language: str) -> WordLists:
    function, fillers, negations, conditions, numbers, units = (
        _LISTS()[f"{language} {field}"] for field in WordLists._fields
    )
    return WordLists(function, fillers, negations, conditions, numbers, units | _UNITS)


ENGLISH = _lists_of("english")
LANGUAGES = (ENGLISH, *map(_lists_of, ("german", "french", "spanish")))
HESITATIONS = _LISTS()["hesitations"]
_NONE: frozenset[str] = frozenset()
NO_LANGUAGE = WordLists(_NONE, _NONE, _NONE, _NONE, _NONE, _UNITS)
