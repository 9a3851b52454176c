"""Envelopes of turns, tasks and tool calls that the engine records where a session asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.assemblies import assemble, ingest
from support.bundles import exported, items, records
from weftline.kernel.errors import WeftlineError

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("AC-17")

ALL = ["turn", "task", "tool_invocation"]
CALL = {"call_id": "c1", "name": "berths", "arguments": '{"port":"Odda"}'}
ASKED = {"event_id": "asked", "role": "assistant", "content": "", "tool_calls": [CALL]}
ANSWERED = {"event_id": "answered", "role": "tool", "tool_call_id": "c1", "content": "Berth 9 is free."}
LINE = "window:quay:planner"


async def quay(world: World, *envelopes: str, **config: Any) -> Caller:
    """Return a member of a session that asks for these envelopes."""
    members = ["principal:analysis", "principal:planner"]
    await world.admin.create_session("quay", members=members, envelopes=envelopes, **config)
    return world.planner.in_session("quay")


async def envelopes_of(caller: Caller) -> list[dict[str, Any]]:
    """Return the envelopes of the session in the order of their making."""
    found = await caller.call("records.list", session_id="quay", types=["context_envelope"])
    return [each["record"] for each in sorted(found["records"], key=lambda each: each["seq"])]


def runtime(envelope: dict[str, Any]) -> dict[str, str]:
    return {each["kind"]: each["id"] for each in envelope["runtime_refs"]}


async def test_a_turn_has_an_envelope_of_what_was_sent_and_of_the_records_that_say_why(world: World) -> None:
    planner = await quay(world, "turn")
    await ingest(planner, {"event_id": "e1", "content": "The quokka crane is at berth 9."})
    answer = await assemble(planner, task="Where is the quokka crane?")
    (envelope,) = await envelopes_of(planner)
    assert (envelope["scope"], envelope["lifecycle"]) == ("turn", "assembled")
    assert f"{LINE}/e1/1.1" in envelope["item_refs"]
    receipt = answer["receipt_id"]
    assert envelope["assembly_refs"] == [f"receipt:{receipt}/assembly"]
    assert envelope["selection_refs"] == [f"receipt:{receipt}/selection"]
    assert runtime(envelope)["session"] == "quay"
    for kind, ids in (
        ("context_selection", envelope["selection_refs"]),
        ("context_assembly", envelope["assembly_refs"]),
    ):
        assert (await planner.call("records.show", type=kind, record_id=ids[0]))["record"]


async def test_a_tool_call_has_an_envelope_of_the_call_and_its_answer(world: World) -> None:
    planner = await quay(world, "tool_invocation")
    await ingest(planner, {"event_id": "e1", "content": "Which berth is free?"}, ASKED)
    assert await envelopes_of(planner) == []
    await ingest(planner, ANSWERED)
    await ingest(planner, ANSWERED)
    (envelope,) = await envelopes_of(planner)
    assert envelope["scope"] == "tool_invocation"
    assert envelope["item_refs"] == [f"{LINE}/asked/1.1", f"{LINE}/answered/1.1"]
    assert runtime(envelope) == {"session": "quay", "tool_call": "c1"}
    bundle = await exported(planner, session_id="quay")
    assert set(envelope["item_refs"]) <= items(bundle).keys()
    assert ("context_envelope", envelope["context_id"]) in records(bundle, "context_envelope")


async def test_messages_and_events_that_end_a_task_have_an_envelope(world: World) -> None:
    planner = await quay(world, "task", task_message_types=["moored"])
    asked = await planner.say("Please moor the quokka.")
    await planner.say("It is raining.", message_type="result")
    done = await world.analysis.in_session("quay").say("Done.", message_type="moored", parent_message_id=asked)
    await ingest(planner, {"event_id": "e1", "content": "Moor it."})
    ended = {"event_id": "e2", "content": "Moored.", "message_type": "moored", "references": ["e1"]}
    await ingest(planner, ended)
    of_message, of_event = await envelopes_of(world.admin)
    assert (of_message["scope"], of_event["scope"]) == ("task", "task")
    assert of_message["item_refs"] == [f"message:quay/{asked}", f"message:quay/{done}"]
    assert of_event["item_refs"] == [f"{LINE}/e1/1.1", f"{LINE}/e2/1.1"]


async def test_nothing_is_recorded_that_a_session_does_not_ask_for(world: World) -> None:
    planner = await quay(world)
    await ingest(planner, ASKED, ANSWERED)
    await planner.say("Done.", message_type="result")
    await assemble(planner, task="Which berth is free?")
    assert await envelopes_of(world.admin) == []


async def test_an_envelope_is_for_those_who_may_read_what_it_names(world: World) -> None:
    planner = await quay(world, *ALL)
    await ingest(planner, ASKED, ANSWERED)
    await assemble(planner, task="Which berth is free?")
    await planner.say("Done.", message_type="result", visibility="private")
    assert len(await envelopes_of(planner)) == 3
    assert len(await envelopes_of(world.admin)) == 2
    assert await envelopes_of(world.analysis) == []


async def test_an_envelope_is_stored_with_its_turn_or_not_at_all(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    planner = await quay(world, *ALL)

    async def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("weftline.models.sql.UsageStore.add", fail)
    with pytest.raises((OSError, WeftlineError)):
        await assemble(planner, task="Which berth is free?")
    assert await envelopes_of(world.admin) == []
    assert (await planner.call("receipt.list", session_id="quay"))["receipts"] == []


async def test_an_answer_of_a_tool_that_ends_a_task_has_the_envelopes_that_were_asked_for(world: World) -> None:
    planner = await quay(world, "task", task_message_types=["result"])
    await ingest(planner, ASKED, {**ANSWERED, "message_type": "result"})
    assert [each["scope"] for each in await envelopes_of(planner)] == ["task"]
