"""Deleted content is hidden at once; many rows are deleted later in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.indexed_items import check_index_complete, indexed_texts
from support.jobs import pause_jobs
from support.knowledge import HANDBOOK, chunks, document, domain, embed_quickly, put
from support.world import SESSION, refused
from weftline.history.lines import LineStore
from weftline.jobs.retention import _delete_batch
from weftline.state.board.board_view import BranchEntries
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from support.knowledge import QuickEmbedder
    from support.world import World
    from weftline.kernel.transaction import Transaction


SMALL = {"chunk_tokens": 32, "overlap_tokens": 4}
KNOWLEDGE_TABLES = (
    "chunks",
    "chunk_vectors",
    "chunk_removals",
    "chunk_vector_updates",
    "documents",
    "document_contents",
    "collections",
)


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> QuickEmbedder:
    return embed_quickly(monkeypatch)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small batches and pause the deletion job."""
    monkeypatch.setattr("weftline.indexing.sql.DELETE_BATCH_SIZE", 4)
    monkeypatch.setattr("weftline.knowledge.sql._DELETE_BATCH", 2)
    pause_jobs(monkeypatch, "collections.delete")


async def filled(world: World, documents: int = 8) -> None:
    await domain(world.admin, chunking=SMALL)
    for number in range(documents):
        await put(world.admin, f"d{number}", f"Document {number} is about this and that. " * 8)
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")


async def rows(world: World, table: str) -> int:
    return (await world.rows(f"SELECT COUNT(*) FROM {table} WHERE tenant = $1", world.tenant))[0][0]


async def found(world: World, query: str) -> list[str]:
    answer = await world.planner.call("search.query", query=query, low_confidence=True)
    return [result["ref"] for result in answer["results"]]


async def delete_deferred(world: World) -> None:
    world.app.lease_runner.rest = 0
    await world.app.scheduler.drain("collections.delete")


@pytest.mark.usefixtures("small_batches")
async def test_a_large_deleted_domain_is_hidden_at_once_and_its_rows_are_deleted_in_batches(world: World) -> None:
    await filled(world)
    assert await found(world, "Document 3")
    before = await rows(world, "chunks")
    await world.admin.call("knowledge.delete_domain", domain=HANDBOOK)
    assert await rows(world, "chunks") == before - 4
    assert await found(world, "Document 3") == []
    with refused("DOMAIN_NOT_FOUND"):
        await document(world.admin, "d3")
    await delete_deferred(world)
    assert {table: await rows(world, table) for table in KNOWLEDGE_TABLES} == dict.fromkeys(KNOWLEDGE_TABLES, 0)
    assert await rows(world, "embedding_cache") == 0
    assert await rows(world, "deferred_deletions") == 0


@pytest.mark.usefixtures("small_batches")
async def test_a_domain_is_recreated_only_after_its_rows_are_deleted(world: World) -> None:
    await filled(world)
    await world.admin.call("knowledge.delete_domain", domain=HANDBOOK)
    with refused("DOMAIN_EXISTS"):
        await domain(world.admin)
    await delete_deferred(world)
    await filled(world, 1)
    assert [each["document_id"] for each in await listed(world)] == ["d0"]
    assert {chunk.item for chunk in await chunks(world, "d0")} == {"d0"}
    await check_index_complete(world)


async def listed(world: World) -> list[dict[str, str]]:
    return (await world.planner.call("knowledge.list_documents", domain=HANDBOOK))["documents"]


@pytest.mark.usefixtures("small_batches")
async def test_documents_of_a_deleted_domain_are_not_indexed(world: World) -> None:
    await filled(world, 3)
    for number in range(3, 9):
        await put(world.admin, f"d{number}", f"Document {number} waits.")
    await world.admin.call("knowledge.delete_domain", domain=HANDBOOK)
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert await rows(world, "collections") == 0
    await delete_deferred(world)
    assert {table: await rows(world, table) for table in KNOWLEDGE_TABLES} == dict.fromkeys(KNOWLEDGE_TABLES, 0)


@pytest.mark.usefixtures("small_batches")
async def test_deferred_deletion_resumes_where_it_stopped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(world)
    await world.admin.call("knowledge.delete_domain", domain=HANDBOOK)
    left = await rows(world, "chunks")
    with monkeypatch.context() as patched:
        patched.setattr("weftline.jobs.retention._delete_batch", _dying_after(2))
        await world.app.scheduler.drain("collections.delete")
    assert 0 < await rows(world, "chunks") < left
    other = await world.another_app()
    other.lease_runner.rest = 0
    await other.scheduler.drain("collections.delete")
    assert await rows(world, "chunks") == 0


