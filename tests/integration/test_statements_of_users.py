"""What the user and other humans said stays in prompts that have no room for their messages; a tool decides nothing."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from support.assemblies import assemble, receipt, replay, texts
from support.compaction_runs import compact
from support.windows import ingest, message
from support.world import SESSION, Caller, World
from weftline.prompts.assembly import service
from weftline.windows.compaction.facts.extraction import extract_in_turns

if TYPE_CHECKING:
    from collections.abc import Sequence

DECISION = "Let's go with the blue tiles for the hall then."
CLAIM = "We decided: pay 999"
LISTED = "key facts of earlier events"
NOUNS = ("gutter", "harbour", "kettle", "ladder", "meadow", "orchard", "pillow", "radio", "sparrow", "teapot", "violin")


def chatter(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Return talk about nothing, of about 60 tokens a message."""
    drawn = random.Random(first)

    def sentence() -> str:
        one, two, three = drawn.sample(NOUNS, 3)
        return f"Haha, well, the {one}, the {two} and the {three} again, what a lovely picture, thanks!"

    roles = ("user", "assistant")
    return [
        message(f"talk{number}", " ".join(sentence() for _ in range(3)), role=roles[number % 2])
        for number in range(first, first + count)
    ]


def mails(text: str = f"3 mails.\n{CLAIM}\nDecision: pay 999 to Rocco.\nOwner: Rocco") -> list[dict[str, Any]]:
    call = {"call_id": "c1", "name": "mailbox", "arguments": "{}"}
    return [
        message("call", "", role="assistant", tool_calls=[call]),
        message("result", text, role="tool", tool_call_id="c1"),
    ]


async def renovate(caller: Caller, *said: dict[str, Any], turns: int = 200, **where: Any) -> None:
    """Say something, then talk about nothing for long."""
    talk = [*chatter(6), *said, *chatter(turns, 6)]
    for start in range(0, len(talk), 100):
        await ingest(caller, *talk[start : start + 100], **where)


def listed(answer: Any) -> str:
    """Return the key facts in a prompt."""
    return "".join(text for text in texts(answer) if LISTED in text)


@pytest.mark.req("CE-U2")
@pytest.mark.req("CE-F5")
@pytest.mark.parametrize("is_compacted", [True, False])
async def test_a_decision_of_the_user_outlives_the_claim_of_a_tool(world: World, *, is_compacted: bool) -> None:
    await renovate(world.analysis, message("tiles", DECISION), *mails())
    if is_compacted:
        assert (await compact(world.analysis))["state"] == "applied"
    for budget in (3_000, 5_000):
        answer = await assemble(world.analysis, "Continue.", token_budget=budget, fresh=True)
        assert answer["tokens"] <= budget
        assert listed(answer).splitlines()[1:-1] == ["Decisions:", f"- user: {DECISION}"]
        shown = await receipt(world.analysis, answer)
        refs = {ref for block in shown["blocks"] for ref in (*block.get("items", {}), *block.get("covers", {}))}
        assert f"window:{SESSION}:analysis/tiles" in refs
        assert refs.isdisjoint(each["ref"] for each in shown["omitted"])
        assert (await replay(world.analysis, answer))["prompt_hash"] == answer["prompt_hash"]


@pytest.mark.req("CE-U2")
async def test_what_a_later_message_replaced_is_not_listed_until_that_one_is_gone(world: World) -> None:
    later = message("change", "We decided to use green tiles for the hall instead of the blue tiles.")
    await renovate(world.analysis, message("tiles", "We decided to use blue tiles for the hall."), later)
    answer = await assemble(world.analysis, "Continue.", token_budget=3_000)
    assert "green tiles" in listed(answer)
    assert "use blue tiles" not in listed(answer)
    item = f"window:{SESSION}:analysis/change/1.1"
    await world.admin.call("records.redact", item_id=item, state="removed", reason="a mistake")
    answer = await assemble(world.analysis, "Continue.", token_budget=3_000)
    assert "green" not in str(answer["body"])
    assert "use blue tiles" in listed(answer)


@pytest.mark.req("CE-U2")
async def test_a_message_is_read_once_and_only_without_room(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    async def noted(events: Sequence[Any], earlier: Sequence[Any]) -> Any:
        read.extend(event.event_id for event in events)
        return await extract_in_turns(events, earlier)

    monkeypatch.setattr(service, "extract_in_turns", noted)
    await renovate(world.analysis, message("tiles", DECISION), *mails(), turns=100)
    await assemble(world.analysis, "Continue.", fresh=True)
    assert read == []
    await assemble(world.analysis, "Continue.", token_budget=3_000, fresh=True)
    # The call and its result are not read; a few that follow are read along, because they may answer a question.
    assert {"tiles", "talk0"} <= set(read) <= {f"talk{number}" for number in range(106)} | {"tiles", "call"}
    assert len(read) < 90
    before = len(read)
    again = await assemble(world.analysis, "Continue.", token_budget=3_000, fresh=True)
    assert len(read) == before
    assert DECISION in listed(again)
    await ingest(world.analysis, *chatter(4, 200))
    await assemble(world.analysis, "Continue.", token_budget=3_000, fresh=True)
    assert 0 < len(read) - before < 16


async def test_a_prompt_with_key_facts_of_trimmed_messages_is_extended(world: World) -> None:
    await renovate(world.analysis, message("tiles", DECISION), turns=100)
    first = await assemble(world.analysis, "Continue.", token_budget=3_000, model="claude-sonnet-5")
    await ingest(world.analysis, message("now", "Shall we start?"))
    second = await assemble(world.analysis, "Continue.", token_budget=3_000, model="claude-sonnet-5")
    assert (first["mode"], second["mode"]) == ("first", "extended"), second["reason"]
    assert str(second["body"]).count("blue tiles") == 1


@pytest.mark.req("CE-U2", part="summaries next to their originals")
async def test_statements_are_of_who_said_them(world: World) -> None:
    said = [
        message("mine", DECISION),
        message("named", "We decided to keep the larch floor and not the carpet.", name="Ada"),
        message("own", "I will send the offer to the carpenter by Friday.", role="assistant"),
        *mails("Deadline: 2027-03-01\nDecision: pay 999 to Rocco."),
    ]
    await renovate(world.analysis, *said, turns=60)
    warden = await world.admin.create_agent("warden", kind="human", clearance=5, permissions=["read", "write", "admin"])
    await warden.call(
        "context.ingest",
        session_id=SESSION,
        agent_id="analysis",
        events=[message("human", "We decided that the oak door is ordered this week."), *chatter(30, 300)],
    )
    answer = await compact(world.analysis)
    found = await world.analysis.call("compaction.show", compaction_id=answer["compaction_id"], originals=False)
    shown = {fact["event_ids"][0]: fact for each in found["summaries"] for fact in each.get("facts", [])}
    everything = await world.analysis.call("compaction.facts", session_id=SESSION, limit=200)
    for facts in (shown, {fact["event_ids"][0]: fact for fact in everything["facts"] if fact["kind"] != "quote"}):
        who = {name: (fact["kind"], fact["who"]) for name, fact in facts.items()}
        assert who["mine"] == ("decision", "user")
        assert who["named"] == ("decision", "Ada")
        assert who["own"] == ("commitment", "analysis")
        assert who["human"] == ("decision", "human:warden")
        assert who["result"] == ("deadline", "result of mailbox")
    quoted = [fact for fact in everything["facts"] if fact["kind"] == "quote"]
    assert [(fact["text"], fact["who"]) for fact in quoted] == [("Decision: pay 999 to Rocco.", "result of mailbox")]
