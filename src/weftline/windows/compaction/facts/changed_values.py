"""Statements that give another number, date or day for what an earlier one was about.

Both must give one value of the same sort, and differ in it. What they are about is compared word by word: where one has
a noun and the other another noun, they are about two things. What is asked, supposed or quoted changes nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from weftline.indexing.text_analysis import FILLER_WORDS, stem, strip_accents
from weftline.windows.compaction.facts.normal_form import normal_line
from weftline.windows.compaction.facts.subjects import NEGATIVE, words_listed
from weftline.windows.compaction.facts.values import WEEKDAYS, WORDS_OF_NUMBERS, normal_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Numbers from two on in German, French and Spanish; English ones have a normal form.
_NUMBER_WORDS = (
    "zwei deux dos|drei trois tres|vier quatre cuatro|fünf cinq cinco|sechs seis|sieben sept siete|acht huit ocho|"
    "neun neuf nueve|zehn dix diez|elf onze once|zwölf douze doce"
)
_NUMBERS = {
    word: str(number) for number, words in enumerate(_NUMBER_WORDS.split("|"), start=2) for word in words.split()
}
_VALUE_WORDS = {*_NUMBERS, *WORDS_OF_NUMBERS, *WEEKDAYS}
_DIGIT, _LETTERS = re.compile(r"\d"), re.compile(r"[^\W\d_]+")
_UNITS = dict.fromkeys(words_listed("millisecond second minute hour day week month year"), "time")
_UNITS |= dict.fromkeys(words_listed("dollar euro pound franc yen"), "money")
_UNITS |= {
    unit: unit for unit in words_listed("% milligram gram kilogram degree meter kilometer liter megabyte gigabyte")
}
_WORD = re.compile(r"--\d\d(?:-\d\d)?|[^\W_](?:[\w.:/'-]*[^\W_])?|[%?,;:]")
_NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*\Z")
_DATE = re.compile(r"(?:\d{4}-|--)\d\d(?:-\d\d)?\Z")
_CLOCK = re.compile(r"\d{1,2}:\d\d\Z")
# A quoted sentence, not a name.
_QUOTED = re.compile(r"\"[^\" ]+(?: [^\" ]+){2,}\"")
# Conditional clauses and moods, in the languages that are read.
_SUPPOSED = re.compile(
    r"\b(?:if|unless|would|could|might|falls|sofern|wenn|wäre\w*|würde\w*|könnte\w*|si|sauf|pourrai\w+|serai(?:s|t|ent)|"
    r"\w{3,}erai(?:t|ent)|podría\w*|sería\w*|\w{3,}[aei]ría[ns]?)\b"
)
_CLAUSE_END = frozenset(",;:")
# Articles and prepositions: what follows is, or belongs to, a noun.
_BEFORE_NOUNS = words_listed(
    """
    the a an of for with in at by from my our your his her its their der die das dem den des ein eine einen einem einer
    für mit von vom bei beim zum zur am im in auf an aus le la les un une des du de au aux pour avec par sur à chez el
    los las una del al para con por en
    """
)
_SHORT = 3
# Share of the longer of two words that must be their common beginning: forms of one word.
_COMMON, _MIN_COMMON = 0.6, 4


class _Value(NamedTuple):
    """A value with the word before it."""

    sort: str
    value: str
    before: str


class _Word(NamedTuple):
    """A word that carries meaning, with the words around it; ``clause`` counts them."""

    before: str
    text: str
    after: str
    clause: int

    @property
    def is_noun(self) -> bool:
        return self.before in _BEFORE_NOUNS


class ValuesRead(NamedTuple):
    """What a statement gives values for; ``valued`` are the clauses with one."""

    values: list[_Value]
    words: list[_Word]
    valued: set[int]
    is_stated: bool
    is_negative: bool


def read_values(text: str) -> ValuesRead | None:
    """Return the values of a statement and its other words; None if it has no value."""
    if not _DIGIT.search(text) and _VALUE_WORDS.isdisjoint(_LETTERS.findall(text.casefold())):
        return None
    spoken = _QUOTED.sub(" ", normal_line(text))
    words = _WORD.findall(normal_values(" ".join(_NUMBERS.get(word, word) for word in _WORD.findall(spoken))))
    is_stated = "?" not in words and _SUPPOSED.search(spoken) is None
    read, clause, taken = ValuesRead([], [], set(), is_stated, not NEGATIVE.isdisjoint(words)), 0, -1
    for place, word in enumerate(words):
        if place == taken:
            continue
        if word in _CLAUSE_END:
            clause += 1
        elif (value := _value(words, place)) is not None:
            read.values.append(value)
            read.valued.add(clause)
            taken = place + 1 if _NUMBER.match(word) and not value.before else taken
        elif not _is_function(word):
            following = words[place + 1] if place + 1 < len(words) else ""
            read.words.append(_Word(words[place - 1] if place else "", word, following, clause))
    return read if read.values else None


def gives_another(later: ValuesRead, earlier: ValuesRead, is_replaced: Callable[[], bool]) -> bool:
    """Tell whether a statement gives another value for what an earlier one gives a value for.

    ``is_replaced`` is asked where the later one has a noun of its own beside the value: it may be about something else.
    """
    if not (later.is_stated and earlier.is_stated and _differs(earlier.values, later.values)):
        return False
    # Prohibitions of two things differ in no more than a day.
    if later.is_negative and earlier.is_negative:
        return False
    ours, theirs = _unshared(earlier.words, later.words), _unshared(later.words, earlier.words)
    if len(ours) == len(earlier.words) or any(_same_place(one, other) for one in ours for other in theirs):
        return False
    if any(map(_is_name, ours)) and any(map(_is_name, theirs)):
        return False
    return not any(each.is_noun and each.clause in later.valued for each in theirs) or is_replaced()


def _differs(before: Sequence[_Value], after: Sequence[_Value]) -> bool:
    """Tell whether values of a sort differ, of which the earlier one has one; what numbers name must not."""
    named = {each.before for each in before if each.before} & {each.before for each in after if each.before}
    for one in before:
        if one.before in named and one.value not in {other.value for other in after if other.before == one.before}:
            return False
    sorts = {each.sort for each in before if not each.before} & {each.sort for each in after if not each.before}
    return any(_values(before, sort) != _values(after, sort) and len(_values(before, sort)) == 1 for sort in sorts)


def _values(values: Sequence[_Value], sort: str) -> set[str]:
    return {each.value for each in values if each.sort == sort}


def _value(words: Sequence[str], place: int) -> _Value | None:
    word = words[place]
    if word in WEEKDAYS:
        return _Value("day", str(WEEKDAYS[word]), "")
    if not _NUMBER.match(word):
        sort = "date" if _DATE.match(word) else "clock" if _CLOCK.match(word) else ""
        return _Value(sort, word, "") if sort else None
    unit = words[place + 1] if place + 1 < len(words) else ""
    if unit == "week" and word.isdigit():
        word, unit = str(7 * int(word)), "day"
    sort = _UNITS.get(unit, "")
    if sort:
        return _Value(sort, f"{word} {unit}", "")
    before = words[place - 1] if place else ""
    if before and not _is_function(before):
        return _Value("name", word, before)
    return _Value(stem(unit), word, "") if unit and unit[0].isalpha() and not _is_function(unit) else None


def _is_function(word: str) -> bool:
    """Tell whether a word is no noun, verb or adjective: most such words are short."""
    return word in FILLER_WORDS or (len(word) <= _SHORT and word.isalpha())


def _unshared(words: Sequence[_Word], others: Sequence[_Word]) -> list[_Word]:
    return [each for each in words if not any(_is_form(each.text, other.text) for other in others)]


def _is_form(one: str, other: str) -> bool:
    if one == other:
        return True
    one, other = strip_accents(one), strip_accents(other)
    if not (one.isalpha() and other.isalpha()):
        return False
    common = next(
        (place for place, both in enumerate(zip(one, other, strict=False)) if both[0] != both[1]),
        min(len(one), len(other)),
    )
    return common >= _MIN_COMMON and common >= _COMMON * max(len(one), len(other))


def _same_place(one: _Word, other: _Word) -> bool:
    """Tell whether two words stand in the same place: both are nouns, or before the same word, or first before it."""
    if one.is_noun and other.is_noun:
        return True
    is_first = not one.before and not other.before
    return one.after == other.after and (is_first or not _is_function(one.after))


def _is_name(word: _Word) -> bool:
    return any(map(str.isdigit, word.text))
