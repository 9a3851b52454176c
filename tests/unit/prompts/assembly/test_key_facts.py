"""The key facts that remain of what has no room: humans first, then the most binding kinds, of each the newest."""

from __future__ import annotations

import pytest

from support.window_events import assistant, from_user, result
from weftline.prompts.assembly.packers import FactsRoom, StatedFact, chosen_facts
from weftline.windows.compaction.model import RESULT_OF, FactKind, KeyFact
from weftline.windows.model import WindowEvent

AGREED = "We agreed on this in the meeting."


def stated(number: int, kind: FactKind, text: str = AGREED, event: WindowEvent | None = None) -> StatedFact:
    event = event or from_user(text)
    who = f"{RESULT_OF}query" if event.message.role == "tool" else "a"
    fact = KeyFact(fact_id=f"e{number}#1", kind=kind, text=text, who=who, at=number, event_ids=(f"e{number}",))
    return StatedFact(fact, event)


def chosen(statements: list[StatedFact], room: int, of_others: int = 1_000) -> list[int]:
    return [each.fact.at for each in chosen_facts(statements, FactsRoom(room, of_others), lambda tokens: tokens)]


@pytest.mark.req("CE-E", part="over the limit")
def test_binding_kinds_come_first_and_of_each_the_newest() -> None:
    kinds = [FactKind.DECISION, FactKind.PREFERENCE, FactKind.OPEN_QUESTION, FactKind.ERROR]
    facts = [stated(number, kind) for number, kind in enumerate(kinds)]
    assert chosen(facts, 1_000) == [2, 0, 3, 1]
    assert set(chosen(facts, 24)) == {0, 2}


def test_a_fact_that_does_not_fit_does_not_keep_others_out() -> None:
    facts = [stated(1, FactKind.DECISION), stated(2, FactKind.DECISION, "It was agreed at length. " * 100)]
    assert chosen(facts, 50) == [1]


@pytest.mark.req("CE-U2")
def test_the_user_comes_before_agents_and_a_tool_states_no_decision() -> None:
    of_tool = result("c1", AGREED)
    facts = [
        stated(1, FactKind.PREFERENCE),
        stated(2, FactKind.DECISION, event=assistant(AGREED)),
        stated(3, FactKind.DECISION, event=of_tool),
        stated(4, FactKind.ERROR, event=of_tool),
        stated(5, FactKind.OWNER, event=of_tool),
    ]
    assert chosen(facts, 1_000) == [1, 2, 4]


def test_others_than_humans_get_a_part_of_the_room_only() -> None:
    of_agents = [stated(number, FactKind.DECISION, event=assistant(AGREED)) for number in range(20)]
    of_humans = [stated(number, FactKind.DECISION) for number in range(100, 120)]
    found = chosen([*of_agents, *of_humans], 10_000, of_others=30)
    assert [number for number in found if number >= 100] == [*range(119, 99, -1)]
    assert 0 < len(found) - len(of_humans) <= 3