def _dying_after(steps: int) -> Callable[[Transaction], Awaitable[bool]]:
    left = iter(range(steps))

    async def delete_some(transaction: Transaction) -> bool:
        if next(left, None) is None:
            raise RuntimeError("the process died")
        return await _delete_batch(transaction)

    return delete_some


@pytest.mark.usefixtures("small_batches")
async def test_a_long_deleted_session_is_hidden_at_once_and_its_chunks_are_deleted_in_batches(world: World) -> None:
    other = await world.planner.create_session("s2")
    await other.say("in another session")
    for number in range(12):
        await world.planner.say(f"message {number}")
    await world.index_sessions()
    assert len(await found(world, "message")) > 4
    await world.admin.call("session.archive", session_id=SESSION)
    await world.admin.call("session.delete", session_id=SESSION, force=True)
    assert len(await indexed_texts(world)) == 9
    assert await found(world, "message") == ["sessions/1"]
    with refused("SESSION_EXISTS"):
        await world.planner.create_session(SESSION)
    await delete_deferred(world)
    assert list(await indexed_texts(world)) == ["s2:1"]
    await check_index_complete(world)
    await world.planner.create_session(SESSION)
    await world.planner.say("created again")
    await world.index_sessions()
    assert await indexed_texts(world) == {"s1:1": ["created again"], "s2:1": ["in another session"]}


async def test_small_deletions_happen_in_the_same_transaction(world: World) -> None:
    await filled(world, 2)
    await world.admin.call("knowledge.delete_domain", domain=HANDBOOK)
    assert {table: await rows(world, table) for table in KNOWLEDGE_TABLES} == dict.fromkeys(KNOWLEDGE_TABLES, 0)
    assert await rows(world, "deferred_deletions") == 0


async def test_keys_of_a_branch_are_paged_like_those_of_the_board(world: World) -> None:
    for key in ("a", "b", "c"):
        await world.planner.write(key)
    await world.planner.call("history.branch", context_id="board:s1", branch="draft")
    keys = await world.app.database.read(
        Scope(world.tenant),
        lambda tx: BranchEntries(LineStore(tx), "board:s1@draft").keys_after(SESSION, "a", 1),
    )
    assert keys == ["b"]


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defer the deletion of more than a few rows, delete few in each transaction, and pause the job."""
    monkeypatch.setattr("weftline.history.erasure.MAX_AT_ONCE", 3)
    monkeypatch.setattr("weftline.history.erasure.BATCH", 2)
    monkeypatch.setattr("weftline.sessions.erasure.BATCH", 2)
    pause_jobs(monkeypatch, "collections.delete")


SESSION_TABLES = ("messages", "message_audiences", "entries", "changes", "commits", "lines", "blobs", "sessions")


@pytest.mark.usefixtures("few_at_once")
async def test_a_large_session_is_gone_at_once_and_its_rows_are_deleted_in_batches(world: World) -> None:
    for number in range(6):
        await world.planner.write(f"k{number}", f"value {number}")
        await world.planner.say(f"message {number}")
    await world.planner.call("session.delete", session_id="s1", force=True)
    assert await rows(world, "changes") == 6
    assert await rows(world, "messages") == 6
    with refused("SESSION_NOT_FOUND"):
        await world.planner.value("k0")
    with refused("CONTEXT_NOT_FOUND"):
        await world.planner.call("history.log", context_id="board:s1")
    with refused("SESSION_EXISTS"):
        await world.planner.create_session("s1")
    await delete_deferred(world)
    assert {table: await rows(world, table) for table in SESSION_TABLES} == dict.fromkeys(SESSION_TABLES, 0)
    left = await world.rows("SELECT DISTINCT type FROM events WHERE tenant = $1 AND session_id = 's1'", world.tenant)
    assert [row[0] for row in left] == ["session.deleted"]
    fresh = await world.planner.create_session("s1")
    assert await fresh.keys() == []


@pytest.mark.usefixtures("few_at_once")
async def test_a_large_branch_is_gone_at_once_and_its_name_is_free_when_its_rows_are(world: World) -> None:
    await world.planner.write("goal", "kept")
    branch = {"context_id": "board:s1", "branch": "draft"}
    await world.planner.call("history.branch", **branch)
    for number in range(5):
        await world.planner.write(f"k{number}", f"draft {number}", branch="draft")
    await world.planner.call("history.delete_branch", **branch, force=True)
    with refused("BRANCH_NOT_FOUND"):
        await world.planner.value("k0", branch="draft")
    with refused("SERVER_BUSY") as caught:
        await world.planner.call("history.branch", **branch)
    assert caught.value.context["retry_after_seconds"] > 0
    await delete_deferred(world)
    assert await rows(world, "changes") == 1
    assert await rows(world, "blobs") == 1
    await world.planner.call("history.branch", **branch)
    assert await world.planner.keys(branch="draft") == ["goal"]
