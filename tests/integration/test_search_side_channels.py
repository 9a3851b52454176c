"""Search and its stores keep and reveal nothing of deleted or hidden content."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from support.world import SESSION, refused
from weftline.app.search.replica import DamageAlarm
from weftline.indexing.collections import ChunkOwner
from weftline.kernel.errors import Unavailable
from weftline.sessions.sql import SessionStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from support.world import Caller, World
    from weftline.testing.clock import FrozenClock

pytestmark = pytest.mark.req("CE-F42")

SECRET = "The launch code of the falcon is zanzibar."
OTHER_TEXTS = ("Lunch is at noon.", "The printer is out of paper.", "Rain is expected.")
QUESTION = "What is the launch code of the falcon?"


async def search(caller: Caller, query: str = QUESTION, **how: Any) -> Any:
    return await caller.call("search.query", query=query, explain=True, **how)


def without_duration(found: Any) -> dict[str, Any]:
    """Return an answer without its duration, and without the hint, which follows from what is pending."""
    return {name: value for name, value in found.items() if name not in {"took_ms", "hint"}}


def pending(found: Any) -> int:
    return int(found.get("pending", {}).get("events", 0))


async def add_messages(world: World, caller: Caller) -> None:
    for text in OTHER_TEXTS:
        await caller.say(text)
    await world.index_sessions()


async def types(caller: Caller) -> list[str]:
    return [event["type"] for event in (await caller.events())["events"]]


async def vectors_of(world: World, *owners: tuple[ChunkOwner, str]) -> int:
    """Return how many of the texts of items have cached vectors."""
    digests = {owner.digest_of(text) for owner, text in owners}
    kept = await world.rows("SELECT digest FROM embedding_cache WHERE tenant = $1", world.tenant)
    return len(digests & {bytes(row[0]) for row in kept})


def message(number: int, text: str) -> tuple[ChunkOwner, str]:
    return ChunkOwner("message", SESSION, str(number)), f"planner: {text}"


def document(domain: str, text: str) -> tuple[ChunkOwner, str]:
    return ChunkOwner("document", domain, f"{_name(text)}.txt"), text


def _name(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


async def redact_message(world: World) -> str:
    return f"message:{SESSION}/{await world.planner.say(SECRET)}"


async def redact_key(world: World) -> str:
    await world.planner.write("plan", SECRET)
    return f"board:{SESSION}/plan/1.1"


async def redact_memory(world: World) -> str:
    await world.planner.remember("plan", SECRET)
    return "memory:planner/plan/1.1"


@pytest.mark.parametrize("write", [redact_message, redact_key, redact_memory])
async def test_a_redaction_leaves_no_statistics_of_the_text(
    world: World, write: Callable[[World], Awaitable[str]]
) -> None:
    await add_messages(world, world.planner)
    before = await search(world.planner)
    item_id = await write(world)
    await world.index_sessions()
    assert (await search(world.planner))["confidence"] > before["confidence"]
    await world.planner.call("records.redact", item_id=item_id, state="removed", reason="a secret")
    after = await search(world.planner)
    assert without_duration(after) == without_duration(before) | {"pending": {"events": 1}}


async def test_redacting_an_older_version_keeps_the_newer_one_searchable(world: World) -> None:
    await world.planner.write("plan", "The old plan.")
    await world.planner.write("plan", SECRET)
    await world.index_sessions()
    await world.planner.call("records.redact", item_id=f"board:{SESSION}/plan/1.1", state="removed", reason="old")
    assert [result["text"] for result in (await search(world.planner))["results"]] == [SECRET]


async def test_deleted_chunks_do_not_count_in_statistics(world: World) -> None:
    await add_messages(world, world.planner)
    before = await search(world.planner)
    await world.planner.write("plan", SECRET)
    await world.index_sessions()
    await world.planner.delete("plan")
    after = await search(world.planner)
    assert pending(after) == 1
    assert without_duration(after) | {"pending": None} == without_duration(before) | {"pending": None}


async def test_partially_indexed_documents_do_not_affect_results_and_statistics(world: World) -> None:
    await put(world, "one", OTHER_TEXTS[0])
    before = await search(world.planner, sources=["document"], top_k=1)
    many = "\n\n".join(f"## Part {number}\n\n{SECRET}" for number in range(500))
    await put(world, "one", many)
    await world.sql("UPDATE documents SET indexed_version = 0 WHERE tenant = $1 AND chunks > 1", world.tenant)
    after = await search(world.planner, sources=["document"], top_k=1)
    assert without_duration(after) == without_duration(before)


async def test_vectors_of_a_removed_text_are_deleted(world: World) -> None:
    number = await world.planner.say(SECRET)
    await world.planner.write("plan", SECRET)
    await world.planner.remember("plan", SECRET)
    key = (ChunkOwner("board", SESSION, "key/plan"), f"a test\nplan\n{SECRET}")
    memory = (ChunkOwner("memory", "planner", "/plan"), f"plan\n{SECRET}")
    said = message(number, SECRET)
    await world.index_sessions()
    assert [await vectors_of(world, each) for each in (said, key, memory)] == [1, 1, 1]
    await world.planner.delete("plan")
    await world.index_sessions()
    # The memory has the same text, and a vector of its own.
    assert [await vectors_of(world, each) for each in (said, key, memory)] == [1, 0, 1]
    await world.planner.forget("plan")
    await world.index_sessions()
    assert await vectors_of(world, memory) == 0
    await world.planner.call("records.redact", item_id=f"message:{SESSION}/{number}", state="removed", reason="private")
    assert await vectors_of(world, said) == 0


async def test_vectors_of_a_deleted_session_are_deleted(world: World) -> None:
    said = message(await world.planner.say(SECRET), SECRET)
    await world.index_sessions()
    assert await vectors_of(world, said) == 1
    await world.planner.call("session.delete", session_id=SESSION)
    assert await vectors_of(world, said) == 0


async def test_vectors_of_a_deleted_domain_are_deleted(world: World) -> None:
    for domain, text in (("one", SECRET), ("one", OTHER_TEXTS[0]), ("other", OTHER_TEXTS[0])):
        await put(world, domain, text)
    deleted = [document("one", SECRET), document("one", OTHER_TEXTS[0])]
    kept = document("other", OTHER_TEXTS[0])
    assert (await vectors_of(world, *deleted), await vectors_of(world, kept)) == (2, 1)
    await world.admin.call("knowledge.delete_domain", domain="one")
    assert (await vectors_of(world, *deleted), await vectors_of(world, kept)) == (0, 1)


async def put(world: World, domain: str, text: str, clearance: int = 1) -> None:
    existing = [each["domain"] for each in (await world.admin.call("knowledge.list_domains"))["domains"]]
    if domain not in existing:
        await world.admin.call("knowledge.create_domain", domain=domain, clearance=clearance)
    await world.admin.call("knowledge.add_document", domain=domain, document_id=f"{_name(text)}.txt", text=text)
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")


async def test_a_replaced_document_keeps_the_vectors_of_unchanged_chunks(world: World) -> None:
    await put(world, "one", OTHER_TEXTS[0])
    await world.admin.call("knowledge.reindex", domain="one")
    await world.app.scheduler.drain("knowledge.reindex", "knowledge.ingest")
    assert await vectors_of(world, document("one", OTHER_TEXTS[0])) == 1
    number = await world.planner.say(OTHER_TEXTS[0])
    await world.index_sessions()
    await world.admin.call("knowledge.reindex_all")
    await world.index_sessions()
    assert await vectors_of(world, message(number, OTHER_TEXTS[0])) == 1


async def test_unreferenced_vectors_are_deleted_after_a_month(world: World, clock: FrozenClock) -> None:
    await put(world, "one", OTHER_TEXTS[0])
    await world.planner.call("knowledge.embed", texts=["asked"])
    unused = ChunkOwner("board", SESSION, "plan").digest_of("never indexed")
    model = world.app.embeddings.models()[0].name
    await world.app.embeddings.of_passages(world.tenant, ["never indexed"], model, digests=[unused])
    await world.app.embeddings.sweep()
    assert await count(world) == 3
    clock.advance(days=31)
    await world.app.embeddings.sweep()
    assert (await count(world), await vectors_of(world, document("one", OTHER_TEXTS[0]))) == (1, 1)


async def count(world: World) -> int:
    rows = await world.rows("SELECT COUNT(*) FROM embedding_cache WHERE tenant = $1", world.tenant)
    return int(rows[0][0])


async def test_events_of_others_are_not_pending(world: World) -> None:
    own = await world.planner.create_session("own", members=["orchestrator"])
    await world.index_sessions()
    await own.say("Only for the planner.")
    await world.planner.remember("note", "Mine alone.")
    assert pending(await search(world.planner)) == 2
    assert pending(await search(world.planner, sources=["memory"])) == 1
    assert pending(await search(world.planner, session_id=SESSION)) == 1
    assert pending(await search(world.planner, sources=["document"])) == 0
    assert pending(await search(world.analysis)) == 0


async def test_events_that_are_not_indexed_are_not_pending(world: World) -> None:
    await world.index_sessions()
    await world.planner.create_session("another")
    assert (await search(world.planner))["unsure"]
    assert "search.low_relevance" in await types(world.planner)
    assert pending(await search(world.planner)) == 0


async def test_many_pending_events_of_others_are_not_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.index_sessions()
    monkeypatch.setattr("weftline.app.search.service._MAX_PENDING", 2)
    for _ in range(3):
        await world.planner.remember("note", "Mine alone.")
        assert pending(await search(world.analysis)) == 0


@pytest.fixture
async def limited_admin(world: World) -> Caller:
    """Return an admin without the highest clearance."""
    return await world.admin.create_agent("lesser", permissions=["read", "write", "admin"], clearance=3)


async def test_an_admin_learns_nothing_of_a_domain_above_its_clearance(world: World, limited_admin: Caller) -> None:
    await put(world, "vault", SECRET, clearance=5)
    await put(world, "open", OTHER_TEXTS[0])
    for domain in ("vault", "open"):
        await world.admin.call("knowledge.add_source", domain=domain, kind="hook")
        await DamageAlarm(world.app.database, world.clock, world.app.metrics)(world.tenant, f"domain:{domain}")
    await search(world.admin, "xylophone", domain="vault", min_score=1.0)
    with refused("DOMAIN_NOT_FOUND"):
        await search(world.planner, domain="vault")
    await world.admin.call("knowledge.update_domain", domain="vault", description="Where the launch codes are.")
    for told_of in (await limited_admin.events(), await limited_admin.audit()):
        assert "vault" not in str(told_of)
        assert "launch" not in str(told_of)
        assert "open" in str(told_of)
    assert "vault" in str(await world.admin.events())
    assert {"knowledge_source.added", "index.damaged"} <= set(await types(world.admin))
    assert {"knowledge_source.added", "index.damaged"} <= set(await types(limited_admin))
    assert not {"knowledge_source.added", "index.damaged"} & set(await types(world.planner))
    await world.admin.call("knowledge.delete_domain", domain="vault")
    assert "vault" not in str(await limited_admin.audit())
    assert await limited_admin.audit(target="vault") == []
    assert "vault" in str(await world.admin.audit(target="vault"))
    done = [row["action"] for row in await limited_admin.audit(outcome="done")]
    assert "knowledge.delete_domain" in done


async def test_low_relevance_events_are_published_once_a_minute(world: World, clock: FrozenClock) -> None:
    for caller in (world.planner, world.planner, world.analysis):
        await search(caller)
    assert (await types(world.admin)).count("search.low_relevance") == 2
    clock.advance(seconds=61)
    await search(world.planner)
    assert (await types(world.admin)).count("search.low_relevance") == 3
    assert b"weftline_low_relevance_total 4.0" in world.app.metrics.exposition()


async def test_a_search_succeeds_when_its_event_cannot_be_published(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise Unavailable("no")

    monkeypatch.setattr(world.app._search_stores, "write", fail)
    assert (await search(world.planner))["unsure"]
    monkeypatch.setattr(world.app._search_stores, "write", fail_with_os_error)
    assert (await search(world.analysis))["unsure"]


async def fail_with_os_error(*_: object) -> None:
    raise OSError("disk full")


@pytest.mark.parametrize("ref", ["sessions\0/1", "sess\ud800ions/1", "domain:ä/1", "sessions/1\n", "a b/1", "//1"])
async def test_a_ref_with_invalid_characters_is_refused(world: World, ref: str) -> None:
    for operation in ("search.find_similar", "search.get_context"):
        with refused("INVALID_INPUT_FORMAT"):
            await world.planner.call(operation, ref=ref)
    with refused("INVALID_INPUT_FORMAT"):
        await world.planner.call("search.find_similar", text="x", types=[ref.replace(" ", "\t") + "\0"])


async def test_an_unknown_ref_is_not_found(world: World) -> None:
    for ref in ("nowhere/1", "sessions/0", "sessions/9007199254740993", "sessions/99999999999999999999"):
        with refused("CHUNK_NOT_FOUND"):
            await world.planner.call("search.find_similar", ref=ref)


async def test_the_session_cache_is_read_once_and_updated_incrementally(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    audiences = SessionStore.audiences

    async def count_and_read(self: SessionStore, after: str, limit: int) -> Sequence[tuple[str, tuple[str, ...]]]:
        read.append(after)
        return await audiences(self, after, limit)

    monkeypatch.setattr(SessionStore, "audiences", count_and_read)
    app = await world.another_app()
    planner, other = world.planner.at(app), (await world.admin.create_agent("other")).at(app)
    await (await planner.create_session("open", members=["*"])).say(SECRET)
    await world.index_sessions()
    closed = await planner.create_session("closed", members=["orchestrator:planner"])
    await closed.say(SECRET)
    await world.index_sessions()
    for _ in range(3):
        assert (await search(planner))["searched"] == 2
        assert (await search(other))["searched"] == 1
    await planner.call("session.delete", session_id="closed")
    reopened = await planner.create_session("closed", members=["*"])
    await reopened.say(SECRET)
    await world.index_sessions()
    assert [(await search(caller))["searched"] for caller in (planner, other)] == [2, 2]
    await planner.call("session.delete", session_id="closed")
    assert [(await search(caller))["searched"] for caller in (planner, other)] == [1, 1]
    await (await planner.create_session("closed", members=["orchestrator:planner"])).say(SECRET)
    await world.index_sessions()
    assert [(await search(caller))["searched"] for caller in (planner, other)] == [2, 1]
    assert read == [""]


async def test_the_session_cache_is_rebuilt_after_many_events_or_a_shorter_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.planner.say(SECRET)
    await world.index_sessions()
    assert (await search(world.planner))["searched"] == 1
    monkeypatch.setattr("weftline.app.authentication._MAX_CATCH_UP", 0)
    await (await world.planner.create_session("more")).say(SECRET)
    await world.index_sessions()
    assert (await search(world.planner))["searched"] == 2


async def test_session_caches_of_idle_tenants_are_evicted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.app.authentication._MAX_SESSIONS", 1)
    agent = await world.stranger.create_agent("agent")
    await agent.create_session("theirs")
    for _ in range(2):
        for caller in (world.planner, agent):
            assert (await search(caller))["searched"] == 0
