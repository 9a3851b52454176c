"""Units of a conversation that are kept or dropped: words, sentences of unspaced scripts, lines of code and data."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from weftline.kernel.data_files import WordFile

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from weftline.kernel.ports import TokenCounter
    from weftline.windows.compaction.reduction.model import Utterance

    Array = np.ndarray[Any, Any]


# Closed word classes: function words, fillers, words that change the truth of a statement, numbers and units.
#
# English in full, of other languages the commonest; a language's lists apply only to texts in it, because "war" and
# "die" are content in English. For languages without a list, values rest on length and repetition.


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


_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_UNSPACED_SENTENCE = re.compile(r"[^\s\u3002\uff01\uff1f\uff1b\uff61]+[\u3002\uff01\uff1f\uff1b\uff61]*")
# Words are separated by white space and by dashes between words, which end a clause.
_WORD = re.compile(r"[^\s\u2014\u2026]+\u2014?")
_OPENING = "\"'([{<*_~-\u2022\xab\u201c\u2018\xbf\xa1|>=`"
_CLOSING = "\"')]}>*_~,;:.!?\u201d\u2019\xbb|=`-\u2014"
# After the first word of a sentence these make it a label: what the rest is about.
_LABEL_MARKS = (":", "\u2014")
_HAS_WORD = re.compile(r"\w")
_SENTENCE_MARKS = re.compile(r"[.!?]")
_ABBREVIATIONS = frozenset(("mr", "mrs", "ms", "dr", "st", "vs", "etc", "e.g", "i.e", "prof", "fig", "approx"))
# Between two numbers these make a range or a ratio; elsewhere they are dropped.
CONNECTORS = frozenset(("-", "\u2013", "/", "x", "\xd7", "+", "=", "&"))
_NUMBER = re.compile(r"[#$\u20ac\xa3+-]?\d")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
# Lines of code, JSON, tables and logs. A prose line that looks alike is kept or dropped whole, which does no harm.
_DATA_LINE = re.compile(
    r"""^\s*(?:
    [{}\[\]] | \|.*\| | \#include\b | @\w+ | </?\w+[^>]*> | "[^"]+"\s*: | [\w.\[\]"']+\s*(?:=|\+=|:=)\s*\S
    | (?:def|class|import|from|return|function|const|let|var|public|private|static|async|await|fn|func)\s.*[:;{()}=]
    | (?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP)\s
    | \d{4}-\d\d-\d\d[T\ ]\d\d:\d\d | \S+\.\w+:\d+ | File\ ".*",\ line\ \d+ | at\ [\w.$]+\( | [$>]\s\S
    | [^\t]*\t[^\t]*\t
    ) | [;{}]\s*$ | ^(?:\ {4,}|\t)\S""",
    re.VERBOSE,
)

# Longer lines are judged by their beginning: the pattern takes quadratic time for a line of blanks.
_JUDGED = 400

WORD, SENTENCE, LINE = 0, 1, 2
_SEPARATORS = {WORD: " ", SENTENCE: "", LINE: "\n"}
# Words by which the language is recognised.
_SAMPLED_WORDS = 1000
# The same words recur in every conversation.
_CACHED_FORMS = 50_000
_MIN_SAMPLE = 40
_MIN_KNOWN = 0.12
# In an unknown language a function word is short and makes up this part of the words.
_MAX_FUNCTION_LENGTH = 5
_COMMON_SHARE = 0.006


class Form(NamedTuple):
    """What is known about a written form by itself."""

    core: str
    key: str
    kind: int
    is_function: bool = False
    is_filler: bool = False
    is_hesitation: bool = False
    is_negation: bool = False
    is_condition: bool = False
    is_number: bool = False
    is_unit: bool = False
    has_digit: bool = False
    is_capitalised: bool = False
    ends_clause: bool = False
    ends_sentence: bool = False
    is_question: bool = False
    is_label: bool = False


_FIRST_FLAG = Form._fields.index("is_function")
_FLAGS = {name: number for number, name in enumerate(Form._fields[_FIRST_FLAG:])}
_Piece = tuple[str, int]


class Units(NamedTuple):
    """The units of a conversation in order, as arrays of one length; ``forms`` are distinct and ``form`` indexes them.

    ``written``: each form with the white space before it; ``properties``: the flags of each form as columns.
    ``sentence`` and ``clause`` number sentences and clauses through the whole conversation. ``start`` is the place in
    the joined texts, which one character separates. ``is_question``: the unit is in a question.
    """

    forms: list[Form]
    written: list[str]
    properties: Array
    form: Array
    utterance: Array
    sentence: Array
    clause: Array
    start: Array
    cost: Array
    is_question: Array
    is_english: bool

    def kinds(self) -> Array:
        """Return the kind of each unit."""
        return np.fromiter((form.kind for form in self.forms), np.int64, len(self.forms))[self.form]

    def keys(self) -> Array:
        """Return a number for each unit that is the same for the same word, whatever its case."""
        numbers = {form.key: number for number, form in enumerate(self.forms)}
        return np.fromiter((numbers[form.key] for form in self.forms), np.int64, len(self.forms))[self.form]

    def is_light(self) -> Array:
        """Return which units are function words or fillers."""
        return self.flags("is_function") | self.flags("is_filler")

    def among(self, words: frozenset[str]) -> Array:
        """Return which units are one of these words; without apostrophes."""
        of_form = (form.key.replace("'", "") in words for form in self.forms)
        return np.fromiter(of_form, bool, len(self.forms))[self.form]

    def flags(self, name: str) -> Array:
        """Return a boolean property of the form of each unit."""
        return self.properties[:, _FLAGS[name]][self.form]


def split(texts: Sequence[Utterance], count: TokenCounter) -> Units:
    """Split utterances into units and count the tokens of each."""
    pieces: list[_Piece] = []
    sizes: list[int] = []
    starts: list[int] = []
    offset = 0
    for utterance in texts:
        found = _pieces(utterance)
        pieces += [(raw, kind) for raw, kind, _ in found]
        starts += [offset + start for _, _, start in found]
        sizes.append(len(found))
        offset += len(utterance.text) + 1
    distinct = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    lists = _language(raw for raw, kind in pieces if kind == WORD)
    forms = [_form(raw, kind, lists) for raw, kind in distinct]
    form = np.fromiter(map(distinct.__getitem__, pieces), np.int64, len(pieces))
    properties = np.array([each[_FIRST_FLAG:] for each in forms], bool).reshape(len(forms), len(_FLAGS))
    utterance_of = np.repeat(np.arange(len(texts)), sizes)
    is_new = np.diff(utterance_of, prepend=-1) != 0
    sentence = _numbered(is_new, properties[:, _FLAGS["ends_sentence"]][form])
    clause = _numbered(is_new, properties[:, _FLAGS["ends_clause"]][form])
    is_question = _in_questions(sentence, properties[:, _FLAGS["is_question"]][form])
    costs = np.fromiter((_cost(each.core, each.kind, count) for each in forms), np.float64, len(forms))
    kept = np.fromiter((each.core != "" for each in forms), bool, len(forms))[form]
    return Units(
        forms,
        [_SEPARATORS[each.kind] + each.core for each in forms],
        properties,
        form[kept],
        utterance_of[kept],
        sentence[kept],
        clause[kept],
        np.asarray(starts, np.int64)[kept],
        costs[form][kept],
        is_question[kept],
        lists is ENGLISH,
    )


def _numbered(is_new: Array, ends: Array) -> Array:
    """Return the number of the span of each unit: one begins with each utterance, and after each unit that ends one."""
    after = np.zeros_like(ends)
    after[1:] = ends[:-1]
    return np.cumsum(is_new | after)


def _in_questions(sentence: Array, is_question: Array) -> Array:
    asked = np.zeros(len(sentence) + 1, bool)
    asked[sentence[is_question]] = True
    return asked[sentence]


def _cost(core: str, kind: int, count: TokenCounter) -> float:
    """Return the tokens of a form in running text; an estimate by characters is not rounded for every word."""
    return _cost_of_word(core, cast("Hashable", count)) if kind == WORD else float(count(f"\n{core}"))


# Words only: of a whole line the time would tell that another window has it.
@lru_cache(_CACHED_FORMS)
def _cost_of_word(core: str, count: TokenCounter) -> float:
    return count(f" {core}" * 4) / 4


def _pieces(utterance: Utterance) -> list[tuple[str, int, int]]:
    """Return the pieces of an utterance: the text of each, its kind and where it starts."""
    text = utterance.text
    if not utterance.is_verbatim and "\n" not in text and not _DATA_LINE.match(text[:_JUDGED]):
        return _prose(text, 0)
    pieces: list[tuple[str, int, int]] = []
    is_fenced = False
    start = 0
    for line in text.splitlines(keepends=True):
        is_fence = bool(_FENCE.match(line))
        if is_fence or is_fenced or utterance.is_verbatim or _DATA_LINE.match(line[:_JUDGED]):
            if line.strip():
                pieces.append((line.rstrip(), LINE, start))
        else:
            pieces += _prose(line, start)
        is_fenced ^= is_fence
        start += len(line)
    return pieces


def _prose(text: str, start: int) -> list[tuple[str, int, int]]:
    """Return the words of a text, or its sentences in an unspaced script; the last word ends a sentence."""
    if not text.isascii() and _IS_UNSPACED.search(text):
        return [
            (match[0], SENTENCE if _IS_UNSPACED.search(match[0]) else WORD, start + match.start())
            for match in _UNSPACED_SENTENCE.finditer(text)
        ]
    if "--" in text:
        text = text.replace("--", "\u2014 ")
    words = [(match[0], WORD, start + match.start()) for match in _WORD.finditer(text)]
    if words:
        last, kind, at = words[-1]
        words[-1] = (f"{last}\n", kind, at)
    return words


def _language(words: Iterable[str]) -> WordLists:
    """Return the lists of the language that most words are function words of.

    English if there are too few words; no lists if hardly any word is known. The commonest short words of the text are
    its function words then.
    """
    sample = [_core(word).lower() for word in islice(words, _SAMPLED_WORDS)]
    hits = [sum(map(lists.function.__contains__, sample)) for lists in LANGUAGES]
    best = max(hits)
    if len(sample) < _MIN_SAMPLE:
        return ENGLISH
    if best >= len(sample) * _MIN_KNOWN:
        return LANGUAGES[hits.index(best)]
    common = Counter(word for word in sample if 0 < len(word) <= _MAX_FUNCTION_LENGTH and word.isalpha())
    return NO_LANGUAGE._replace(
        function=frozenset(word for word, number in common.items() if number >= len(sample) * _COMMON_SHARE)
    )


def _form(raw: str, kind: int, lists: WordLists) -> Form:
    """Describe a written form: punctuation at its ends is removed and tells where clauses and sentences end."""
    if kind == WORD:
        return _form_of_word(raw, lists)
    return Form(raw.rstrip(), raw, kind, ends_clause=True, ends_sentence=True, has_digit=_has_digit(raw))


@lru_cache(_CACHED_FORMS)
def _form_of_word(raw: str, lists: WordLists) -> Form:
    word = raw.strip()
    core = _core(word)
    key = core.lower().replace("\u2019", "'")
    tail = word[word.rfind(core) + len(core) :] if core else word
    ends_sentence = "\n" in raw or (bool(_SENTENCE_MARKS.search(tail)) and key not in _ABBREVIATIONS)
    return Form(
        core,
        key,
        WORD,
        is_function=key in lists.function or core in CONNECTORS,
        is_filler=key in lists.fillers,
        is_hesitation=key in HESITATIONS,
        is_negation=key in lists.negations,
        is_condition=key in lists.conditions,
        is_number=key in lists.numbers or bool(_NUMBER.match(core)),
        is_unit=key in lists.units,
        has_digit=_has_digit(core),
        is_capitalised=core[:1].isupper() and not key.startswith("i'") and key != "i",
        ends_clause=ends_sentence or (bool(tail.strip("\"'\u201d\u2019")) and not tail.startswith("'")),
        ends_sentence=ends_sentence,
        is_question="?" in tail,
        is_label=not ends_sentence and tail.endswith(_LABEL_MARKS),
    )


def _core(word: str) -> str:
    """Return a word without the punctuation around it; nothing if it is only punctuation."""
    if word in CONNECTORS:
        return word
    core = word.lstrip(_OPENING).rstrip(_CLOSING)
    if core[:1].isdigit() and word[: word.find(core)].endswith("-"):
        core = f"-{core}"
    return core if _HAS_WORD.search(core) else ""


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


# Units that must be kept together, so that a shortened sentence does not claim something else.
#
# A negation or condition stays with what it applies to; the words of a number stay together, with their unit; a number
# range keeps its connector; a label such as "Daycare:" stays with what is said under it.

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
