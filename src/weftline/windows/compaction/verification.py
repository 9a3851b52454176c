"""Verification of a compaction: which facts a text still contains, and which literals it invented.

A fact is found if its words are there, exactly or in their normal form: numbers as words, thousands separators, dates
in other forms, typography, markdown, and case where it is harmless. Never found is a fact whose number changed, or that
lost or gained a negation: what is in doubt counts as missing, which costs a few tokens but loses nothing.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from weftline.indexing.text_analysis import FILLER_WORDS, stem, strip_accents, tokens, words
from weftline.windows.compaction.facts.units import normal_form, normal_line, one_line, plain_form, units_of
from weftline.windows.compaction.facts.values import literals_in
from weftline.windows.compaction.model import FactKind, KeyFact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


# Kinds that are written in one way only.
_EXACT = frozenset({FactKind.IDENTIFIER, FactKind.PATH, FactKind.URL, FactKind.SYMBOL, FactKind.PENDING_CALL})
_VALUES = frozenset({FactKind.QUANTITY, FactKind.DATE})
_CONTEXT_SHARE = 0.5
_MAX_CANDIDATES = 64
_NEIGHBOURS = 5
# The facts of a group are looked for more than once.
_BEFORE = 60
_CLAUSE_START = re.compile(r"[.!?;:] |\n|, (?:and|but) | - ")
_NEXT_WORDS = re.compile(r",?(?: [^\s.,;:!?()\[\]]{1,40}){1,3}")
_NEXT_WORD = re.compile(r" ([^\W\d_]+|%)")
_WORD = re.compile(r"[^\W_]+(?:[.,:/_@'#+-]+[^\W_]+)*|[%€£$]")
_NUMBER = re.compile(r"-?\d[\w.,:/-]*")
_AT_LIMIT = re.compile(r"\bat (most|least)\b")
_APOSTROPHE = str.maketrans("", "", "'")
_LIST_NUMBER = re.compile(r"^[ \t]{0,40}(?:[-*][ \t]{1,8})?\d{1,3}[.)]\s", re.MULTILINE)


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


# Words that turn a statement into another one when they are lost or gained.
CRITICAL_WORDS = _words(
    """
    not no never none neither nor without cannot except unless only until before after instead rather against
    dont doesnt didnt wont wouldnt cant couldnt shouldnt mustnt isnt arent wasnt werent hasnt havent hadnt aint
    atmost atleast must may might should shall could optional optionally more less fewer most least
    under over above below unable stop stopped cancel cancelled canceled
    reject rejected decline declined deny denied fail failed failing
    nicht kein keine keinen keiner keinem nie niemals ohne nur außer statt bis vor nach muss darf soll
    ne pas jamais sans aucun aucune sauf seulement doit avant après
    nunca sin ningún ninguna tampoco salvo sólo solo debe antes después
    """
)
# Words that a statement may lose: articles, pronouns, auxiliaries, the commonest prepositions, and what only starts a
# sentence. Not those that tell where to, how much, by whom or in what order (out, off, from, by, all, same, once):
# "stay out of dock three" is not "stay dock three".
IGNORED_WORDS = _words(
    """
    a an the this that these those and i me my we us our you your he him his she her it its they them their im ive
    youre hes shes theyre weve theyve thats theres am is are was were be been being of to s d ll m re ve lets
    will would do does did have has had for in on at as there
    um uh er hmm well so just really basically actually okay ok yeah yes oh like please also very quite
    der die das den dem des ein eine einen einem le la les un une des du el los las una que und et y zu à
    """
)


class VerifiedFacts(NamedTuple):
    """Facts that a text contains, and those that it does not."""

    found: list[KeyFact]
    missing: list[KeyFact]


def verify(text: str, facts: Sequence[KeyFact]) -> VerifiedFacts:
    """Tell which facts a text contains."""
    searched = _SearchedText(text)
    found: list[KeyFact] = []
    missing: list[KeyFact] = []
    for fact in facts:
        (found if searched.has(fact) else missing).append(fact)
    return VerifiedFacts(found, missing)


def invented_literals(text: str, source: str) -> list[str]:
    """Return the numbers, identifiers, paths, dates, URLs and quotations of a text that its source does not have."""
    searched = _SearchedText(source)
    invented: dict[str, None] = {}
    for unit in units_of(_LIST_NUMBER.sub("", text)):
        for literal in literals_in(unit.text):
            if not searched.has_literal(literal.kind, literal.text):
                invented[literal.text] = None
    for number in _numbers(normal_form(_LIST_NUMBER.sub("", text))):
        if number not in searched.numbers and not any(number in normal_line(known) for known in invented):
            invented[number] = None
    return list(invented)


def _numbers(normal: str) -> dict[str, None]:
    return dict.fromkeys(number.rstrip(".,:/-") for number in _NUMBER.findall(normal))


@dataclass
class _SearchedText:
    text: str

    @cached_property
    def plain(self) -> str:
        return one_line(plain_form(self.text))

    @cached_property
    def folded(self) -> str:
        return self.plain.casefold()

    @cached_property
    def lines(self) -> str:
        return normal_form(self.text)

    @cached_property
    def normal(self) -> str:
        return one_line(self.lines)

    @cached_property
    def numbers(self) -> frozenset[str]:
        return frozenset(_numbers(self.normal))

    @cached_property
    def sentences(self) -> list[_Sentence]:
        return [_Sentence.of(unit.text) for unit in units_of(self.lines)]

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Return the sentences that each term is in."""
        places: dict[str, list[int]] = {}
        for number, sentence in enumerate(self.sentences):
            for term in set(sentence.terms):
                places.setdefault(term, []).append(number)
        return places

    def has(self, fact: KeyFact) -> bool:
        if fact.kind in _EXACT:
            return all(_has_bounded(self.plain, _plain(literal)) for literal in fact.literals or (fact.text,))
        if fact.kind is FactKind.QUOTE and fact.text == fact.literals[0]:
            return self.has_literal(fact.kind, fact.text)
        if fact.kind in _VALUES:
            return self._has_value(fact)
        return self._has_verbatim(fact) or self._has_words(fact)

    def has_literal(self, kind: FactKind, literal: str) -> bool:
        if kind in _EXACT:
            return _has_bounded(self.plain, _plain(literal))
        if kind is FactKind.QUOTE:
            return _has_bounded(self.folded, _plain(literal).casefold())
        return _has_bounded(self.normal, normal_line(literal))

    def _has_verbatim(self, fact: KeyFact) -> bool:
        """Tell whether a statement is there word for word, and nothing around it negates or extends it."""
        wanted = normal_line(fact.text).rstrip(".!;, ")
        is_value = fact.kind in _VALUES
        # A line ends what may negate it; a statement may go over lines.
        return any(_has_unchanged(text, wanted, is_value=is_value) for text in (self.lines, self.normal))

    def _has_words(self, fact: KeyFact) -> bool:
        """Tell whether one sentence has all words of a statement, in order, with its literals and its negations."""
        wanted = _Sentence.of(normal_line(fact.text))
        if not wanted.terms:
            return False
        literals = [normal_line(literal) for literal in fact.literals]
        rarest = min(wanted.terms, key=lambda term: len(self.places.get(term, ())))
        for number in self.places.get(rarest, ())[-_MAX_CANDIDATES:]:
            sentence = self.sentences[number]
            if sentence.tells(wanted) and all(_has_bounded(sentence.text, literal) for literal in literals):
                return True
        return False

    def _has_value(self, fact: KeyFact) -> bool:
        """Tell whether a quantity or date is there with at least half of the words of its clause."""
        literal = normal_form(fact.literals[0])
        if not _has_bounded(self.normal, literal):
            return False
        if self._has_verbatim(fact):
            return True
        clause, value = _Sentence.of(normal_line(fact.text)), _Sentence.of(literal)
        context = set(clause.terms) - set(value.terms)
        # Other numbers and identifiers of the clause are not context.
        named = {term for term in context if any(map(str.isdigit, term))}
        rarest = min(value.terms, key=lambda term: len(self.places.get(term, ())), default="")
        for number in self.places.get(rarest, ())[-_MAX_CANDIDATES:]:
            sentence = self.sentences[number]
            shared = context.intersection(sentence.terms)
            is_told = len(shared) >= len(context) * _CONTEXT_SHARE and named <= shared
            if is_told and _has_bounded(sentence.text, literal) and _keeps_sense(clause, sentence):
                return True
        return False


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence in its normal form: its terms in order, those that matter for its sense, and where they are."""

    text: str
    terms: tuple[str, ...]
    critical: tuple[str, ...]

    @classmethod
    def of(cls, normal: str) -> _Sentence:
        terms: list[str] = []
        critical: list[str] = []
        for word in _WORD.findall(_AT_LIMIT.sub("at\\1", normal)):
            bare = word.translate(_APOSTROPHE)
            if bare in CRITICAL_WORDS:
                critical.append(bare)
                terms.append(bare)
            elif bare not in IGNORED_WORDS:
                terms.append(bare)
        return cls(normal, tuple(terms), tuple(critical))

    def tells(self, wanted: _Sentence) -> bool:
        """Tell whether this sentence has all terms of another in order, and the same critical words around them."""
        start, place = -1, 0
        for term in wanted.terms:
            try:
                place = self.terms.index(term, place) + 1
            except ValueError:
                return False
            start = place - 1 if start < 0 else start
        around = self.terms[max(0, start - _NEIGHBOURS) : place + _NEIGHBOURS]
        return Counter(term for term in around if term in CRITICAL_WORDS) == Counter(wanted.critical)


def _keeps_sense(clause: _Sentence, sentence: _Sentence) -> bool:
    return not Counter(clause.critical) - Counter(sentence.critical)


def _plain(text: str) -> str:
    return one_line(plain_form(text))


def _has_unchanged(text: str, wanted: str, *, is_value: bool) -> bool:
    start = text.find(wanted) if wanted else -1
    while start >= 0:
        end = start + len(wanted)
        if _is_bounded(text, start, end) and not _is_changed(text, start, end, is_value=is_value):
            return True
        start = text.find(wanted, start + 1)
    return False


def _is_changed(text: str, start: int, end: int, *, is_value: bool) -> bool:
    """Tell whether the words before negate or limit a passage, or the word after is the unit of its last number."""
    before = _CLAUSE_START.split(text[max(0, start - _BEFORE) : start])[-1]
    following = _NEXT_WORDS.match(text, end)
    behind = following[0] if following is not None else ""
    # Values are listed with commas.
    around = _WORD.findall("" if is_value and before.endswith(", ") else before)[-_NEIGHBOURS:]
    around += _WORD.findall("" if is_value and behind.startswith(",") else behind)
    if any(word.translate(_APOSTROPHE) in CRITICAL_WORDS for word in around):
        return True
    after = _NEXT_WORD.match(text, end)
    return text[end - 1].isdigit() and after is not None and normal_line(f"5 {after[1]}") != f"5 {after[1]}"


def _has_bounded(text: str, wanted: str) -> bool:
    """Tell whether a text has a string that is not part of a longer number, word, path or identifier."""
    start = text.find(wanted) if wanted else -1
    while start >= 0:
        if _is_bounded(text, start, start + len(wanted)):
            return True
        start = text.find(wanted, start + 1)
    return False


def _is_bounded(text: str, start: int, end: int) -> bool:
    return not (_joins(text, start - 1, -1, text[start]) or _joins(text, end, 1, text[end - 1]))


def _joins(text: str, place: int, step: int, edge: str) -> bool:
    """Tell whether the character at a place continues the word that ends at its neighbour ``edge``."""
    if not 0 <= place < len(text) or not (edge.isalnum() or edge in "_/$%"):
        return False
    character = text[place]
    if character.isalnum() or character == "_":
        return edge != "%" or not character.isspace()
    beyond = place + step
    if character in "-./@:\\," and 0 <= beyond < len(text) and (text[beyond].isalnum() or text[beyond] in "_/"):
        # A path with a line number, and words joined by a colon or comma, end here.
        return character not in ":," or (edge.isdigit() and text[beyond].isdigit())
    return character == "-" and step < 0 and edge.isdigit()


# Checks that a summary says what its source says: nothing negated, and nothing that the source does not contain.
#
# Words are compared, not meaning, so a faithful summary may fail. It is then replaced by the words of the source.

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
