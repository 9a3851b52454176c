"""Statements are found in harmless spellings, and never after a number or a negation was changed."""

import re
from functools import cache

import pytest
from evals.compaction_sessions import SESSIONS, planted_session, statements

from support.conversations import Conversation
from weftline.windows.compaction.digest import LITERALS
from weftline.windows.compaction.facts.extraction import extract_facts
from weftline.windows.compaction.model import FactKind, KeyFact
from weftline.windows.compaction.verification import invented_literals, verify

_NEGATION = re.compile(
    r"\b(?:not|never|no|don't|can't|cannot|won't|mustn't|without|only|nicht|keine?|nie|niemals|ne|pas|jamais|nunca)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+")
_AUXILIARY = re.compile(r"\b(is|are|was|will|must|should|can|has|have|to|wird|ist|est|doit|debe|es)\b")


@cache
def facts() -> list[KeyFact]:
    texts = [*statements(), *statements(held_out=True)]
    for number in range(SESSIONS):
        texts += [event.message.content for event in planted_session(number).events if event.message.role != "tool"]
    found: dict[str, KeyFact] = {}
    for text in dict.fromkeys(texts):
        conversation = Conversation()
        conversation.user(text)
        found |= {fact.text: fact for fact in extract_facts(conversation.events)}
    return list(found.values())


def _is_found(text: str, fact: KeyFact) -> bool:
    return bool(verify(f"The weather was fine. {text}\nAnd so on.", [fact]).found)


def test_there_are_many_statements() -> None:
    assert len(facts()) > 400


@pytest.mark.req("CE-E", part="a summary that loses a fact")
def test_harmless_spellings_are_found() -> None:
    for fact in facts():
        assert _is_found(fact.text, fact), fact.text
        assert _is_found(f"- **{fact.text}**", fact), fact.text
        assert _is_found(fact.text.replace("'", "\u2019").replace(" ", "  "), fact), fact.text


@pytest.mark.req("CE-E", part="a summary that loses a fact")
def test_a_changed_number_is_never_found() -> None:
    changed = 0
    for fact in facts():
        for match in _NUMBER.finditer(fact.text):
            for other in (match[0] + "7", match[0][:-1], str(int(match[0]) + 1)):
                text = fact.text[: match.start()] + other + fact.text[match.end() :]
                if other != match[0]:
                    changed += 1
                    assert not _is_found(text, fact), (fact.text, text)
    assert changed > 500


@pytest.mark.req("CE-E", part="a summary that loses a fact")
def test_a_lost_or_added_negation_is_never_found() -> None:
    changed = 0
    for fact in facts():
        if fact.kind is FactKind.PENDING_CALL or fact.kind in LITERALS:
            continue
        mutants = [fact.text[: each.start()] + fact.text[each.end() :] for each in _NEGATION.finditer(fact.text)]
        mutants += [_AUXILIARY.sub(r"\1 not", fact.text, count=1)] if _AUXILIARY.search(fact.text) else []
        mutants.append(f"It is not true that {fact.text[0].lower()}{fact.text[1:]}")
        for text in mutants:
            changed += 1
            assert not _is_found(text, fact), (fact.kind, fact.text, text)
    assert changed > 300


def test_nothing_is_invented_in_the_source_itself() -> None:
    for fact in facts():
        assert invented_literals(fact.text, fact.text) == []
