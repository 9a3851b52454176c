"""Retrieval for a prompt: passages, pins, and the reason of every candidate that was left out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from support.assemblies import add_documents
from support.world import SESSION
from weftline.app.dispatch import CallContext
from weftline.kernel.clock import to_micros
from weftline.prompts.assembly.retrieval import RetrievalRequest, retrieve
from weftline.records.schemas import Redaction
from weftline.records.sql import RecordStore
from weftline.search.model import RankingWeights
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from support.world import Caller, World
    from weftline.prompts.assembly.retrieval import Retrieved
    from weftline.testing.clock import FrozenClock

pytestmark = pytest.mark.req("CE-F11")


async def retrieved(world: World, caller: Caller, task: str, *, min_score: float = 0.0, **options: Any) -> Retrieved:
    actor = await world.app.identify(CallContext(caller.credential))
    defaults = {"asked_at": to_micros(world.clock.now()), "max_tokens": 2_000}
    weights = RankingWeights(min_score=min_score)
    request = RetrievalRequest(task=task, weights=weights, **{**defaults, **options})
    return await retrieve(world.app.retriever, actor, request)


def texts(found: Retrieved) -> list[str]:
    return [passage.text for passage in found.passages]


def reasons(found: Retrieved) -> Counter[str]:
    return Counter(each.reason for each in found.omitted)


@pytest.mark.req("AC-06", part="the reason of every omitted candidate of a retrieval")
async def test_every_candidate_is_accounted_for_once(world: World) -> None:
    for number in range(12):
        await world.planner.write(f"key{number}", f"Tea number {number} is served at {number} o'clock.")
    await world.planner.say("The train leaves at noon.")
    await world.index_sessions()
    found = await retrieved(world, world.planner, "when is tea served", max_tokens=16)
    shown = [passage.chunk_id for passage in found.passages]
    omitted = [each.chunk_id for each in found.omitted]
    assert len({*shown, *omitted}) == len(shown) + len(omitted) == 13
    assert reasons(found)["budget"]
    assert found.passages[0].score >= found.passages[-1].score
    assert found.searched == 13


async def test_a_candidate_below_the_minimum_score_is_omitted_as_irrelevant(world: World) -> None:
    await world.planner.write("drink", "We drink tea in the garden at four.")
    await world.planner.write("train", "The train to the coast leaves at noon.")
    await world.index_sessions()
    found = await retrieved(world, world.planner, "Where do we drink tea in the garden?", min_score=0.8)
    assert texts(found) == ["We drink tea in the garden at four."]
    assert reasons(found) == {"low_relevance": 1}


async def test_a_text_that_repeats_a_better_one_is_omitted_as_duplicate(world: World) -> None:
    await add_documents(world, "Flights need the approval of a director.", "Flights need the approval of a director.")
    await add_documents(world, "Flights need the approval of a director in 2031.", domain="rules")
    found = await retrieved(world, world.planner, "Who approves flights?")
    assert len(texts(found)) == 2
    assert reasons(found) == {"duplicate_coverage": 1}
    assert any("2031" in text for text in texts(found))


async def test_texts_with_the_same_words_in_another_order_are_both_kept(world: World) -> None:
    await add_documents(world, "Dana checks the work of Bob.", "Bob checks the work of Dana.")
    found = await retrieved(world, world.planner, "Who checks whose work?")
    assert len(texts(found)) == 2


@pytest.mark.req("CE-F12", part="all pins in retrieval for prompts")
async def test_all_pins_come_back_beyond_the_maximum_of_the_plan(world: World) -> None:
    await add_documents(world, *(f"Rule {number} is about falcon{number}." for number in range(70)), pinned=True)
    await world.app.tenants.set_plan(world.tenant, "free")
    found = await retrieved(world, world.planner, "where is the canteen", max_tokens=16)
    assert sum(passage.pinned for passage in found.passages) == 70
    assert not found.pins_truncated


@pytest.mark.req("CE-F12", part="all pins in retrieval for prompts")
async def test_too_many_pins_are_reported(world: World) -> None:
    await add_documents(world, *(f"Rule {number} is about falcon{number}." for number in range(100)), pinned=True)
    for domain in ("more", "most"):
        await add_documents(world, *(f"{domain} {number}." for number in range(100)), domain=domain, pinned=True)
    found = await retrieved(world, world.planner, "where is the canteen", max_tokens=16)
    assert sum(passage.pinned for passage in found.passages) == 256
    assert found.pins_truncated
    assert len(found.omitted) == 44


async def test_the_plan_limits_the_passages(world: World) -> None:
    for number in range(12):
        await world.planner.write(f"key{number}", f"Tea is served at {number} o'clock.")
    await world.index_sessions()
    await world.app.tenants.set_plan(world.tenant, "free")
    found = await retrieved(world, world.planner, "when is tea served")
    assert len(found.passages) == 5
    assert reasons(found) == {"budget": 7}


async def test_passages_that_cannot_be_read_any_more_are_omitted_without_content(world: World) -> None:
    for key in ("redacted", "deleted", "hidden", "kept"):
        await world.planner.write(key, f"Tea is served at four, {key}.")
    await world.index_sessions()
    # Redacted by another process, whose index entry is still there.
    redaction = Redaction(f"board:{SESSION}/redacted/1.1", SESSION, "removed", "manual", "secret", "orchestrator", 0)
    await world.app.database.write(Scope(world.tenant), lambda tx: RecordStore(tx).redact(redaction))
    await world.planner.delete("deleted")
    await world.planner.write("hidden", "Tea is served at five.", readable_by=["orchestrator"])
    found = await retrieved(world, world.analysis, "when is tea served", session_id=SESSION)
    assert texts(found) == ["Tea is served at four, kept."]
    assert reasons(found) == {"policy_block": 1, "stale_source": 2}


async def test_a_message_that_became_private_is_a_missing_permission_without_an_id(world: World) -> None:
    number = await world.planner.say("Tea is served at four.")
    await world.index_sessions()
    # Before the index follows.
    await world.sql("UPDATE messages SET audience = 'orchestrator' WHERE message_id = $1", number)
    found = await retrieved(world, world.analysis, "when is tea served", session_id=SESSION)
    assert found.passages == []
    assert [(each.chunk_id, each.reason) for each in found.omitted] == [(None, "missing_permission")]


async def test_a_passage_has_its_surroundings(world: World) -> None:
    for text in ("What about the garden?", "Tea is served at four.", "Good, I will be there."):
        await world.planner.say(text)
    await world.index_sessions()
    found = await retrieved(world, world.planner, "when is tea served", min_score=0.9)
    (passage,) = found.passages
    assert (passage.source, passage.uri, passage.tokens) == ("message", f"message:{SESSION}/2", 6)
    assert [(each.passage.text, each.distance) for each in passage.surroundings] == [
        ("What about the garden?", 1),
        ("Good, I will be there.", 1),
    ]


async def test_a_long_task_finds_what_only_one_of_its_sentences_is_about(world: World) -> None:
    await world.planner.write("tea", "Tea is served in the garden at four.")
    await world.planner.write("heron", "The heron turbine of Orkney needs a new bearing.")
    await world.index_sessions()
    filler = "Follow the usual rules of the team and write clear text. " * 200
    task = f"Draft a report. {filler}The heron turbine of Orkney failed its inspection. {filler}Be brief."
    found = await retrieved(world, world.planner, task, min_score=0.5)
    assert len(found.queries) == 3
    assert found.passages[0].text.startswith("The heron turbine")


async def test_without_evidence_no_passage_is_retrieved(world: World) -> None:
    await world.planner.say("The train leaves at noon.")
    await world.index_sessions()
    found = await retrieved(world, world.planner, "falcon", min_score=1.0)
    assert (found.fallback, texts(found)) == ("recency", [])


async def test_the_same_state_and_request_give_the_same_result(world: World, clock: FrozenClock) -> None:
    for number in range(30):
        await world.planner.write(f"key{number}", "Tea is served in the garden.")
        await world.planner.say("Tea is served in the garden.")
    await world.index_sessions()
    asked_at = to_micros(world.clock.now())
    first = await retrieved(world, world.planner, "when is tea served", asked_at=asked_at)
    clock.advance(days=90)
    again = await retrieved(world, world.planner, "when is tea served", asked_at=asked_at)
    other_process = await world.another_app()
    actor = await world.app.identify(CallContext(world.planner.credential))
    request = RetrievalRequest(
        task="when is tea served", asked_at=asked_at, max_tokens=2_000, weights=RankingWeights(min_score=0.0)
    )
    elsewhere = await retrieve(other_process.retriever, actor, request)
    assert first.passages == again.passages == elsewhere.passages
    assert first.omitted == again.omitted == elsewhere.omitted
