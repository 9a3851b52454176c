"""A crash during ingestion: the next process resumes, and no chunk is missing or duplicated."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.crash_injection import MORE_THAN_A_LEASE, ProcessDeath, crash_in_writes
from support.ingestion_process import ingestion_process, stuck_process
from support.knowledge import HANDBOOK, chunks, document, domain, embed_quickly, put
from support.processes import kill_when, process
from support.webhooks import wait_until
from weftline.indexing.collections import domain_collection
from weftline.indexing.sql import CollectionStore
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from support.world import World

pytestmark = [pytest.mark.req("CE-F39"), pytest.mark.req("CE-F52")]

# Longer than a document rests after any number of interrupted attempts.
LONG_REST = 3_700
SMALL = {"chunk_tokens": 32, "overlap_tokens": 4}


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    embed_quickly(monkeypatch)
    monkeypatch.setattr("weftline.jobs.ingestion._CHUNKS_AT_ONCE", 2)


async def dies_after(world: World, patch: pytest.MonkeyPatch, statements: int) -> bool:
    """Run ingestion that dies after ``statements`` statements; return whether it did."""
    crash_point = ProcessDeath(statements + 1, after=False)
    with crash_in_writes(world, patch, lambda: crash_point):
        job = asyncio.ensure_future(world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest"))
        while not job.done() and not crash_point.has_crashed:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)
        await asyncio.gather(*world.app.scheduler._entries["knowledge.ingest"].tasks, return_exceptions=True)
    return crash_point.has_crashed


async def expect_complete(world: World, document_id: str) -> int:
    """Check that a document has all chunks of its current version and no others; return their number."""
    shown = await document(world.planner, document_id)
    found = await chunks(world, document_id)
    assert (shown["state"], shown["indexed_version"]) == ("indexed", shown["version"]), shown
    assert [chunk.ordinal for chunk in found] == list(range(shown["chunks"]))
    assert {chunk.version for chunk in found} == {shown["version"]}
    text = await world.planner.call(
        "knowledge.read_document", domain=HANDBOOK, document_id=document_id, version=shown["version"]
    )
    assert all(text["text"][chunk.start : chunk.end] == chunk.text for chunk in found)
    return len(found)


async def chunk_and_vector_counts(world: World) -> tuple[int, int]:
    """Return the collection's count of chunks and of vectors."""
    collection = domain_collection(HANDBOOK)

    async def job(transaction: Any) -> tuple[int, int]:
        collections = CollectionStore(transaction)
        return (await collections.state(collection)).chunks, await collections.count_vectors(collection, "quick")

    return await world.app.database.read(Scope(world.tenant), job)


def text_of(version: int) -> str:
    return " ".join(f"Sentence {number} of version {version} says this." for number in range(20))


async def test_a_crash_at_any_statement_duplicates_and_loses_no_chunk(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    await domain(world.admin, chunking=SMALL)
    await put(world.planner, "a.txt", text_of(0))
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    statements, died = 0, True
    while died:
        await put(world.planner, "a.txt", text_of(statements + 1))
        died = await dies_after(world, monkeypatch, statements)
        shown = await document(world.planner, "a.txt")
        old = [chunk for chunk in await chunks(world, "a.txt") if chunk.version == shown["indexed_version"]]
        assert len(old) == shown["chunks"], f"after {statements} statements"
        world.clock.advance(seconds=MORE_THAN_A_LEASE)
        await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
        number = await expect_complete(world, "a.txt")
        assert await chunk_and_vector_counts(world) == (number, number)
        statements += 1
    assert statements > 40


async def test_a_document_chunked_differently_since_the_crash_is_indexed_from_the_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    await domain(world.admin, chunking=SMALL)
    await put(world.planner, "a.txt", text_of(1))
    statements = 0
    while (await document(world.planner, "a.txt"))["chunks_done"] == 0:
        statements += 5
        assert await dies_after(world, monkeypatch, statements)
        world.clock.advance(seconds=MORE_THAN_A_LEASE)
    # As if the next process ran with other chunking options.
    await world.sql(
        "UPDATE domains SET chunking = $1 WHERE tenant = $2", '{"chunk_tokens":48,"overlap_tokens":0}', world.tenant
    )
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    number = await expect_complete(world, "a.txt")
    assert await chunk_and_vector_counts(world) == (number, number)


async def progress(world: World) -> Any:
    return await world.planner.call("knowledge.show_domain", domain=HANDBOOK)


async def test_two_hundred_documents_are_indexed_despite_killed_processes(world: World) -> None:
    await domain(world.admin, chunking=SMALL)
    for start in (0, 100):
        documents = [
            {"document_id": f"d{number:03}", "text": text_of(number)[: 100 + 40 * (number % 9)]}
            for number in range(start, start + 100)
        ]
        await world.planner.call("knowledge.add_documents", domain=HANDBOOK, documents=documents)

    async def pending_at_most(number: int) -> bool:
        return (await progress(world))["pending"] <= number

    for kill, left in enumerate((185, 140, 80)):
        await kill_when(
            process(ingestion_process, world, kill * MORE_THAN_A_LEASE), lambda left=left: pending_at_most(left)
        )
    async with process(ingestion_process, world, LONG_REST):
        await wait_until(lambda: pending_at_most(0))
    number = sum([await expect_complete(world, f"d{each:03}") for each in range(200)])
    assert await chunk_and_vector_counts(world) == (number, number)
    assert number > 500


async def test_documents_at_work_in_several_killed_processes_are_indexed_and_readable(world: World) -> None:
    await domain(world.admin, chunking=SMALL)
    names = [f"d{number}" for number in range(12)]
    documents = [{"document_id": name, "text": text_of(number)} for number, name in enumerate(names)]
    await world.planner.call("knowledge.add_documents", domain=HANDBOOK, documents=documents)

    async def attempts() -> int:
        rows = await world.rows("SELECT COALESCE(SUM(attempts), 0) FROM documents WHERE tenant = $1", world.tenant)
        return int(rows[0][0])

    for kill in range(5):
        before = await attempts()

        async def at_work(before: int = before) -> bool:
            return await attempts() > before

        await kill_when(process(stuck_process, world, kill * LONG_REST), at_work)
        for number, name in enumerate(names):
            kept = await world.planner.call("knowledge.read_document", domain=HANDBOOK, document_id=name)
            assert kept["text"] == text_of(number)
    rows = await world.rows("SELECT MAX(attempts) FROM documents WHERE tenant = $1", world.tenant)
    assert rows[0][0] >= 2, "some were at work each time"

    async def done() -> bool:
        return (await progress(world))["pending"] == 0

    async with process(ingestion_process, world, 5 * LONG_REST):
        await wait_until(done)
    assert (await progress(world))["failed"] == 0
    for name in names:
        assert await expect_complete(world, name)
