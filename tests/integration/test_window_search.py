"""Search over the events of an agent's own windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.world import SESSION, refused
from weftline.app.dispatch import CallContext
from weftline.kernel.clock import to_micros
from weftline.prompts.assembly.retrieval import RetrievalRequest, retrieve
from weftline.search.model import RankingWeights

if TYPE_CHECKING:
    from support.world import Caller, World
    from weftline.prompts.assembly.retrieval import Retrieved

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.req("CE-F11", part="search of an agent's own conversation"),
]
WINDOW = f"window:{SESSION}:analysis"


async def ingest(caller: Caller, *contents: str, first: int = 1, **fields: Any) -> None:
    events = [
        {"event_id": f"e{number}", "content": content, **fields} for number, content in enumerate(contents, start=first)
    ]
    await caller.call("context.ingest", session_id=caller.session, events=events)


async def searched(caller: Caller, query: str, **how: Any) -> Any:
    return await caller.call("search.query", query=query, low_confidence=True, explain=True, **how)


async def texts(caller: Caller, query: str, **how: Any) -> list[str]:
    return [result["text"] for result in (await searched(caller, query, **how))["results"]]


async def retrieved(world: World, caller: Caller, task: str, **options: Any) -> Retrieved:
    actor = await world.app.identify(CallContext(caller.credential))
    request = RetrievalRequest(
        task=task,
        asked_at=to_micros(world.clock.now()),
        max_tokens=2_000,
        weights=RankingWeights(min_score=0.0),
        **options,
    )
    return await retrieve(world.app.retriever, actor, request)


async def test_an_event_is_found_with_its_session_agent_and_id(world: World) -> None:
    await ingest(world.analysis, "The canary release is on Tuesday.", name="dana")
    await world.index_sessions()
    (result,) = (await searched(world.analysis, "when is the canary release"))["results"]
    assert (result["source"], result["session_id"], result["agent_id"]) == ("event", SESSION, "analysis")
    assert (result["event_id"], result["speaker"]) == ("e1", "dana")
    assert result["source_ref"]["uri"] == f"{WINDOW}/e1/1.1"


async def test_tool_calls_are_found_by_their_arguments(world: World) -> None:
    calls = [{"call_id": "c1", "name": "lookup", "arguments": '{"turbine": "heron"}'}]
    await ingest(world.analysis, "", role="assistant", tool_calls=calls)
    await world.index_sessions()
    assert await texts(world.analysis, "heron turbine") == ['lookup {"turbine": "heron"}']


async def test_only_the_agent_itself_finds_its_events(world: World) -> None:
    await ingest(world.analysis, "The canary release is on Tuesday.")
    await world.index_sessions()
    for other in (world.planner, world.admin, world.review):
        found = await searched(other, "canary release")
        assert (found["results"], found["searched"]) == ([], 0)
        assert await texts(other, "canary release", session_id=SESSION) == []


async def test_unindexed_events_are_pending_for_their_agent_only(world: World) -> None:
    await world.index_sessions()
    world.app.scheduler.paused |= {"search.index_sessions", "search.embed_sessions"}
    await ingest(world.analysis, "The canary release is on Tuesday.")
    assert (await searched(world.analysis, "canary"))["pending"]["events"] > 0
    assert "pending" not in await searched(world.admin, "canary")


async def test_a_chunk_of_a_window_is_open_to_those_who_may_open_the_window(world: World) -> None:
    await ingest(world.analysis, "The canary release is on Tuesday.")
    await world.index_sessions()
    ref = (await searched(world.analysis, "canary"))["results"][0]["ref"]
    assert "canary" in (await world.analysis.call("search.get_context", ref=ref))["context"]
    with refused("CHUNK_NOT_FOUND"):
        await world.review.call("search.get_context", ref=ref)


async def test_a_context_shows_an_event_among_those_around_it(world: World) -> None:
    await ingest(world.analysis, "When is it?", "The canary release is on Tuesday.", "Good to know.")
    await world.index_sessions()
    built = await world.analysis.call("search.get_context", query="canary release", min_score=0.8)
    assert built["context"].endswith("user: When is it?\nuser: The canary release is on Tuesday.\nuser: Good to know.")


async def test_internal_events_are_not_found(world: World) -> None:
    await ingest(world.analysis, "The canary step has started.", kind="workflow")
    await world.index_sessions()
    assert await texts(world.analysis, "canary step") == []


async def test_a_large_tool_output_is_found_by_its_parts(world: World) -> None:
    filler = "Nothing of note was logged in this hour. " * 100
    await ingest(world.analysis, f"{filler}The heron turbine failed at noon. {filler}", role="tool", tool_call_id="c")
    await world.index_sessions()
    best = (await searched(world.analysis, "when did the heron turbine fail"))["results"][0]
    assert "heron turbine failed" in best["text"]
    assert len(best["text"]) < 2_000


async def test_many_events_of_one_call_are_all_indexed(world: World) -> None:
    await ingest(world.analysis, *(f"Turbine heron{number} was inspected." for number in range(100)))
    await world.index_sessions()
    found = await searched(world.analysis, "which turbine was inspected", top_k=100)
    assert found["searched"] == 100
    assert (await texts(world.analysis, "heron99"))[0] == "Turbine heron99 was inspected."


async def test_events_that_were_rolled_back_are_not_found(world: World) -> None:
    await ingest(world.analysis, "The canary release is on Tuesday.")
    await ingest(world.analysis, "The canary release is on Friday.", first=2)
    await world.index_sessions()
    assert len(await texts(world.analysis, "canary release")) == 2
    await world.admin.call("history.rollback", context_id=WINDOW, target_version="1")
    assert await texts(world.analysis, "canary release") == ["The canary release is on Tuesday."]
    await world.index_sessions()
    found = await searched(world.analysis, "canary release")
    assert ([result["text"] for result in found["results"]], found["searched"]) == (
        ["The canary release is on Tuesday."],
        1,
    )


async def test_a_redacted_event_is_not_found(world: World) -> None:
    await ingest(world.analysis, "The pin of the safe is 4711.")
    await world.index_sessions()
    item = f"{WINDOW}/e1/1.1"
    await world.admin.call("records.redact", item_id=item, state="removed", reason="a secret")
    found = await searched(world.analysis, "pin of the safe")
    assert (found["results"], found["searched"]) == ([], 0)
    await world.index_sessions()
    assert await texts(world.analysis, "pin of the safe") == []


async def test_events_are_deleted_with_their_session(world: World) -> None:
    await ingest(world.analysis, "The canary release is on Tuesday.")
    await world.index_sessions()
    await world.admin.call("session.delete", session_id=SESSION, force=True)
    assert await texts(world.analysis, "canary release") == []
    assert await world.rows("SELECT number FROM chunks WHERE collection = 'windows'") == []


async def test_windows_of_other_sessions_are_found_unless_a_session_is_named(world: World) -> None:
    other = await world.planner.create_session("s2")
    await ingest(world.analysis, "The canary release is on Tuesday.")
    await ingest(world.analysis.in_session(other.session), "The canary release was on Monday.")
    await world.index_sessions()
    assert len(await texts(world.analysis, "canary release")) == 2
    assert await texts(world.analysis, "canary release", session_id="s2") == ["The canary release was on Monday."]


async def test_who_joins_a_window_finds_its_events_until_it_leaves(world: World) -> None:
    await ingest(world.analysis, "The canary release is on Tuesday.")
    await ingest(world.review, "The falcon release is on Friday.")
    here = {"session_id": SESSION, "agent_id": "review-2"}
    await world.planner.call("window.join", with_agent_id="analysis", **here)
    await ingest(world.review, "The heron release is on Monday.", first=2)
    await world.index_sessions()
    for agent in (world.analysis, world.review):
        assert sorted(await texts(agent, "release")) == [
            "The canary release is on Tuesday.",
            "The heron release is on Monday.",
        ]
    await world.planner.call("window.leave", **here)
    assert await texts(world.review, "release") == ["The falcon release is on Friday."]


async def test_events_of_a_deleted_window_are_not_found(world: World) -> None:
    await ingest(world.analysis, "The canary release is on Tuesday.")
    await world.index_sessions()
    await world.planner.call("window.delete", session_id=SESSION, agent_id="analysis")
    assert await texts(world.analysis, "canary release") == []
    assert await world.rows("SELECT number FROM chunks WHERE collection = 'windows'") == []


async def test_inherited_events_of_a_new_window_are_found(world: World) -> None:
    await ingest(world.planner, "The canary release is on Tuesday.", category="CONTEXT")
    await ingest(world.analysis, "Understood.", first=9)
    await world.index_sessions()
    assert (await texts(world.analysis, "canary release"))[0] == "The canary release is on Tuesday."


async def test_a_source_ref_of_an_event_resolves_to_its_text(world: World) -> None:
    await ingest(world.analysis, "It was late. The canary release is on Tuesday.")
    await world.index_sessions()
    ref = (await searched(world.analysis, "canary release"))["results"][0]["ref"]
    resolved = await world.analysis.call("records.resolve", source_id=ref)
    assert resolved["outcome"] == "exact"


async def test_reindexing_covers_windows(world: World) -> None:
    await ingest(world.analysis, "The canary release is on Tuesday.", "It was late.")
    await world.index_sessions()
    before = await world.rows("SELECT number FROM chunks WHERE collection = 'windows' ORDER BY number")
    await world.admin.call("knowledge.reindex_all")
    await world.index_sessions()
    after = await world.rows("SELECT number FROM chunks WHERE collection = 'windows' ORDER BY number")
    assert len(after) == len(before) == 2
    assert {row[0] for row in after}.isdisjoint(row[0] for row in before)


async def test_pinned_events_come_with_searches_of_their_session(world: World) -> None:
    await ingest(world.analysis, "Never send figures by mail.", pinned=True)
    await world.index_sessions()
    found = await retrieved(world, world.analysis, "where is the canteen", session_id=SESSION)
    assert [(passage.text, passage.pinned) for passage in found.passages] == [("Never send figures by mail.", True)]


async def test_an_ancestor_retrieves_from_a_window_that_it_names(world: World) -> None:
    await ingest(world.analysis, "The canary release is on Tuesday.")
    await world.index_sessions()
    named = await retrieved(world, world.planner, "canary release", session_id=SESSION, window=f"{SESSION}:analysis")
    assert [passage.text for passage in named.passages] == ["The canary release is on Tuesday."]
    assert (await retrieved(world, world.planner, "canary release", session_id=SESSION)).passages == []
