"""A crash during ingestion: the next process resumes, and no chunk is missing or duplicated."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.crash_injection import MORE_THAN_A_LEASE, ProcessDeath, crash_in_writes
from support.ingestion_process import ingestion_process
from support.knowledge import HANDBOOK, chunks, document, domain, embed_quickly, put
from support.processes import kill_when, process
from support.webhooks import wait_until
from weft.capabilities.indexing.collections.model import domain_collection
from weft.storage.sql.collections import SqlCollectionStore
from weft.storage.sql.database import Scope

if TYPE_CHECKING:
    from support.world import World

pytestmark = [pytest.mark.both_databases, pytest.mark.req("CE-F39"), pytest.mark.req("CE-F52")]

SMALL = {"chunk_tokens": 32, "overlap_tokens": 4}


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    embed_quickly(monkeypatch)
    monkeypatch.setattr("weft.jobs.ingestion._CHUNKS_AT_ONCE", 2)


async def dying(world: World, patch: pytest.MonkeyPatch, statements: int) -> bool:
    """Index in a process that dies after so many statements; tell whether it did."""
    death = ProcessDeath(statements + 1, after=False)
    with crash_in_writes(world, patch, lambda: death):
        look = asyncio.ensure_future(world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest"))
        while not look.done() and not death.has_crashed:  # noqa: ASYNC110 - nothing tells when it is
            await asyncio.sleep(0)
        look.cancel()
        await asyncio.gather(look, return_exceptions=True)
        await asyncio.gather(*world.app.scheduler._entries["knowledge.ingest"].tasks, return_exceptions=True)
    return death.has_crashed


async def whole(world: World, document_id: str) -> int:
    """Check that a document is there in chunks that follow each other, of one version; return how many."""
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


async def in_collection(world: World) -> tuple[int, int]:
    """Return how many chunks the collection says it has, and how many vectors there are."""
    collection = domain_collection(HANDBOOK)

    async def look(transaction: Any) -> tuple[int, int]:
        collections = SqlCollectionStore(transaction)
        return (await collections.state(collection)).chunks, await collections.count_vectors(collection, "quick")

    return await world.app.database.read(Scope(world.tenant), look)


def text_of(version: int) -> str:
    return " ".join(f"Sentence {number} of version {version} says this." for number in range(20))


async def test_a_crash_at_any_statement_leaves_no_chunk_twice_and_none_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    await domain(world.admin, chunking=SMALL)
    await put(world.planner, "a.txt", text_of(0))
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    statements, died = 0, True
    while died:
        await put(world.planner, "a.txt", text_of(statements + 1))
        died = await dying(world, monkeypatch, statements)
        shown = await document(world.planner, "a.txt")
        old = [chunk for chunk in await chunks(world, "a.txt") if chunk.version == shown["indexed_version"]]
        assert len(old) == shown["chunks"], f"after {statements} statements"
        world.clock.advance(seconds=MORE_THAN_A_LEASE)
        await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
        number = await whole(world, "a.txt")
        assert await in_collection(world) == (number, number)
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
        assert await dying(world, monkeypatch, statements)
        world.clock.advance(seconds=MORE_THAN_A_LEASE)
    # As if the next process were another Weft, with another cutter.
    await world.sql(
        "UPDATE domains SET chunking = $1 WHERE tenant = $2", '{"chunk_tokens":48,"overlap_tokens":0}', world.tenant
    )
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    number = await whole(world, "a.txt")
    assert await in_collection(world) == (number, number)


async def progress(world: World) -> Any:
    return await world.planner.call("knowledge.show_domain", domain=HANDBOOK)


async def test_two_hundred_documents_are_indexed_although_the_process_is_killed(world: World) -> None:
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
    async with process(ingestion_process, world, 3 * MORE_THAN_A_LEASE):
        await wait_until(lambda: pending_at_most(0))
    number = sum([await whole(world, f"d{each:03}") for each in range(200)])
    assert await in_collection(world) == (number, number)
    assert number > 500
