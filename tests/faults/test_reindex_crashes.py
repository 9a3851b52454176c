"""A crash during a reindex: the next process resumes, and nothing is missing or duplicated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from test_ingestion_crashes import SMALL, chunk_and_vector_counts, expect_complete

from support.crash_injection import MORE_THAN_A_LEASE, dies
from support.indexed_items import check_index_complete, indexed_texts, use_scripted_embeddings
from support.ingestion_process import ingestion_process
from support.knowledge import HANDBOOK, domain, embed_quickly
from support.processes import kill_when, process
from support.session_indexing_process import session_indexing_process
from support.webhooks import wait_until

if TYPE_CHECKING:
    from support.world import World

pytestmark = [pytest.mark.req("CE-F52")]


@pytest.fixture(autouse=True)
def _fast_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    embed_quickly(monkeypatch)


async def filled(world: World, documents: int) -> int:
    await domain(world.admin, chunking=SMALL)
    given = [
        {"document_id": f"d{each:03}", "text": " ".join(f"Sentence {part} of {each} says this." for part in range(12))}
        for each in range(documents)
    ]
    await world.admin.call("knowledge.add_documents", domain=HANDBOOK, documents=given)
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    return (await chunk_and_vector_counts(world))[0]


async def progress(world: World) -> Any:
    return await world.admin.call("knowledge.show_domain", domain=HANDBOOK)


async def chunk_numbers(world: World) -> set[int]:
    rows = await world.rows("SELECT number FROM chunks WHERE tenant = $1 AND collection LIKE 'domain:%'", world.tenant)
    return {row[0] for row in rows}


async def test_a_killed_reindex_duplicates_and_loses_no_chunk(world: World) -> None:
    count = await filled(world, 60)
    before = await chunk_numbers(world)
    await world.admin.call("knowledge.reindex", domain=HANDBOOK)

    async def left_at_most(number: int) -> bool:
        return (await progress(world))["to_reindex"] <= number

    for kill, left in enumerate((50, 35, 15)):
        await kill_when(
            process(ingestion_process, world, kill * MORE_THAN_A_LEASE), lambda left=left: left_at_most(left)
        )

    async def done() -> bool:
        shown = await progress(world)
        return not shown["reindexing"] and not shown["pending"]

    ahead = 3 * MORE_THAN_A_LEASE
    async with process(ingestion_process, world, ahead), process(ingestion_process, world, ahead):
        await wait_until(done)
    assert sum([await expect_complete(world, f"d{each:03}") for each in range(60)]) == count
    assert await chunk_and_vector_counts(world) == (count, count)
    assert not before & await chunk_numbers(world)


async def test_a_crash_at_any_statement_leaves_session_items_indexed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_scripted_embeddings(world)
    for number in range(3):
        await world.planner.say(f"message {number}")
        await world.planner.remember("tea", f"tea {number}")
    await world.index_sessions()
    collections = {collection: await indexed_texts(world, collection) for collection in ("sessions", "memory")}
    await world.admin.call("knowledge.reindex_all")
    crashed_statements = 0
    while await dies(world, monkeypatch, crashed_statements + 1, lambda: world.app.session_indexing.run(world.tenant)):
        crashed_statements += 1
        assert {collection: await indexed_texts(world, collection) for collection in collections} == collections, (
            f"statement {crashed_statements}"
        )
        await check_index_complete(world)
        world.clock.advance(seconds=MORE_THAN_A_LEASE)
    assert crashed_statements > 15
    await world.index_sessions()
    assert {collection: await indexed_texts(world, collection) for collection in collections} == collections
    assert (await world.admin.call("knowledge.show_reindexing"))["events"] is None


async def test_session_items_are_reindexed_despite_killed_processes(world: World) -> None:
    use_scripted_embeddings(world)
    for number in range(150):
        await world.planner.say(f"message {number}")
    await world.index_sessions()
    expected = await indexed_texts(world)
    rows = await world.rows(
        "SELECT MAX(number) FROM chunks WHERE tenant = $1 AND collection = 'sessions'", world.tenant
    )
    await world.admin.call("knowledge.reindex_all")

    async def replaced(chunks: int) -> bool:
        found = await world.rows(
            "SELECT COUNT(*) FROM chunks WHERE tenant = $1 AND collection = 'sessions' AND number > $2",
            world.tenant,
            rows[0][0],
        )
        return found[0][0] >= chunks

    for kill, chunks in enumerate((20, 80)):
        await kill_when(
            process(session_indexing_process, world, kill * MORE_THAN_A_LEASE), lambda chunks=chunks: replaced(chunks)
        )
        assert await indexed_texts(world) == expected
    ahead = 2 * MORE_THAN_A_LEASE
    async with process(session_indexing_process, world, ahead), process(session_indexing_process, world, ahead):
        await wait_until(lambda: replaced(150))
    assert await indexed_texts(world) == expected
    await check_index_complete(world)
