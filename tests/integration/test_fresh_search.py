"""Fresh searches: what a caller wrote is found by its next search; nobody waits for the writes of others."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from support.contexts import knowledge_entry, push
from support.indexed_items import ScriptedEmbeddings, check_index_complete, unembedded
from weftline.kernel.job_store import JobStore
from weftline.search.session_cursor import EMBEDDING_JOB, VectorBacklog
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from support.world import Caller, World
    from weftline.app.app import App
    from weftline.jobs.runner import Lease

pytestmark = [pytest.mark.req("CE-F11"), pytest.mark.req("CE-U8")]
# Where waiting ends when the index has what the caller wrote: longer than that takes on any machine.
LONG_MS = 60_000
# Texts, and searches that share no word with them.
PARAPHRASES = (
    ("I prefer my espresso very strong and without sugar", "how do I like hot drinks?"),
    ("The invoice printer in the warehouse is broken since Monday", "which office equipment does not work?"),
)


class SlowEmbeddings(ScriptedEmbeddings):
    """Takes a while for every text, like a large model."""

    seconds = 0.003

    async def of_passages(self, tenant: str, texts: Sequence[str], model: str, **options: Any) -> list[bytes]:
        await asyncio.sleep(self.seconds * len(texts))
        return await super().of_passages(tenant, texts, model, **options)


async def indexing_app(world: World, **settings: Any) -> App:
    """Open an App that indexes in the background, without a model."""
    app = await world.another_app(session_indexing="on", **{"search_wait_ms": LONG_MS, **settings})
    embeddings: Any = SlowEmbeddings()
    app.session_indexing._embeddings = app.session_vectors._embeddings = embeddings
    return app


def waits_of(app: App) -> list[Sequence[int]]:
    """Return the list to which each wait of a search from now on adds the events it waits for."""
    waits: list[Sequence[int]] = []
    index_next = app.session_indexing.index_next

    def noted(tenant: str, seqs: Sequence[int]) -> asyncio.Future[None]:
        waits.append(seqs)
        return index_next(tenant, seqs)

    app.session_indexing.index_next = noted  # type: ignore[method-assign]
    return waits


def waits_for_vectors_of(app: App) -> list[Mapping[str, int]]:
    """Return the list to which each look of a waiting search from now on adds the chunks whose vectors it waits for."""
    waits: list[Mapping[str, int]] = []
    embed_next = app.session_vectors.embed_next

    def noted(tenant: str, chunks: Mapping[str, int]) -> None:
        waits.append(chunks)
        embed_next(tenant, chunks)

    app.session_vectors.embed_next = noted  # type: ignore[method-assign]
    return waits


async def found(caller: Caller, query: str, **options: Any) -> set[str]:
    """Return the texts that a search finds by words."""
    answer = await caller.call("search.query", query=query, low_confidence=True, **options)
    return {result["text"] for result in answer["results"]}


async def test_what_i_wrote_is_found_by_my_next_search(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not because the indexer happened to come by.
    monkeypatch.setattr("weftline.jobs.session_indexing.EVENT_DELAY_SECONDS", 3_600.0)
    monkeypatch.setattr("weftline.jobs.scheduler._FIRST_POLL_SECONDS", 3_600.0)
    planner = world.planner.at(await indexing_app(world))
    await found(planner, "warm up")
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
    app = await indexing_app(world, search_wait_ms=300)
    app.scheduler.paused.add("search.index_sessions")
    planner, waits = world.planner.at(app), waits_of(app)
    await found(planner, "warm up")
    await planner.say("the apricot message")
    started = time.monotonic()
    answer = await planner.call("search.query", query="apricot")
    assert time.monotonic() - started >= 0.3
    assert answer["pending"]["events"] == 1
    assert len(waits) == 1
    # It does not wait again for what does not come, not even for something newer.
    await planner.say("another message")
    await planner.call("search.query", query="apricot")
    assert len(waits) == 1
    # It waits again once the index has caught up.
    app.scheduler.paused.clear()
    await app.scheduler.drain("search.index_sessions")
    app.index_wait._seconds = LONG_MS / 1_000
    await planner.say("the third apricot")
    assert "the third apricot" in await found(planner, "apricot")


async def test_nobody_waits_for_the_writes_of_others(world: World) -> None:
    app = await indexing_app(world)
    app.scheduler.paused.add("search.index_sessions")
    planner, analysis = world.planner.at(app), world.analysis.at(app)
    # Another top-level agent has the same participant name.
    twin = (await world.admin.at(app).create_agent("twin", agent_type="planning")).at(app)
    await found(planner, "warm up")
    waits = waits_of(app)
    for number in range(3):
        await analysis.say(f"the apricot {number}")
        await world.stranger.at(app).call("memory.set", key="k", value=number)
        await twin.call("memory.set", key="k", value=number)
    for query in ("apricot", "plum"):
        await planner.call("search.query", query=query)
    assert waits == []


async def test_a_wait_of_zero_is_none(world: World) -> None:
    app = await indexing_app(world, search_wait_ms=0)
    app.scheduler.paused.add("search.index_sessions")
    planner, waits = world.planner.at(app), waits_of(app)
    await planner.say("the apricot message")
    await planner.call("search.query", query="apricot")
    assert waits == []


async def test_my_write_is_found_during_a_flood_of_another_agent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.app.search.service._MAX_PENDING", 5)
    app = await indexing_app(world)
    planner, analysis = world.planner.at(app), world.analysis.at(app)
    await found(planner, "warm up")
    app.scheduler.paused.add("search.index_sessions")
    # Seconds of work for the indexer, and more events than a search looks at.
    flood = [{"event_id": f"e{number}", "role": "user", "content": f"noise {number}"} for number in range(60)]
    for number in range(25):
        events = [{**event, "event_id": f"{number}-{event['event_id']}"} for event in flood]
        await analysis.call("context.ingest", session_id=analysis.session, events=events)
    await planner.remember("fruit", "the apricot memory")
    waits = waits_of(app)
    # Nothing of its own is missing from these messages.
    await planner.call("search.query", query="plum", sources=["message"])
    assert waits == []
    going_on = one_step_for_a_wait(app)
    app.scheduler.paused.clear()
    assert "the apricot memory" in await found(planner, "apricot", sources=["memory"])
    assert await world.rows(
        "SELECT COUNT(*) FROM chunks WHERE tenant = $1 AND collection = 'windows' HAVING COUNT(*) < 1500", world.tenant
    )
    going_on.set()


def one_step_for_a_wait(app: App) -> asyncio.Event:
    """Let the indexer go on after the step that a search waits for only when the returned event is set."""
    going_on, step = asyncio.Event(), app.session_indexing._step

    async def single(lease: Lease, job: str) -> bool:
        is_awaited = lease.tenant in app.session_indexing._awaited
        has_more = await step(lease, job)
        if is_awaited:
            await going_on.wait()
        return has_more

    app.session_indexing._step = single  # type: ignore[method-assign]
    return going_on


async def test_what_i_wrote_is_found_by_its_meaning_by_my_next_search(world: World) -> None:
    planner = world.planner.at(await world.another_app(session_indexing="on", search_wait_ms=LONG_MS))
    for number, (text, query) in enumerate(PARAPHRASES):
        await planner.remember(f"k{number}", text)
        answer = await planner.call("search.query", query=query)
        assert [result["text"] for result in answer["results"][:1]] == [text]
        assert "pending" not in answer
    await planner.write("cause", "The price cache was cut from five minutes to three seconds.")
    answer = await planner.call("search.query", query="why did looking up costs get slow?", explain=True)
    assert answer["results"][0]["signals"]["semantic"] > 0
    assert "pending" not in answer


async def test_what_is_found_by_its_words_only_is_said_and_waited_for_once(world: World) -> None:
    app = await world.another_app(session_indexing="on", search_wait_ms=200)
    app.scheduler.paused.add("search.embed_sessions")
    planner, (text, query) = world.planner.at(app), PARAPHRASES[0]
    # Loads the model.
    await planner.call("search.query", query="warm up")
    await planner.remember("drink", text)
    await app.scheduler.drain("search.index_sessions")
    waits = waits_for_vectors_of(app)
    answer = await planner.call("search.query", query=query)
    assert waits
    assert answer["pending"] == {"by_words": True}
    assert answer["unsure"]
    assert "again in a moment" in answer["hint"]
    assert text in await found(planner, "espresso")
    waits.clear()
    await planner.call("search.query", query=query)
    assert waits == []
    # Others neither wait nor learn of it.
    assert "pending" not in await world.analysis.at(app).call("search.query", query=query)
    app.scheduler.paused.clear()
    await app.scheduler.drain("search.embed_sessions")
    answer = await planner.call("search.query", query=query)
    assert answer["results"][0]["text"] == text
    assert "pending" not in answer


async def test_my_items_are_embedded_before_older_ones(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.jobs.vectors._BATCH_SIZE", 2)
    app = await world.another_app(session_indexing="on", search_wait_ms=LONG_MS)
    app.scheduler.paused.add("search.embed_sessions")
    planner, analysis = world.planner.at(app), world.analysis.at(app)
    for number in range(9):
        await analysis.say(f"report number {number}")
    text, query = PARAPHRASES[0]
    await planner.say(text)
    await app.scheduler.drain("search.index_sessions")
    (number,) = await backlog_of(world, "planner")
    app.session_vectors.embed_next(world.tenant, {"sessions": number})
    lease_steps: list[int] = []
    step = app.session_vectors._step

    async def one_step(lease: Lease) -> bool:
        more = await step(lease)
        lease_steps.append(len(await unembedded(world)))
        assert len(lease_steps) > 1 or await backlog_of(world, "planner") == []
        return more

    monkeypatch.setattr(app.session_vectors, "_step", one_step)
    await app.scheduler.drain("search.embed_sessions")
    assert lease_steps == [8, 6, 4, 2, 0]
    await check_index_complete(world)
    assert (await planner.call("search.query", query=query))["results"][0]["text"] == text


async def backlog_of(world: World, principal_id: str) -> list[int]:
    """Return the numbers of the last chunks of a principal without vectors."""
    progress = await world.app.database.read(Scope(world.tenant), lambda tx: JobStore(tx).progress(EMBEDDING_JOB))
    return list(VectorBacklog.of(progress).own.get(principal_id, {}).values())


async def test_a_prompt_right_after_ingestion_has_the_event_that_answers(world: World) -> None:
    """In a conversation that is longer than the prompt, what was just ingested is found, or said to be pending."""
    app = await world.another_app(session_indexing="on", search_wait_ms=LONG_MS)
    planner = world.planner.at(app)
    filler = "The meeting of the gardening club went on about roses, hedges and the new shed for a long time. " * 8
    events = [{"event_id": f"e{n}", "content": f"{n}: {filler}"} for n in range(40)]
    events[3]["content"] = "The vault code for the archive room is 4711-Zulu."
    question = {"event_id": "q", "content": "Which code opens the archive room?"}

    async def assembled(session_id: str) -> Any:
        await planner.create_session(session_id)
        await planner.call("context.ingest", session_id=session_id, events=[*events, question])
        return await planner.call(
            "context.assemble", session_id=session_id, task_description=question["content"], token_budget=3_000
        )

    answer = await assembled("s2")
    assert "4711-Zulu" in str(answer["body"])
    assert "pending" not in answer
    app.index_wait._seconds = 0.05
    app.scheduler.paused |= {"search.index_sessions", "search.embed_sessions"}
    answer = await assembled("s3")
    assert "4711-Zulu" in str(answer["body"]) or answer["pending"]["events"]
