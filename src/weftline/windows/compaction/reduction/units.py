"""Units of a conversation that are kept or dropped: words, sentences of unspaced scripts, lines of code and data."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from weftline.windows.compaction.reduction.word_lists import (
    ENGLISH,
    HESITATIONS,
    LANGUAGES,
    NO_LANGUAGE,
    WordLists,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from weftline.kernel.tokens import TokenCounter
    from weftline.windows.compaction.reduction.model import Utterance

    Array = np.ndarray[Any, Any]

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
