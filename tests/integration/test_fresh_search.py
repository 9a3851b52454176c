"""Fresh searches: what a caller wrote is found by its next search; nobody waits for the writes of others."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from support.contexts import knowledge_entry, push
from support.indexed_items import ScriptedEmbeddings
from weft.jobs.session_indexing import EVENT_DELAY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from support.world import Caller, World
    from weft.app.app import App

pytestmark = [pytest.mark.req("CE-F11"), pytest.mark.req("CE-U8"), pytest.mark.both_databases]
WAIT_MS = 300
# What a busy machine adds to any call.
SLACK = 0.5


class SlowEmbeddings(ScriptedEmbeddings):
    """Takes a while for every text, like a large model."""

    seconds = 0.003

    async def of_passages(self, tenant: str, texts: Sequence[str], model: str, **options: Any) -> list[bytes]:
        await asyncio.sleep(self.seconds * len(texts))
        return await super().of_passages(tenant, texts, model, **options)


async def indexing_app(world: World, **settings: Any) -> App:
    """Open an App that indexes in the background, without a model."""
    app = await world.another_app(session_indexing="on", **{"search_wait_ms": WAIT_MS, **settings})
    embeddings: Any = SlowEmbeddings()
    app.session_indexing._embeddings = embeddings
    return app


async def found(caller: Caller, query: str, **options: Any) -> set[str]:
    """Return the texts that a search finds by words."""
    answer = await caller.call("search.query", query=query, low_confidence=True, **options)
    return {result["text"] for result in answer["results"]}


async def timed(call: Awaitable[Any]) -> float:
    started = time.monotonic()
    await call
    return time.monotonic() - started


async def test_what_i_wrote_is_found_by_my_next_search(world: World) -> None:
    planner = world.planner.at(await indexing_app(world))
    await found(planner, "warm up")
    started = time.monotonic()
    await planner.say("the apricot message")
    assert "the apricot message" in await found(planner, "apricot")
    await planner.write("fruit", "the apricot key")
    assert "the apricot key" in await found(planner, "apricot")
    await planner.remember("fruit", "the apricot memory")
    assert "the apricot memory" in await found(planner, "apricot")
    await push(planner, knowledge_entry("fruit", "the apricot fact"), if_version=0)
    assert "the apricot fact" in await found(planner, "apricot")
    event = {"event_id": "e1", "role": "user", "content": "the apricot event"}
    await planner.call("context.ingest", session_id=planner.session, events=[event])
    assert "the apricot event" in await found(planner, "apricot")
    await planner.delete("fruit")
    assert "the apricot key" not in await found(planner, "apricot")
    # Not because the indexer happened to come by.
    assert time.monotonic() - started < 6 * EVENT_DELAY_SECONDS


async def test_what_was_waited_for_is_not_pending(world: World) -> None:
    app = await indexing_app(world)
    planner = world.planner.at(app)
    await app.scheduler.drain("search.index_sessions")
    await planner.say("the apricot message")
    answer = await planner.call("search.query", query="apricot")
    assert answer["results"][0]["text"] == "the apricot message"
    assert "pending" not in answer


async def test_it_is_found_through_another_process_as_well(world: World) -> None:
    one, other = await indexing_app(world), await indexing_app(world)
    await found(world.planner.at(other), "warm up")
    for number in range(3):
        await world.planner.at(one).say(f"the apricot {number}")
        assert f"the apricot {number}" in await found(world.planner.at(other), "apricot")


async def test_the_wait_is_bounded_and_pending_tells_what_is_missing(world: World) -> None:
    app = await indexing_app(world)
    app.scheduler.paused.add("search.index_sessions")
    planner = world.planner.at(app)
    await found(planner, "warm up")
    await planner.say("the apricot message")
    started = time.monotonic()
    answer = await planner.call("search.query", query="apricot")
    assert WAIT_MS / 1000 <= time.monotonic() - started < WAIT_MS / 1000 + SLACK
    assert answer["pending"]["events"] == 1
    # It does not wait again for what does not come, not even for something newer.
    await planner.say("another message")
    assert await timed(planner.call("search.query", query="apricot")) < WAIT_MS / 1000
    # It waits again once the index has caught up.
    app.scheduler.paused.clear()
    await app.scheduler.drain("search.index_sessions")
    await planner.say("the third apricot")
    assert "the third apricot" in await found(planner, "apricot")


async def test_nobody_waits_for_the_writes_of_others(world: World) -> None:
    app = await indexing_app(world)
    app.scheduler.paused.add("search.index_sessions")
    planner, analysis = world.planner.at(app), world.analysis.at(app)
    # Another top-level agent has the same participant name.
    twin = (await world.admin.at(app).create_agent("twin", agent_type="planning")).at(app)
    await found(planner, "warm up")
    for number in range(3):
        await analysis.say(f"the apricot {number}")
        await world.stranger.at(app).call("memory.set", key="k", value=number)
        await twin.call("memory.set", key="k", value=number)
    for query in ("apricot", "plum"):
        assert await timed(planner.call("search.query", query=query)) < WAIT_MS / 1000


async def test_a_wait_of_zero_is_none(world: World) -> None:
    app = await indexing_app(world, search_wait_ms=0)
    app.scheduler.paused.add("search.index_sessions")
    planner = world.planner.at(app)
    await found(planner, "warm up")
    await planner.say("the apricot message")
    assert await timed(planner.call("search.query", query="apricot")) < WAIT_MS / 1000


async def test_my_write_is_found_during_a_flood_of_another_agent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.app.search.service._MAX_PENDING", 5)
    app = await indexing_app(world)
    planner, analysis = world.planner.at(app), world.analysis.at(app)
    await found(planner, "warm up")
    # Seconds of work for the indexer, and more events than a search looks at.
    flood = [{"event_id": f"e{number}", "role": "user", "content": f"noise {number}"} for number in range(60)]
    for number in range(25):
        events = [{**event, "event_id": f"{number}-{event['event_id']}"} for event in flood]
        await analysis.call("context.ingest", session_id=analysis.session, events=events)
    await planner.remember("fruit", "the apricot memory")
    # Nothing of its own is missing from these messages.
    assert await timed(planner.call("search.query", query="plum", sources=["message"])) < WAIT_MS / 1000
    waits = []
    while len(waits) < 20 and not await found(planner, "apricot", sources=["memory"]):
        waits.append(await timed(planner.call("search.query", query="apricot")))
    assert "the apricot memory" in await found(planner, "apricot", sources=["memory"])
    assert max(waits, default=0.0) < WAIT_MS / 1000 + SLACK
    assert await world.rows(
        "SELECT COUNT(*) FROM chunks WHERE tenant = $1 AND collection = 'windows' HAVING COUNT(*) < 1500", world.tenant
    )
