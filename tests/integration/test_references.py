"""References of queries, such as "the second option", resolved from recent items of the session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.world import SESSION
from weftline.search import retriever
from weftline.search.references import MAX_TOTAL_CHARACTERS, resolve_references

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.world import Caller, World
    from weftline.search.references import RecentItem, Reference

pytestmark = pytest.mark.req("CE-F14")


async def resolved(caller: Caller, query: str, **how: Any) -> list[tuple[str, str]]:
    found = await caller.call("search.query", query=query, **{"session_id": SESSION, **how})
    return [(each["phrase"], each["entity"]) for each in found.get("resolved", [])]


async def test_an_option_is_found_by_its_number(world: World) -> None:
    await world.planner.say("We could use PostgreSQL, SQLite or DynamoDB.")
    await world.planner.say("SQLite locked up in the load test.")
    await world.planner.say("The canteen is closed on Friday.")
    await world.index_sessions()
    query = {"query": "What happened to the second option?", "session_id": SESSION, "min_score": 0.0}
    found = await world.analysis.call("search.query", **query)
    (reference,) = found["resolved"]
    assert reference == {"phrase": "the second option", "entity": "option:SQLite", "source": f"message:{SESSION}/1"}
    assert found["results"][0]["text"] == "SQLite locked up in the load test."
    gathered = await world.analysis.call("search.get_context", **query)
    assert gathered["resolved"] == found["resolved"]


async def test_files_people_and_errors_are_resolved(world: World) -> None:
    await world.planner.say("Deploy failed:\nTimeoutError: no lock after 30 s")
    await world.planner.say("Maria changed src/deploy.py.")
    assert await resolved(world.analysis, "What caused the last error?") == [
        ("the last error", "error:TimeoutError: no lock after 30 s")
    ]
    assert await resolved(world.analysis, "What is in that file?") == [("that file", "file:src/deploy.py")]
    assert await resolved(world.analysis, "What did she change?") == [("she", "person:Maria")]
    assert await resolved(world.analysis, "Who changed it?") == [("it", "file:src/deploy.py")]


async def test_nothing_is_resolved_if_it_is_not_sure(world: World) -> None:
    await world.planner.say("Maria and Bob changed src/a.py and src/b.py.")
    for query in ("What did she change?", "Who owns that file?", "Is it raining?", "the second option", "plain words"):
        assert await resolved(world.analysis, query) == []
    # Only within a named session.
    await world.planner.say("See src/c.py.")
    assert await resolved(world.analysis, "Who owns that file?", session_id=None) == []
    assert await resolved(world.analysis, "Who owns that file?") == [("that file", "file:src/c.py")]


async def test_only_items_that_the_caller_may_read_are_meant(world: World) -> None:
    await world.planner.say("See src/open.py.")
    await world.planner.say("See src/secret.py.", visibility="private")
    assert await resolved(world.planner, "Who owns that file?") == [("that file", "file:src/secret.py")]
    assert await resolved(world.analysis, "Who owns that file?") == [("that file", "file:src/open.py")]
    await world.admin.call("records.redact", item_id=f"message:{SESSION}/1", state="removed", reason="secret")
    assert await resolved(world.analysis, "Who owns that file?") == []


async def test_own_events_are_meant_too(world: World) -> None:
    await world.planner.say("See src/message.py.")
    events = [{"event_id": "e1", "content": "The log is in logs/run.log."}]
    world.clock.advance(seconds=1)
    await world.analysis.call("context.ingest", session_id=SESSION, events=events)
    assert await resolved(world.analysis, "Who wrote that file?") == [("that file", "file:logs/run.log")]
    assert await resolved(world.planner, "Who wrote that file?") == [("that file", "file:src/message.py")]


async def test_tasks_of_prompts_are_resolved(world: World) -> None:
    await world.planner.say("Please look at src/billing.py.")
    task = {"session_id": SESSION, "task_description": "Review that file.", "token_budget": 4_000}
    assembled = await world.analysis.call("context.assemble", **task)
    assert assembled["resolved"] == [
        {"phrase": "that file", "entity": "file:src/billing.py", "source": f"message:{SESSION}/1"}
    ]


async def test_long_messages_of_others_are_not_read_without_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.planner.say("See src/old.py.")
    for _ in range(10):
        await world.analysis.say("May and Ada " * 700)
    read: list[int] = []

    def resolve(query: str, recent: Sequence[RecentItem], asker: str) -> list[Reference]:
        read.append(sum(len(item.text) for item in recent))
        return resolve_references(query, recent, asker)

    monkeypatch.setattr(retriever, "resolve_references", resolve)
    assert await resolved(world.planner, "Who owns that file?") == []
    assert read == [MAX_TOTAL_CHARACTERS]
