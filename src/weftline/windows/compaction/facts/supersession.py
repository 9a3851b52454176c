"""Status of facts: what a later statement replaces, withdraws, answers or removes.

A later decision, constraint, preference or value on the same subject supersedes an earlier one; so does a statement
that names what it replaces. An open question is resolved by its answer, a blocker by the message that it is gone, an
error by the same call without one. In doubt a fact stays current: it costs a few tokens, while a fact that is wrongly
taken for superseded may be lost. Data, such as the result of a tool, changes nothing that somebody has said: otherwise
a web page could replace a decision of the user.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from weftline.windows.compaction.facts.changed_values import ValuesRead, gives_another, read_values
from weftline.windows.compaction.facts.normal_form import normal_line, one_line, plain_form
from weftline.windows.compaction.facts.questions import NOT_YET
from weftline.windows.compaction.facts.statements import replaces
from weftline.windows.compaction.facts.subjects import (
    Subject,
    content_terms,
    is_change,
    replaced_terms,
    subjects_of,
    takes_back_last,
    words_listed,
)
from weftline.windows.compaction.model import STATED_KINDS, FactKind, binds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from weftline.windows.compaction.model import KeyFact

_STATEMENTS = STATED_KINDS | {FactKind.DEADLINE, FactKind.FACT}
_VALUES = frozenset({FactKind.QUANTITY, FactKind.DATE})
_OPEN = frozenset({FactKind.OPEN_QUESTION, FactKind.BLOCKER, FactKind.COMMITMENT})
# Share of the terms that the later text must have in common with the earlier one.
_NAMED_SHARE = 0.66
_CHANGED_SHARE = 0.4
_CLOSED_SHARE = 0.5
_ALIKE_SHARE = 0.5
# Only what is more probably a statement than not is compared by the classifier.
_STATED = 0.5
_MIN_SHARED = 2
# Only the newest facts with a term are compared.
_MAX_COMPARED = 24
CLOSING_WORDS = words_listed(
    """
    resolved fixed unblocked solved answered answer granted arrived merged cleared confirmed done available received
    closed delivered sent finished completed shipped deployed approved unlocked restored settled
    gelöst erledigt behoben geklärt freigegeben geliefert beantwortet
    résolu résolue débloqué débloquée réglé réglée livré répondu
    resuelto resuelta desbloqueado desbloqueada solucionado entregado respondido
    """
)
_STILL_OPEN = re.compile(
    r"\b(?:not|isn't|hasn't|aren't|haven't|wasn't|still|nicht|noch|kein\w*|pas|encore|no|aún|todavía|until|once|if|when|"
    r"will be|should be|waiting|bis|wenn|si|cuando)\b",
    re.IGNORECASE,
)


@dataclass(slots=True)
class FactLog:
    """The facts so far, in order, with their status."""

    facts: list[KeyFact] = field(default_factory=list)
    _is_data: list[bool] = field(default_factory=list)
    _by_text: dict[tuple[str, ...], int] = field(default_factory=dict)
    # Data and talk apart, so that data is not in the way of what is said before and after it.
    _by_subject: dict[tuple[bool, *tuple[str, ...]], tuple[int, Subject]] = field(default_factory=dict)
    _by_term: dict[str, list[int]] = field(default_factory=dict)
    _terms: dict[int, frozenset[str]] = field(default_factory=dict)
    _values: dict[int, ValuesRead] = field(default_factory=dict)
    # Terms of the newest texts: a fact is compared in several ways, one after the other.
    _newest_terms: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: Iterable[KeyFact]) -> FactLog:
        """Return the log of earlier facts."""
        log = cls()
        for fact in facts:
            log.add(fact, is_data=fact.is_of_tool)
        return log

    def add(self, fact: KeyFact, *, is_data: bool = False) -> None:
        """Add a fact unless it repeats a current one; earlier facts that it replaces are superseded.

        ``is_data``: it is from data, which replaces nothing but data.
        """
        if self._repeats(fact, is_data=is_data):
            return
        place = len(self.facts)
        self.facts.append(fact)
        self._is_data.append(is_data)
        if fact.kind in _STATEMENTS or fact.kind in _VALUES:
            self._supersede_same_subject(place, fact)
        if fact.kind in _STATEMENTS:
            self._supersede_named(place, fact)
            self._supersede_value(place, fact)
        if fact.kind in _STATEMENTS or fact.kind in _OPEN:
            self._index(place, fact)
        if fact.kind is FactKind.DECISION:
            self.close(fact.text, fact.event_ids[0], frozenset({FactKind.OPEN_QUESTION}), is_data=is_data)

    def close(self, text: str, event_id: str, kinds: Iterable[FactKind] = _OPEN, *, is_data: bool = False) -> None:
        """Resolve what a sentence answers, removes or fulfils."""
        if _STILL_OPEN.search(text):
            return
        terms = self._content_terms(text)
        for place in self._candidates(terms):
            fact = self.facts[place]
            if fact.kind not in kinds or fact.status != "current" or event_id in fact.event_ids:
                continue
            if is_data and not self._is_data[place]:
                continue
            own = self._terms[place]
            shared = own.intersection(terms)
            if len(shared) >= min(_MIN_SHARED, len(own)) and len(shared) >= _CLOSED_SHARE * len(own):
                self.facts[place] = structs.replace(fact, status="resolved", event_ids=(*fact.event_ids, event_id))

    def resolve_errors(self, clean: Mapping[str, str]) -> None:
        """Resolve errors of calls that succeeded later: ``clean`` is the event of the success by that of the error."""
        for place, fact in enumerate(self.facts):
            success = clean.get(fact.event_ids[0]) if fact.kind is FactKind.ERROR else None
            if success is not None:
                self.facts[place] = structs.replace(fact, status="resolved", event_ids=(*fact.event_ids, success))

    def _repeats(self, fact: KeyFact, *, is_data: bool) -> bool:
        key = _text_key(fact)
        before = self._by_text.get(key)
        if before is not None and self.facts[before].status == "current":
            # What data said first and somebody says now is theirs: later data must not replace it.
            is_covered = is_data or not self._is_data[before] or key[0] == "literal"
            if is_covered:
                return True
        self._by_text[key] = len(self.facts)
        for literal in fact.literals if binds(fact.kind, fact.probability) else ():
            # A literal of a statement is kept with it.
            self._by_text.setdefault(("literal", _literal_key(literal)), len(self.facts))
        return False

    def _supersede_same_subject(self, place: int, fact: KeyFact) -> None:
        is_data = self._is_data[place]
        for subject in subjects_of(fact):
            for is_before_data in {True, is_data}:
                before = self._by_subject.get((is_before_data, *subject.key))
                if before is not None and before[1].value != subject.value:
                    self._supersede(before[0], place)
            self._by_subject[is_data, *subject.key] = (place, subject)

    def _supersede_named(self, place: int, fact: KeyFact) -> None:
        """Supersede what a statement says that it replaces, or what it changes."""
        own = self._content_terms(fact.text)
        for named in replaced_terms(fact.text):
            found = self._newest(named, _NAMED_SHARE * len(named), before=place)
            if found is not None:
                self._supersede(found, place)
        least = max(_MIN_SHARED, _CHANGED_SHARE * len(own))
        if not is_change(fact.text):
            self._supersede_alike(place, own)
            return
        found = self._newest(own, least, before=place)
        if found is None and takes_back_last(fact.text):
            found = next(self._latest_of(fact.who, place), None)
        if found is not None:
            self._supersede(found, place)

    def _supersede_alike(self, place: int, terms: Sequence[str]) -> None:
        """Supersede the newest statement about the same that the classifier takes for replaced."""
        if self._is_data[place] or self.facts[place].probability < _STATED:
            return
        found = self._newest(terms, max(_MIN_SHARED, _ALIKE_SHARE * len(terms)), before=place)
        if found is None or self.facts[found].probability < _STATED:
            return
        fact = self.facts[place]
        # What has not happened yet changes nothing.
        if NOT_YET.search(fact.text) is None and replaces(fact.event_ids[0], fact.text, self.facts[found].text):
            self._supersede(found, place)

    def _supersede_value(self, place: int, fact: KeyFact) -> None:
        """Supersede the newest statement that gave another number, date or day for the same."""
        if self._is_data[place] or fact.probability < _STATED or (read := read_values(fact.text)) is None:
            return
        for before in self._candidates(self._content_terms(fact.text)):
            earlier = self._values.get(before)
            if earlier is None or self.facts[before].status != "current":
                continue
            if gives_another(read, earlier, partial(replaces, fact.event_ids[0], fact.text, self.facts[before].text)):
                self._supersede(before, place)
                break
        self._values[place] = read

    def _newest(self, terms: Sequence[str], least: float, before: int) -> int | None:
        """Return the newest current statement that shares at least so many terms."""
        for place in self._candidates(terms):
            fact = self.facts[place]
            is_candidate = place < before and fact.kind in _STATEMENTS and fact.status == "current"
            is_candidate = is_candidate and self._may_replace(place, before)
            if is_candidate and len(self._terms[place].intersection(terms)) >= max(least, 1):
                return place
        return None

    def _latest_of(self, who: str, before: int) -> Iterator[int]:
        for place in range(before - 1, max(-1, before - _MAX_COMPARED), -1):
            fact = self.facts[place]
            is_own = fact.who == who and self._may_replace(place, before)
            if is_own and fact.kind in _STATEMENTS and fact.status == "current":
                yield place

    def _may_replace(self, before: int, after: int) -> bool:
        return self._is_data[before] or not self._is_data[after]

    def _candidates(self, terms: Sequence[str]) -> list[int]:
        """Return the newest facts with any of the terms, newest first."""
        places = {place for term in terms for place in self._by_term.get(term, ())[-_MAX_COMPARED:]}
        return sorted(places, reverse=True)

    def _supersede(self, before: int, after: int) -> None:
        fact, later = self.facts[before], self.facts[after]
        # A number of a statement does not replace the statement that it is from.
        is_part = later.kind in _VALUES and fact.event_ids[0] == later.event_ids[0]
        if fact.status == "current" and not is_part:
            self.facts[before] = structs.replace(fact, status="superseded", superseded_by=later.fact_id)

    def _content_terms(self, text: str) -> tuple[str, ...]:
        if text not in self._newest_terms:
            if len(self._newest_terms) >= _MAX_COMPARED:
                self._newest_terms.clear()
            self._newest_terms[text] = content_terms(text)
        return self._newest_terms[text]

    def _index(self, place: int, fact: KeyFact) -> None:
        terms = frozenset(self._content_terms(fact.text))
        self._terms[place] = terms
        for term in terms:
            self._by_term.setdefault(term, []).append(place)


def _text_key(fact: KeyFact) -> tuple[str, ...]:
    if fact.kind in _STATEMENTS or fact.kind in _OPEN or fact.kind in {FactKind.ERROR, FactKind.PENDING_CALL}:
        return fact.kind, normal_line(fact.text).rstrip(".!?;,")
    if fact.kind in _VALUES:
        # The same value with the same first word of its clause is a repetition.
        terms = content_terms(fact.text)
        return "value", _literal_key(fact.literals[0]), *(sorted(terms)[:1] if len(terms) > _MIN_SHARED else ())
    return "literal", _literal_key(fact.literals[0] if fact.literals else fact.text)


def _literal_key(literal: str) -> str:
    return one_line(plain_form(literal))
