"""Checks that a summary says what its source says: nothing negated, and nothing that the source does not contain.

Words are compared, not meaning, so a faithful summary may fail. It is then replaced by the words of the source.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from weftline.indexing.text_analysis import FILLER_WORDS, stem, strip_accents, tokens, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_CLAUSE_END = re.compile(r",\s|\s(?:but|although|though|whereas|while|aber|sondern|mais|pero)\s", re.IGNORECASE)
_NEGATION_WORDS = """
no not never neither nor none nothing nobody without cannot cant dont doesnt didnt wont wouldnt shouldnt isnt arent
wasnt werent hasnt havent hadnt mustnt couldnt
against reject rejects rejected rejecting refuse refused decline declined abandon abandoned cancel cancelled canceled
forbid forbids forbidden prohibit prohibited
nicht kein keine keinen keinem keiner keines nie niemals ohne gegen abgelehnt verworfen
pas jamais aucun aucune sans contre ni rejete
nunca jamas sin ningun ninguna contra tampoco rechazado
"""
_REPORTING_WORDS = """
also according added addressed additionally agreed agent agents answered asked asks assistant chose chosen
conversation confirmed current currently decided decision decisions described details discussed discussion during
explained fact facts finally following further given include included includes including item items key later
mentioned message messages noted note open outcome part planned plan point points previously proposed provided
question questions regarding reported request requested requests required requirement requires responded result
results returned said says several shared showed shows specific speaker stated states step steps suggested summary
task team then told tool topic used user users uses wanted wants work worked
"""
_FUNCTION_WORDS = """
der die das den dem des ein eine einen einem einer und oder in im am an auf zu zum zur von vom fur mit bei nach aus dass
wir sie er es ich ist sind war waren wird werden wurde wurden haben hat hatte soll sollen muss kann auch als
le la les un une des du de et ou en au aux a dans pour par sur avec que qui est sont ete nous ils elle il se ce
el los las una unos del y o en al por para con que es son fue fueron ha han se lo su
"""
# Words that turn a statement around, without accents and apostrophes: English, German, French, Spanish.
_NEGATIONS = frozenset(_NEGATION_WORDS.split())
# What summaries say about a conversation, whatever it is about.
_REPORTING = frozenset(_REPORTING_WORDS.split())
_NOT_CONTENT = FILLER_WORDS | _NEGATIONS | _REPORTING | frozenset(_FUNCTION_WORDS.split())
# Part of the words of the longer of two clauses that they must share to be about the same.
_SAME_SUBJECT = 0.5
_MIN_SUBJECT_WORDS = 2
# Below this part of its words in the source, a sentence is not from there.
_SUPPORTED = 0.4
_MIN_SENTENCE_WORDS = 5
# In German every noun has a capital: names cannot be told by it.
_MAX_CAPITALS = 0.25
_MIN_NAME_LENGTH = 3


class _Clause(NamedTuple):
    content: frozenset[str]
    is_negated: bool


class CheckedText(NamedTuple):
    """A text without the sentences that failed a check, with their numbers."""

    text: str
    sentences: int
    negated: int
    unsupported: int

    @property
    def left_out(self) -> int:
        return self.negated + self.unsupported


def check_sentences(text: str, source: str) -> CheckedText:
    """Return a text without sentences that say the opposite of their source, or what is not in it.

    A sentence is negated if it says the opposite with the same words, and unsupported if too few of its words, or not
    all names, are in the source.
    """
    stated = _StatedClauses(source)
    known = {stem(word) for token in tokens(strip_accents(source)) for word in words(token)}
    checks_names = _part_of_capitals(text) <= _MAX_CAPITALS
    lines: list[str] = []
    sentences = negated = unsupported = 0
    for line in text.splitlines():
        kept = []
        for sentence in _sentences(line):
            sentences += 1
            if any(map(stated.contradicts, _clauses(sentence))):
                negated += 1
            elif not _is_supported(sentence, known) or (checks_names and _has_unknown_name(sentence, known)):
                unsupported += 1
            else:
                kept.append(sentence)
        lines += [" ".join(kept)] if kept else []
    return CheckedText("\n".join(lines), sentences, negated, unsupported)


class _StatedClauses:
    """The clauses of a source by their words."""

    def __init__(self, source: str) -> None:
        self._clauses = [_read(clause) for sentence in _sentences(source) for clause in _clauses(sentence)]
        self._by_word: defaultdict[str, list[int]] = defaultdict(list)
        for at, clause in enumerate(self._clauses):
            for word in clause.content:
                self._by_word[word].append(at)

    def contradicts(self, text: str) -> bool:
        """Tell whether the source has clauses about the same as one, and all of them say the opposite."""
        clause = _read(text)
        if len(clause.content) < _MIN_SUBJECT_WORDS or _asks(text):
            return False
        shared: defaultdict[int, int] = defaultdict(int)
        for word in clause.content:
            for at in self._by_word.get(word, ()):
                shared[at] += 1
        same = [self._clauses[at] for at, count in shared.items() if self._is_same(clause, at, count)]
        return bool(same) and all(each.is_negated != clause.is_negated for each in same)

    def _is_same(self, clause: _Clause, at: int, shared: int) -> bool:
        return shared >= max(
            _MIN_SUBJECT_WORDS, _SAME_SUBJECT * max(len(clause.content), len(self._clauses[at].content))
        )


def _sentences(text: str) -> Iterator[str]:
    return (sentence for sentence in _SENTENCE_END.split(text) if sentence and not sentence.isspace())


def _clauses(sentence: str) -> Iterator[str]:
    return (clause for clause in _CLAUSE_END.split(sentence) if clause.strip())


def _asks(clause: str) -> bool:
    """Tell whether a clause asks rather than states."""
    return clause.rstrip().endswith("?") or "whether" in clause.lower()


def _read(clause: str) -> _Clause:
    spoken = _lowered(clause)
    return _Clause(frozenset(_content(spoken)), any(token in _NEGATIONS for token in spoken))


def _lowered(text: str) -> list[str]:
    return [token.lower() for token in tokens(strip_accents(text))]


def _content(spoken: Sequence[str]) -> Iterator[str]:
    for token in spoken:
        if token not in _NOT_CONTENT:
            yield from map(stem, words(token))


def _is_supported(sentence: str, known: set[str]) -> bool:
    content = set(_content(_lowered(sentence)))
    return len(content) < _MIN_SENTENCE_WORDS or len(content & known) >= _SUPPORTED * len(content)


def _has_unknown_name(sentence: str, known: set[str]) -> bool:
    # The first word has a capital whatever it is.
    names = groupby(tokens(sentence)[1:], _is_name)
    return any(is_name and not any(_is_known(token, known) for token in name) for is_name, name in names)


def _is_known(token: str, known: set[str]) -> bool:
    return known.issuperset(map(stem, words(token)))


def _is_name(token: str) -> bool:
    return (
        len(token) >= _MIN_NAME_LENGTH and token[0].isupper() and token.isalpha() and token.lower() not in _NOT_CONTENT
    )


def _part_of_capitals(text: str) -> float:
    inner = [token for sentence in _sentences(text) for token in tokens(sentence)[1:] if token.isalpha()]
    return sum(token[0].isupper() for token in inner) / len(inner) if inner else 0.0
