"""Units of a conversation that are kept or dropped: words, sentences of unspaced scripts, lines of code and data."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.capabilities.compaction.reduction.word_lists import ENGLISH, LANGUAGES, WordLists

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weft.capabilities.compaction.reduction.model import Utterance
    from weft.kernel.tokens import TokenCounter

    Array = np.ndarray[Any, Any]

_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_UNSPACED_SENTENCE = re.compile(r"[^\s\u3002\uff01\uff1f\uff1b\uff61]+[\u3002\uff01\uff1f\uff1b\uff61]*")
# Words are separated by white space and by dashes between words.
_WORD = re.compile(r"(?:(?!--)[^\s\u2014\u2026])+")
_OPENING = "\"'([{<*_~-\u2022\xab\u201c\u2018\xbf\xa1|>=`"
_CLOSING = "\"')]}>*_~,;:.!?\u201d\u2019\xbb|=`-"
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

WORD, SENTENCE, LINE = 0, 1, 2
# Words by which the language is recognised.
_SAMPLED_WORDS = 4000


class Form(NamedTuple):
    """What is known about a written form by itself."""

    core: str
    key: str
    kind: int
    is_function: bool = False
    is_filler: bool = False
    is_negation: bool = False
    is_condition: bool = False
    is_number: bool = False
    is_unit: bool = False
    has_digit: bool = False
    is_capitalised: bool = False
    ends_clause: bool = False
    ends_sentence: bool = False
    is_question: bool = False


class Units(NamedTuple):
    """The units of a conversation in order, as arrays of one length; ``forms`` are distinct and ``form`` indexes them.

    ``sentence`` and ``clause`` number sentences and clauses through the whole conversation. ``start`` is the place in
    the joined texts, which one character separates. ``is_question``: the unit is in a question.
    """

    forms: list[Form]
    form: Array
    utterance: Array
    sentence: Array
    clause: Array
    start: Array
    cost: Array
    is_question: Array

    def flags(self, name: str) -> Array:
        """Return a boolean property of the form of each unit."""
        return np.fromiter((getattr(form, name) for form in self.forms), bool, len(self.forms))[self.form]


def split(texts: Sequence[Utterance], count: TokenCounter) -> Units:
    """Split utterances into units and count the tokens of each."""
    raws: list[tuple[str, int]] = []
    starts: list[int] = []
    sizes: list[int] = []
    offset = 0
    for utterance in texts:
        before = len(raws)
        for raw, kind, start in _pieces(utterance):
            raws.append((raw, kind))
            starts.append(offset + start)
        sizes.append(len(raws) - before)
        offset += len(utterance.text) + 1
    distinct = list(dict.fromkeys(raws))
    lists = _language(raw for raw, _ in raws)
    forms = [_form(raw, kind, lists) for raw, kind in distinct]
    numbers = {raw: number for number, raw in enumerate(distinct)}
    form = np.fromiter(map(numbers.__getitem__, raws), np.int64, len(raws))
    kept = np.fromiter((form.core != "" for form in forms), bool, len(forms))[form]
    utterance_of = np.repeat(np.arange(len(texts)), sizes)
    is_new = np.diff(utterance_of, prepend=-1) != 0
    ends = {
        name: np.fromiter((getattr(each, name) for each in forms), bool, len(forms))[form]
        for name in ("ends_sentence", "ends_clause", "is_question")
    }
    sentence = _numbered(is_new, ends["ends_sentence"])
    clause = _numbered(is_new, ends["ends_clause"])
    costs = np.fromiter((_cost(each, count) for each in forms), np.float64, len(forms))
    return Units(
        forms,
        form[kept],
        utterance_of[kept],
        sentence[kept],
        clause[kept],
        np.asarray(starts, np.int64)[kept],
        costs[form][kept],
        _in_questions(sentence, ends["is_question"])[kept],
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


def _cost(form: Form, count: TokenCounter) -> float:
    """Return the tokens of a form in running text; an estimate by characters is not rounded for every word."""
    if form.kind == WORD:
        return count(f" {form.core}" * 4) / 4
    return float(count(f"\n{form.core}"))


def _pieces(utterance: Utterance) -> Iterator[tuple[str, int, int]]:
    """Yield each piece of an utterance: its text, its kind and where it starts."""
    text = utterance.text
    if not utterance.is_verbatim and "\n" not in text and not _DATA_LINE.match(text):
        yield from _prose(text, 0)
        return
    is_fenced = False
    start = 0
    for line in text.splitlines(keepends=True):
        is_fence = bool(_FENCE.match(line))
        if is_fence or is_fenced or utterance.is_verbatim or _DATA_LINE.match(line):
            if line.strip():
                yield line.rstrip(), LINE, start
        else:
            yield from _prose(line, start)
        is_fenced ^= is_fence
        start += len(line)


def _prose(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    if not text.isascii() and _IS_UNSPACED.search(text):
        for match in _UNSPACED_SENTENCE.finditer(text):
            yield match[0], SENTENCE if _IS_UNSPACED.search(match[0]) else WORD, start + match.start()
        return
    matches = list(_WORD.finditer(text))
    for match in matches[:-1]:
        yield match[0], WORD, start + match.start()
    for match in matches[-1:]:
        yield f"{match[0]}\n", WORD, start + match.start()


def _language(words: Iterable[str]) -> WordLists:
    """Return the lists of the language that most words are function words of; English if in doubt."""
    hits = [0] * len(LANGUAGES)
    for word in islice(words, _SAMPLED_WORDS):
        for at, lists in enumerate(LANGUAGES):
            hits[at] += word.lower() in lists.function
    return LANGUAGES[hits.index(max(hits))] if max(hits) else ENGLISH


def _form(raw: str, kind: int, lists: WordLists) -> Form:
    """Describe a written form: punctuation at its ends is removed and tells where clauses and sentences end."""
    if kind != WORD:
        return Form(raw.rstrip(), raw, kind, ends_clause=True, ends_sentence=True, has_digit=_has_digit(raw))
    word = raw.strip()
    core = _core(word)
    key = core.lower().replace("\u2019", "'")
    tail = word[word.rfind(core) + len(core) :] if core else word
    ends_sentence = "\n" in raw or (bool(_SENTENCE_MARKS.search(tail)) and key not in _ABBREVIATIONS)
    return Form(
        core,
        key,
        kind,
        is_function=key in lists.function or core in CONNECTORS,
        is_filler=key in lists.fillers,
        is_negation=key in lists.negations,
        is_condition=key in lists.conditions,
        is_number=key in lists.numbers or bool(_NUMBER.match(core)),
        is_unit=key in lists.units,
        has_digit=_has_digit(core),
        is_capitalised=core[:1].isupper() and not key.startswith("i'") and key != "i",
        ends_clause=ends_sentence or (bool(tail.strip("\"'\u201d\u2019")) and not tail.startswith("'")),
        ends_sentence=ends_sentence,
        is_question="?" in tail,
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
