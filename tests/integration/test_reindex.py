"""Reindexing: complete, rate-limited, without gaps in search, after new documents."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.indexed_items import check_index_complete, indexed_texts
from support.knowledge import HANDBOOK, QuickEmbedder, chunks, document, domain, embed_quickly, put
from support.world import refused
from weftline.knowledge.domains import Domains

if TYPE_CHECKING:
    from support.world import World
    from weftline.kernel.events import NewEvent

pytestmark = pytest.mark.req("CE-F52")

SMALL = {"chunk_tokens": 32, "overlap_tokens": 4}


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> QuickEmbedder:
    return embed_quickly(monkeypatch)


async def filled(world: World, documents: int) -> None:
    await domain(world.admin, chunking=SMALL)
    given = [
        {"document_id": f"d{each:03}", "text": f"Document {each} is about this. " * 8} for each in range(documents)
    ]
    await world.admin.call("knowledge.add_documents", domain=HANDBOOK, documents=given)
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")


async def reindex(world: World, **how: Any) -> Any:
    return await world.admin.call("knowledge.reindex", domain=HANDBOOK, **how)


async def shown(world: World) -> Any:
    return await world.admin.call("knowledge.show_domain", domain=HANDBOOK)


async def chunk_numbers(world: World) -> set[int]:
    rows = await world.rows("SELECT number FROM chunks WHERE tenant = $1", world.tenant)
    return {row[0] for row in rows}


async def test_every_document_of_a_domain_is_reindexed_and_nothing_is_embedded_twice(
    world: World, embedder: QuickEmbedder
) -> None:
    await filled(world, 30)
    before, embedded = await chunk_numbers(world), len(embedder.embedded)
    begun = await reindex(world)
    assert (begun["reindexing"], begun["to_reindex"], begun["chunks"]) == (True, 30, len(before))
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    ended = await shown(world)
    assert (ended["reindexing"], ended["to_reindex"], ended["pending"]) == (False, 0, 0)
    after = await chunk_numbers(world)
    assert (len(after), after & before) == (len(before), set())
    assert len(embedder.embedded) == embedded
    assert {(await document(world.admin, f"d{each:03}"))["version"] for each in range(30)} == {2}
    events = [event["type"] for event in (await world.admin.events())["events"] if "reindex" in event["type"]]
    assert events == ["domain.reindexing", "domain.reindexed"]
    await check_index_complete(world)


@pytest.mark.req("CE-F50", part="by item and content; platform data once for all tenants")
async def test_a_reindex_can_embed_every_text_again(world: World, embedder: QuickEmbedder) -> None:
    await filled(world, 3)
    before = sorted(set(embedder.embedded))
    await reindex(world)
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    embedder.embedded.clear()
    await reindex(world, reembed=True)
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert sorted(embedder.embedded) == before
    embedder.embedded.clear()
    await reindex(world)
    await put(world.admin, "d001", "Other words, put meanwhile, are embedded as always.")
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert [text.split("\n")[-1] for text in embedder.embedded] == [
        "Other words, put meanwhile, are embedded as always."
    ]


async def test_new_documents_are_indexed_before_a_reindex(world: World) -> None:
    await filled(world, 100)
    await reindex(world)
    await world.app.scheduler.drain("knowledge.reindex")
    halfway = await shown(world)
    assert (halfway["pending"], halfway["to_reindex"]) == (20, 100)
    for _ in range(3):
        await world.app.scheduler.drain("knowledge.reindex")
    assert (await shown(world))["pending"] == 20


async def test_reindexing_is_rate_limited(world: World) -> None:
    app = await world.another_app(reindex_rate=2)
    admin = world.admin.at(app)
    await filled(world, 50)
    each = (await document(world.admin, "d000"))["chunks"]
    await admin.call("knowledge.reindex", domain=HANDBOOK)
    left = []
    for _ in range(6):
        await app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
        left.append((await shown(world))["to_reindex"])
        world.clock.advance(seconds=5 * each)
    # Twenty documents per batch, each with half a second of rest per chunk.
    assert left == [30, 30, 10, 10, 0, 0]
    assert not (await shown(world))["reindexing"]


async def test_only_an_admin_with_access_to_a_domain_reindexes_it(world: World) -> None:
    await filled(world, 1)
    with refused("PERMISSION_DENIED"):
        await world.planner.call("knowledge.reindex", domain=HANDBOOK)
    with refused("DOMAIN_NOT_FOUND"):
        await world.stranger.call("knowledge.reindex", domain=HANDBOOK)
    with refused("DOMAIN_NOT_FOUND"):
        await world.admin.call("knowledge.reindex", domain="none")
    helper = await world.admin.create_agent("helper", permissions=["read", "write", "admin"], clearance=4)
    with refused("PERMISSION_DENIED"):
        await helper.call("knowledge.reindex_all")


async def fill_session(world: World) -> None:
    for number in range(40):
        await world.planner.say(f"message {number}")
    await world.planner.write("goal", "ship it")
    await world.planner.write("goal", "ship it on friday")
    await world.planner.remember("tea", "green")
    await world.index_sessions()


async def test_every_collection_is_reindexed(world: World, embedder: QuickEmbedder) -> None:
    await filled(world, 3)
    await fill_session(world)
    before = {collection: await indexed_texts(world, collection) for collection in ("sessions", "memory")}
    old, embedded = await numbers_by_collection(world), len(embedder.embedded)
    begun = await world.admin.call("knowledge.reindex_all")
    assert begun["domains"] == [{"domain": HANDBOOK, "to_reindex": 3}]
    assert begun["events"] > 40
    pending = await world.planner.call("search.query", query="goal")
    assert "pending" not in pending
    await world.planner.say("new message")
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    await world.index_sessions()
    now = await numbers_by_collection(world)
    assert all(not old[collection] & now[collection] for collection in old)
    assert await indexed_texts(world, "memory") == before["memory"]
    assert await indexed_texts(world, "sessions") == {**before["sessions"], "s1:41": ["new message"]}
    assert len(embedder.embedded) <= embedded + 2
    await check_index_complete(world)
    assert await world.admin.call("knowledge.show_reindexing") == {"domains": [], "events": None}


async def numbers_by_collection(world: World) -> dict[str, set[int]]:
    rows = await world.rows("SELECT collection, number FROM chunks WHERE tenant = $1", world.tenant)
    return {
        collection: {number for where, number in rows if where == collection} for collection in {row[0] for row in rows}
    }


@pytest.mark.req("CE-F50", part="by item and content; platform data once for all tenants")
async def test_a_text_is_embedded_once_for_its_readers(world: World, embedder: QuickEmbedder) -> None:
    for _ in range(3):
        await world.planner.say("the deploy is on Friday")
    for value in ("ship it", "wait", "ship it"):
        await world.planner.write("plan", value)
    for _ in range(2):
        await world.planner.say("the deploy is on Friday", visibility="private")
    await world.index_sessions()
    # A vector that items with other readers shared would tell them about each other.
    assert sorted(embedder.embedded) == ["a test\nplan\nship it", *["planner: the deploy is on Friday"] * 3]
    embedder.embedded.clear()
    await world.admin.call("knowledge.reindex_all")
    await world.index_sessions()
    assert embedder.embedded == []
    await check_index_complete(world)


async def test_session_items_are_embedded_again_on_request(world: World, embedder: QuickEmbedder) -> None:
    await fill_session(world)
    embedder.embedded.clear()
    await world.admin.call("knowledge.reindex_all", reembed=True)
    await world.index_sessions()
    assert len(embedder.embedded) == 42


async def test_a_second_request_restarts_the_reindex(
    world: World, embedder: QuickEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.planner.say("message")
    await world.index_sessions()
    embedder.embedded.clear()
    await world.admin.call("knowledge.reindex_all")
    written, rounds = world.app.session_indexing._written, []

    async def write_slowly(*what: Any) -> Any:
        made = await written(*what)
        rounds.append(len(made))
        if sum(rounds) == 1:
            await world.admin.call("knowledge.reindex_all", reembed=True)
        return made

    monkeypatch.setattr(world.app.session_indexing, "_written", write_slowly)
    await world.index_sessions()
    assert [text for text in embedder.embedded if "message" in text] == ["planner: message"]
    assert (await world.admin.call("knowledge.show_reindexing"))["events"] is None
    await check_index_complete(world)


async def test_the_rate_limit_applies_to_session_items(world: World) -> None:
    await fill_session(world)
    app = await world.another_app(reindex_rate=1)
    app.lease_runner.rest = 0
    await world.admin.call("knowledge.reindex_all")
    await app.scheduler.drain("search.index_sessions", "search.embed_sessions")
    shown = await world.admin.call("knowledge.show_reindexing")
    assert shown["events"] > 0
    # Another process may continue at once: only this one rests.
    await world.index_sessions()
    assert (await world.admin.call("knowledge.show_reindexing"))["events"] is None
    await check_index_complete(world)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_concurrent_document_writes_do_not_block_a_reindex(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        await domain(world.admin, name)
    publish, published, started = Domains.publish, [], asyncio.Event()

    async def publish_slowly(domains: Domains, event: NewEvent) -> None:
        published.append(event.type)
        await publish(domains, event)
        started.set()
        # Long enough for a writer that does not wait.
        await asyncio.sleep(0.2)

    async def put_late() -> Any:
        await started.wait()
        await put(world.admin, "late", "Put during a reindex.", domain="second")

    monkeypatch.setattr(Domains, "publish", publish_slowly)
    await asyncio.gather(world.admin.call("knowledge.reindex_all"), put_late())
    # One event per domain: a transaction in conflict is retried.
    assert published == ["domain.reindexing", "domain.reindexing", "document.added"]


async def test_a_document_that_is_no_longer_readable_stays_indexed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(world, 3)
    before = [chunk.text for chunk in await chunks(world, "d001")]

    def broken(*_: Any) -> Any:
        raise ValueError("the reader is broken")

    with monkeypatch.context() as patched:
        patched.setattr(world.app._documents, "read", broken)
        await reindex(world)
        await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    ended = await shown(world)
    assert (ended["reindexing"], ended["failed"]) == (False, 3)
    assert [chunk.text for chunk in await chunks(world, "d001")] == before
