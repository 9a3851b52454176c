"""The key facts that remain of summaries without room: the most binding kinds first, of each the newest."""

from __future__ import annotations

import pytest

from weft.capabilities.assembly.key_facts import chosen_facts
from weft.capabilities.compaction.model import FactKind, KeyFact


def fact(number: int, kind: FactKind, text: str = "We agreed on this in the meeting.") -> KeyFact:
    return KeyFact(fact_id=f"e{number}#1", kind=kind, text=text, who="a", at=number, event_ids=(f"e{number}",))


@pytest.mark.req("CE-E", part="over the limit")
def test_binding_kinds_come_first_and_of_each_the_newest() -> None:
    kinds = [FactKind.DECISION, FactKind.PREFERENCE, FactKind.OPEN_QUESTION, FactKind.ERROR]
    facts = [fact(number, kind) for number, kind in enumerate(kinds)]
    assert [each.at for each in chosen_facts(facts, 1_000, lambda tokens: tokens)] == [2, 0, 3, 1]
    assert {each.at for each in chosen_facts(facts, 24, lambda tokens: tokens)} == {0, 2}


def test_a_fact_that_does_not_fit_does_not_keep_others_out() -> None:
    facts = [fact(1, FactKind.DECISION), fact(2, FactKind.DECISION, "It was agreed at length. " * 100)]
    assert [each.at for each in chosen_facts(facts, 50, lambda tokens: tokens)] == [1]
