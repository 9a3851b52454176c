"""Session indexing: messages, board keys and memories enter the searched collections and leave them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from support.bundles import exported, imported
from support.indexed_items import (
    MODEL,
    ScriptedEmbeddings,
    check_index_complete,
    indexed_texts,
    unembedded,
    use_scripted_embeddings,
    vector_of,
)
from support.webhooks import wait_until
from support.world import SESSION
from weftline.indexing.embeddings import EmbedderUnavailable, TenantModelStore, TextRefused
from weftline.jobs.session_indexing import SessionIndexing
from weftline.kernel.job_store import JobStore
from weftline.search import session_indexer as going_through
from weftline.search.session_cursor import (
    EMBEDDING_JOB,
    INDEXING_JOB,
    REINDEXING_JOB,
    IndexCursor,
    ReindexRange,
    Sweep,
    start_session_reindex,
)
from weftline.search.session_item_text import chunks_of
from weftline.settings import InvalidSetting, Settings
from weftline.storage.sql.database import Scope
from weftline.storage.sql.session_index import events_pending

if TYPE_CHECKING:
    from support.world import World

pytestmark = [pytest.mark.req("CE-F11"), pytest.mark.req("CE-F12", part="importance of indexed items")]


@pytest.fixture
def embeddings(world: World) -> ScriptedEmbeddings:
    return use_scripted_embeddings(world)


async def columns(world: World, item: str) -> Any:
    rows = await world.rows(
        "SELECT scope, speaker, heading, pinned, timestamp, source FROM chunks WHERE tenant = $1 AND item = $2",
        world.tenant,
        item,
    )
    return tuple(rows[0])


async def pending(world: World) -> int:
    return await world.app.database.read(Scope(world.tenant), events_pending)


async def test_messages_keys_and_memories_are_indexed_in_their_collections(
    world: World, embeddings: ScriptedEmbeddings
) -> None:
    await world.planner.say("we ship on Friday")
    await world.planner.write("goal", "ship it")
    await world.planner.remember("tea", "green")
    await world.planner.remember("cups", {"count": 2}, session_id=SESSION)
    await world.index_sessions()
    assert await indexed_texts(world) == {"s1:1": ["we ship on Friday"], "s1:key/goal": ["ship it"]}
    assert await indexed_texts(world, "memory") == {"planner:/tea": ["green"], "planner:s1/cups": ['{"count":2}']}
    assert sorted(embeddings.texts) == [
        "a test\ngoal\nship it",
        'cups\n{"count":2}',
        "planner: we ship on Friday",
        "tea\ngreen",
    ]
    await check_index_complete(world)


async def test_a_chunk_has_author_timestamp_and_audience(world: World, embeddings: ScriptedEmbeddings) -> None:
    at = int(world.clock.now().timestamp() * 1_000_000)
    await world.planner.say("for me alone", visibility="private", category="DECISION")
    await world.analysis.say("decided by a sub-agent", category="DECISION")
    await world.planner.write("plan", "secret", readable_by=["orchestrator", "human:*"])
    await world.index_sessions()
    assert await columns(world, "1") == ('["principal:planner"]', "planner", "", 1, at, "message")
    assert await columns(world, "2") == ("", "analysis", "", 0, at, "message")
    readers = '["orchestrator","human:*"]'
    assert await columns(world, "key/plan") == (readers, "orchestrator:planner", "a test\nplan", 0, at, "board")


async def test_an_overwritten_value_is_not_indexed(world: World, embeddings: ScriptedEmbeddings) -> None:
    await world.planner.write("goal", "first")
    await world.index_sessions()
    await world.planner.write("goal", "second")
    await world.planner.write("goal", "third")
    await world.index_sessions()
    assert await indexed_texts(world) == {"s1:key/goal": ["third"]}
    assert embeddings.texts == ["a test\ngoal\nfirst", "a test\ngoal\nthird"]
    await check_index_complete(world)


async def test_deleted_and_expired_items_are_removed_from_the_index(
    world: World, embeddings: ScriptedEmbeddings
) -> None:
    await world.planner.write("goal", "kept")
    await world.planner.write("draft", "gone")
    await world.planner.write("brief", "gone too", ttl_seconds=60)
    await world.planner.remember("tea", "green")
    await world.planner.remember("milk", "oat", expires_in=60)
    await world.index_sessions()
    await world.planner.delete("draft")
    await world.planner.forget("tea")
    world.clock.advance(seconds=61)
    await world.app.scheduler.drain("keys.expire")
    await world.index_sessions()
    assert await indexed_texts(world) == {"s1:key/goal": ["kept"]}
    assert await indexed_texts(world, "memory") == {}
    await check_index_complete(world)


async def test_a_key_deleted_and_written_again_is_indexed_once(world: World, embeddings: ScriptedEmbeddings) -> None:
    await world.planner.write("goal", "first incarnation")
    await world.index_sessions()
    await world.planner.delete("goal")
    await world.planner.write("goal", "second life")
    await world.index_sessions()
    assert await indexed_texts(world) == {"s1:key/goal": ["second life"]}


async def test_a_restored_snapshot_is_indexed_again(world: World, embeddings: ScriptedEmbeddings) -> None:
    await world.planner.write("goal", "then")
    await world.planner.snapshot("mark")
    await world.planner.write("goal", "now")
    await world.planner.write("more", "added since")
    await world.index_sessions()
    await world.planner.restore("mark")
    await world.index_sessions()
    assert await indexed_texts(world) == {"s1:key/goal": ["then"]}
    await world.planner.call("history.rollback", context_id="board:s1", target_version="2")
    await world.index_sessions()
    assert await indexed_texts(world) == {"s1:key/goal": ["now"]}


async def test_values_of_a_branch_are_indexed_once_merged(world: World, embeddings: ScriptedEmbeddings) -> None:
    await world.planner.write("goal", "trunk")
    await world.planner.call("history.branch", context_id="board:s1", branch="draft")
    await world.planner.write("goal", "branch", branch="draft")
    await world.index_sessions()
    assert await indexed_texts(world) == {"s1:key/goal": ["trunk"]}
    await world.planner.call("history.merge", context_id="board:s1", from_context_id="board:s1@draft")
    await world.index_sessions()
    assert await indexed_texts(world) == {"s1:key/goal": ["branch"]}


async def test_a_visibility_change_reindexes_a_message(world: World, embeddings: ScriptedEmbeddings) -> None:
    number = await world.planner.say("for all")
    await world.index_sessions()
    await world.admin.call("message.set_visibility", session_id=SESSION, message_id=number, visibility="admin_only")
    assert await indexed_texts(world) == {}
    await world.index_sessions()
    assert (await columns(world, str(number)))[0] == '["permission:admin"]'
    await check_index_complete(world)


async def test_a_deleted_session_leaves_the_index_in_the_same_transaction(
    world: World, embeddings: ScriptedEmbeddings
) -> None:
    other = await world.planner.create_session("s10")
    for place in (world.planner, other):
        await place.say("hello")
        await place.write("goal", "written")
        await place.remember("tea", "green", session_id=place.session)
    await world.planner.remember("tea", "black")
    await world.index_sessions()
    await world.admin.call("session.archive", session_id=SESSION)
    await world.admin.call("session.delete", session_id=SESSION, force=True)
    assert await indexed_texts(world) == {"s10:1": ["hello"], "s10:key/goal": ["written"]}
    assert await indexed_texts(world, "memory") == {"planner:/tea": ["black"], "planner:s10/tea": ["green"]}
    await check_index_complete(world)


async def test_a_session_deleted_during_indexing_leaves_nothing_in_the_index(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.planner.say("hello")
    await world.planner.remember("tea", "green", session_id=SESSION)
    embed = embeddings.of_passages

    async def embed_during_change(*what: Any, **how: Any) -> list[bytes]:
        if await world.rows("SELECT 1 FROM sessions WHERE tenant = $1 AND archived_at IS NULL", world.tenant):
            await world.admin.call("session.archive", session_id=SESSION)
            await world.admin.call("session.delete", session_id=SESSION, force=True)
        return await embed(*what, **how)

    monkeypatch.setattr(embeddings, "of_passages", embed_during_change)
    await world.index_sessions()
    assert await indexed_texts(world) == {}
    assert await indexed_texts(world, "memory") == {}
    assert await pending(world) == 0


async def test_an_item_changed_during_indexing_is_indexed_in_its_last_state(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.planner.write("goal", "first")
    embed = embeddings.of_passages

    async def embed_during_change(*what: Any, **how: Any) -> list[bytes]:
        if await world.planner.value("goal") == "first":
            await world.planner.write("goal", "second")
        return await embed(*what, **how)

    monkeypatch.setattr(embeddings, "of_passages", embed_during_change)
    await world.index_sessions()
    assert await indexed_texts(world) == {"s1:key/goal": ["second"]}
    await check_index_complete(world)


async def test_an_imported_session_is_indexed_completely(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(going_through, "TEXT_BATCH_SIZE", 3)
    for number in range(10):
        await world.planner.say(f"message {number}")
    await world.planner.write("goal", "written")
    bundle = await exported(world.admin)
    use_scripted_embeddings(world)
    await imported(world.stranger, bundle)
    # As if the bundle had contained no events.
    await world.app.database.write(
        Scope(world.other_tenant),
        lambda tx: tx.run("DELETE FROM events WHERE tenant = $1 AND type <> 'session.imported'", world.other_tenant),
    )
    await world.index_sessions()
    rows = await world.app.database.read(
        Scope(world.other_tenant),
        lambda tx: tx.all("SELECT item, text FROM chunks WHERE tenant = $1", world.other_tenant),
    )
    assert sorted(map(tuple, rows)) == sorted(
        [("key/goal", "written"), *((str(number + 1), f"message {number}") for number in range(10))]
    )


async def test_an_imported_board_is_indexed_in_batches(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(going_through, "TEXT_BATCH_SIZE", 3)
    # The first vectors of a tenant may need a second batch, and the batches are counted.
    await world.planner.remember("tea", "green")
    await world.index_sessions()
    for number in range(10):
        await world.planner.write(f"key_{number}", "word " * (600 if number == 4 else 1))
    await replace_log_by_import_event(world)
    batches: list[list[str]] = []
    put = going_through.Indexer.put

    async def record_call(self: Any, written: Any, model: str) -> Any:
        batches.append([each.change.item.item for each in written])
        return await put(self, written, model)

    monkeypatch.setattr(going_through.Indexer, "put", record_call)
    await world.index_sessions()
    # The fifth text is as long as several others.
    sizes = [len(some) for some in batches if some]
    assert sizes == [3, 2, 3, 2]
    assert len([item for item in await indexed_texts(world) if "key_" in item]) == 10


async def test_an_imported_session_is_indexed_from_its_start_despite_an_outdated_cursor(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(going_through, "TEXT_BATCH_SIZE", 2)
    other = await world.planner.create_session("s2")
    for number in range(4):
        await world.planner.say(f"first {number}")
        await other.say(f"second {number}")
    await replace_log_by_import_event(world, "s2")
    first_seq = (await world.rows("SELECT seq FROM events WHERE tenant = $1", world.tenant))[0][0] - 1
    # The cursor is after two messages of another session, which is deleted by now.
    halfway = IndexCursor(first_seq, Sweep(first_seq - 1, "", 2)).as_progress()
    await world.app.session_indexing.run(world.tenant)
    await world.app.database.write(Scope(world.tenant), lambda tx: JobStore(tx).save(INDEXING_JOB, halfway))
    await world.sql("DELETE FROM chunks WHERE tenant = $1", world.tenant)
    await world.sql("DELETE FROM chunk_vectors WHERE tenant = $1", world.tenant)
    await world.index_sessions()
    assert sorted(await indexed_texts(world)) == ["s2:1", "s2:2", "s2:3", "s2:4"]


async def replace_log_by_import_event(world: World, session: str = SESSION) -> None:
    """Replace the log by one import event, as if the bundle had contained no events."""
    await world.sql(
        "DELETE FROM events WHERE tenant = $1 AND type <> 'message.added' AND type <> 'board.written'", world.tenant
    )
    last = (await world.rows("SELECT MAX(seq) FROM events WHERE tenant = $1", world.tenant))[0][0]
    await world.sql("DELETE FROM events WHERE tenant = $1 AND seq < $2", world.tenant, last)
    await world.sql(
        "UPDATE events SET type = 'session.imported', session_id = $1 WHERE tenant = $2", session, world.tenant
    )


async def test_new_items_are_found_before_a_long_backlog_is_indexed(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_event_batches(monkeypatch)
    for number in range(12):
        await world.planner.say(f"message {number}")
    chunk, rounds = SessionIndexing._chunk_items, []

    async def chunk_during_change(self: Any, *what: Any) -> Any:
        rounds.append(what)
        if len(rounds) == 1:
            await world.planner.say("new message")
        return await chunk(self, *what)

    monkeypatch.setattr(SessionIndexing, "_chunk_items", chunk_during_change)
    await world.index_sessions()
    embedded = [text.removeprefix("planner: ") for text in embeddings.texts]
    before = [f"message {number}" for number in reversed(range(12))]
    assert embedded == [*before[:4], "new message", *before[4:]]
    assert await pending(world) == 0
    await check_index_complete(world)


async def test_a_long_unread_log_is_pending(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_event_batches(monkeypatch)
    for number in range(12):
        await world.planner.say(f"message {number}")
    all_of_it = await pending(world)
    monkeypatch.setattr("weftline.jobs.session_indexing._TURN_SECONDS", 0.0)
    await world.app.session_indexing.run(world.tenant)
    assert await pending(world) == all_of_it
    assert (await world.admin.call("knowledge.show_reindexing"))["events"] == all_of_it


async def test_reindexed_items_stay_indexed_where_the_log_was_never_read(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_event_batches(monkeypatch)
    for number in range(12):
        await world.planner.say(f"message {number}")
    await world.admin.call("knowledge.reindex_all", reembed=True)
    await world.planner.say("between")
    await world.index_sessions()
    assert len(await indexed_texts(world)) == 13
    assert await world.admin.call("knowledge.show_reindexing") == {"domains": [], "events": None}


def small_event_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the log in batches of four events."""
    monkeypatch.setattr(going_through, "EVENT_BATCH_SIZE", 4)
    monkeypatch.setattr("weftline.jobs.session_indexing.EVENT_BATCH_SIZE", 4)


async def test_redacted_items_are_removed_from_the_index_until_restored(
    world: World, embeddings: ScriptedEmbeddings
) -> None:
    await world.planner.say("my number is 555")
    await world.planner.write("goal", "kept quiet")
    await world.index_sessions()
    for item in ("message:s1/1", "board:s1/goal/1.1"):
        await world.admin.call("records.redact", item_id=item, state="removed", reason="private")
    await world.index_sessions()
    assert await indexed_texts(world) == {}
    await world.admin.call("records.redact", item_id="message:s1/1", state="none", reason="asked")
    await world.index_sessions()
    assert await indexed_texts(world) == {"s1:1": ["my number is 555"]}


async def test_a_long_text_is_chunked_with_exact_offsets(world: World, embeddings: ScriptedEmbeddings) -> None:
    text = " ".join(f"Sentence number {number} says something." for number in range(200))
    await world.planner.say(text)
    await world.index_sessions()
    rows = await world.rows(
        "SELECT start_at, end_at, text FROM chunks WHERE tenant = $1 ORDER BY ordinal", world.tenant
    )
    assert len(rows) > 3
    assert all(text[start:end] == chunk_text for start, end, chunk_text in rows)


async def test_a_text_with_a_character_the_database_refuses_is_indexed(
    world: World, embeddings: ScriptedEmbeddings
) -> None:
    await world.planner.say("before\x00after")
    await world.index_sessions()
    assert await indexed_texts(world) == {"s1:1": ["before\ufffdafter"]}


async def test_batches_are_small_and_followed_by_rest(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(80):
        await world.planner.say(f"message {number}")
    loop, rest = asyncio.get_running_loop(), SessionIndexing._rest
    rests: list[bool] = []

    async def record_call(self: SessionIndexing, lease: Any, started: float) -> None:
        worked, since = loop.time() - started, loop.time()
        await rest(self, lease, started)
        rests.append(loop.time() - since >= worked)

    monkeypatch.setattr(SessionIndexing, "_rest", record_call)
    world.app.lease_runner.rest = 1.0
    await world.app.scheduler.drain("search.index_sessions", "search.embed_sessions")
    assert max(embeddings.batches) <= 64
    assert len(rests) >= 3
    assert all(rests)
    assert len(await indexed_texts(world)) == 80


async def test_tenants_are_indexed_in_separate_collections(world: World, embeddings: ScriptedEmbeddings) -> None:
    await world.stranger.create_session("s1")
    await world.stranger.say("theirs")
    await world.planner.say("ours")
    await world.index_sessions()
    assert await indexed_texts(world) == {"s1:1": ["ours"]}


async def test_one_process_at_a_time_indexes_a_tenant(world: World, embeddings: ScriptedEmbeddings) -> None:
    apps = [world.app, await world.another_app(), await world.another_app()]
    for app in apps:
        app.session_indexing._embeddings = embeddings
        app.lease_runner.rest = 0
    for number in range(100):
        await world.planner.say(f"message {number}")
    await asyncio.gather(*(app.scheduler.drain("search.index_sessions", "search.embed_sessions") for app in apps))
    await wait_until(lambda: _caught_up(world))
    assert len(await indexed_texts(world)) == 100
    await check_index_complete(world)


async def _caught_up(world: World) -> bool:
    await world.index_sessions()
    return await pending(world) == 0


async def test_the_lag_is_reported(world: World, embeddings: ScriptedEmbeddings) -> None:
    await world.index_sessions()
    assert await pending(world) == 0
    for number in range(3):
        await world.planner.say(f"message {number}")
    assert await pending(world) == 3
    await world.app.session_indexing.due(None)  # type: ignore[arg-type]
    assert b"weftline_index_lag_events 3.0" in world.app.metrics.exposition()
    await world.app.scheduler.drain("search.index_sessions", "search.embed_sessions")
    assert await pending(world) == 0
    assert b"weftline_index_lag_events 0.0" in world.app.metrics.exposition()
    assert b"weftline_indexed_items_total 3.0" in world.app.metrics.exposition()


async def test_indexing_is_retried_while_the_embedder_is_unavailable(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.planner.say("patience")

    async def unavailable(*_: Any, **__: Any) -> list[bytes]:
        raise EmbedderUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(embeddings, "of_passages", unavailable)
        await world.app.scheduler.drain("search.index_sessions", "search.embed_sessions")
    assert await indexed_texts(world) == {"s1:1": ["patience"]}, "it is found by its words meanwhile"
    assert len(await unembedded(world)) == 1
    await world.app.scheduler.drain("search.index_sessions", "search.embed_sessions")
    await check_index_complete(world)


async def test_a_text_the_embedder_refuses_does_not_block_others(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await world.planner.write("goal", "fine at first")
    await world.index_sessions()
    await world.planner.write("goal", "poison written over it")
    for text in ("fine", "poison", "fine too"):
        await world.planner.say(text)
    embed = embeddings.of_passages

    async def refusing(tenant: str, texts: Any, model: str, **how: Any) -> list[bytes]:
        refused = frozenset(text for text in texts if "poison" in text)
        if refused:
            error = TextRefused()
            error.texts = refused
            raise error
        return await embed(tenant, texts, model, **how)

    monkeypatch.setattr(embeddings, "of_passages", refusing)
    await world.index_sessions()
    assert len(await indexed_texts(world)) == 4, "all are found by their words"
    assert len(await unembedded(world)) == 2
    assert await pending(world) == 0
    assert b"weftline_skipped_items_total 2.0" in world.app.metrics.exposition()
    logged = [record for record in caplog.records if "refused by the embedder" in record.message]
    assert [record.fields["source"] for record in logged] == ["board", "message"]
    assert not any("poison" in str(vars(record)) for record in logged)
    assert await world.rows("SELECT job FROM jobs WHERE tenant = $1 AND job = $2", world.tenant, EMBEDDING_JOB) == []


async def test_a_failing_job_is_logged_once_until_it_recovers(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "weftline.jobs")
    await world.planner.say("patience")

    async def unavailable(*_: Any, **__: Any) -> list[bytes]:
        raise EmbedderUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(embeddings, "of_passages", unavailable)
        for _ in range(3):
            await world.app.scheduler.drain("search.index_sessions", "search.embed_sessions")
    for _ in range(2):
        await world.planner.say("and then it goes on")
        await world.app.scheduler.drain("search.index_sessions", "search.embed_sessions")
    logged = [(record.message, record.fields) for record in caplog.records if record.name == "weftline.jobs"]
    where = {"job": "search.embed_sessions", "tenant": world.tenant}
    assert logged == [
        ("job fails", {**where, "code": "EMBEDDER_UNAVAILABLE"}),
        ("job recovered", where),
    ]


async def test_a_slow_embedder_of_one_tenant_does_not_block_others(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.stranger.create_session("s1")
    await world.stranger.say("theirs")
    await world.planner.say("ours")
    embed, other_is_done = embeddings.of_passages, asyncio.Event()
    first = min(world.tenant, world.other_tenant)

    async def waiting(tenant: str, texts: Any, model: str, **how: Any) -> list[bytes]:
        if tenant == first:
            await other_is_done.wait()
        vectors = await embed(tenant, texts, model, **how)
        other_is_done.set()
        return vectors

    monkeypatch.setattr(embeddings, "of_passages", waiting)
    async with asyncio.timeout(60):
        await world.app.scheduler.drain("search.index_sessions", "search.embed_sessions")
    assert await indexed_texts(world) == {"s1:1": ["ours"]}


async def test_the_lease_is_renewed_during_a_long_embedding(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.jobs.runner._RENEW_EVERY_SECONDS", 0.01)
    await world.planner.say("slow")
    embed = embeddings.of_passages

    async def lease() -> int:
        rows = await world.rows(
            "SELECT lease_until FROM jobs WHERE tenant = $1 AND job = $2", world.tenant, EMBEDDING_JOB
        )
        return rows[0][0]

    async def embed_slowly(*what: Any, **how: Any) -> list[bytes]:
        before = await lease()
        world.clock.advance(seconds=50)
        await wait_until(lambda: _is_later(lease, before))
        return await embed(*what, **how)

    monkeypatch.setattr(embeddings, "of_passages", embed_slowly)
    await world.index_sessions()
    assert await indexed_texts(world) == {"s1:1": ["slow"]}


async def _is_later(lease: Any, before: int) -> bool:
    return await lease() > before


def fail_on_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(subject: Any, text: Any) -> Any:
        if text.text.startswith("poison"):
            raise RuntimeError("two at once")
        return chunks_of(subject, text)

    monkeypatch.setattr("weftline.jobs.session_indexing.chunks_of", failing)


async def test_items_that_fail_for_external_reasons_are_retried(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await world.index_sessions()
    await world.planner.say("poison today, none tomorrow")
    await world.planner.say("fine")
    with monkeypatch.context() as patched:
        fail_on_poison(patched)
        await world.app.scheduler.drain("search.index_sessions", "search.embed_sessions")
    assert await indexed_texts(world) == {}
    assert await pending(world) == 2
    assert [(record.message, record.fields) for record in caplog.records if record.name == "weftline.jobs"] == [
        ("job failed", {"job": "search.index_sessions", "tenant": world.tenant})
    ]
    await world.app.scheduler.drain("search.index_sessions", "search.embed_sessions")
    assert await indexed_texts(world) == {"s1:1": ["poison today, none tomorrow"], "s1:2": ["fine"]}
    assert b"weftline_skipped_items_total 0.0" in world.app.metrics.exposition()
    assert not world.app.session_indexing._tries


async def test_items_that_fail_repeatedly_are_skipped(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fail_on_poison(monkeypatch)
    for text in ("poison", "fine", "poison too"):
        await world.planner.say(text)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            await world.app.session_indexing.run(world.tenant)
        assert await indexed_texts(world) == {}
    await world.app.session_indexing.run(world.tenant)
    assert await indexed_texts(world) == {"s1:2": ["fine"]}
    assert await pending(world) == 0
    assert b"weftline_skipped_items_total 2.0" in world.app.metrics.exposition()
    logged = [record for record in caplog.records if "cannot be read or chunked" in record.message]
    assert [record.fields["place"] for record in logged] == [SESSION, SESSION]
    assert not any("poison" in str(vars(record)) for record in logged)
    assert not world.app.session_indexing._tries


async def test_a_failing_reindex_does_not_block_new_items(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.planner.say("poison")
    await world.index_sessions()
    last = await world.last_event()
    everything = ReindexRange(sessions=2**40, memory=2**40)
    await world.app.database.write(
        Scope(world.tenant), lambda tx: start_session_reindex(JobStore(tx), last, everything)
    )
    await world.planner.say("new")
    fail_on_poison(monkeypatch)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            await world.app.session_indexing.run(world.tenant)
        assert await pending(world) == 0
    await world.app.session_indexing.run(world.tenant)
    assert await indexed_texts(world) == {"s1:1": ["poison"], "s1:2": ["new"]}, "what was found before is found still"
    assert await world.rows("SELECT job FROM jobs WHERE tenant = $1 AND job = $2", world.tenant, REINDEXING_JOB) == []
    await world.index_sessions()
    await check_index_complete(world)


async def test_new_items_get_vectors_of_the_migration_s_target_model(
    world: World, embeddings: ScriptedEmbeddings
) -> None:
    other = msgspec.structs.replace(embeddings.models()[0], name="other")
    models = [*embeddings.models(), other]
    embeddings.models = lambda: models  # type: ignore[method-assign]
    await world.app.database.write(Scope(world.tenant), lambda tx: TenantModelStore(tx).set("other", "building", 1))
    await world.planner.say("in both")
    await world.index_sessions()
    rows = await world.rows("SELECT model, vector FROM chunk_vectors WHERE tenant = $1 ORDER BY model", world.tenant)
    assert [tuple(row) for row in rows] == [(model, vector_of("planner: in both")) for model in ("other", MODEL)]


async def test_indexing_runs_automatically_if_enabled(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.jobs.scheduler._FIRST_POLL_SECONDS", 0.0)
    monkeypatch.setattr("weftline.jobs.session_indexing.EVENT_DELAY_SECONDS", 0.01)
    app = await world.another_app(session_indexing="on")
    app.session_indexing._embeddings = embeddings
    await world.planner.at(app).say("by itself")
    await wait_until(lambda: indexed_texts(world))
    assert await indexed_texts(world) == {"s1:1": ["by itself"]}


async def test_what_is_superseded_or_deleted_before_its_turn_is_never_embedded(
    world: World, embeddings: ScriptedEmbeddings
) -> None:
    for number in range(100):
        await world.planner.write("goal", f"goal {number}")
        if number % 10 == 0:
            await world.app.scheduler.drain("search.index_sessions")
    await world.planner.remember("tea", "green")
    await world.app.scheduler.drain("search.index_sessions")
    await world.planner.forget("tea")
    await world.planner.create_session("gone")
    await world.planner.call("message.add", session_id="gone", content="deleted with its session")
    await world.app.scheduler.drain("search.index_sessions")
    await world.planner.call("session.delete", session_id="gone", force=True)
    await world.index_sessions()
    assert embeddings.texts == ["a test\ngoal\ngoal 99"]
    await check_index_complete(world)


async def test_a_new_item_is_found_by_words_before_it_is_embedded(world: World, embeddings: ScriptedEmbeddings) -> None:
    await world.planner.say("the zeppelin lands on Friday")
    await world.app.scheduler.drain("search.index_sessions")
    assert not embeddings.texts
    found = await world.planner.call("search.query", query="zeppelin")
    assert [result["text"] for result in found["results"]] == ["the zeppelin lands on Friday"]


async def test_small_talk_is_found_by_words_and_not_embedded(world: World, embeddings: ScriptedEmbeddings) -> None:
    await world.planner.say("ok, thanks!")
    await world.planner.say("ok, Friday")
    await world.planner.write("answer", "ok")
    await world.index_sessions()
    assert sorted(embeddings.texts) == ["a test\nanswer\nok", "planner: ok, Friday"]
    assert len(await indexed_texts(world)) == 3


async def test_vectors_do_not_wait_for_a_stream_of_words(world: World, embeddings: ScriptedEmbeddings) -> None:
    await world.planner.say("first")
    await world.app.scheduler.drain("search.index_sessions")
    await world.planner.say("second")
    assert await pending(world) > 0
    await world.app.scheduler.drain("search.embed_sessions")
    assert embeddings.texts == ["planner: first"]
    assert not await unembedded(world)


async def test_an_item_added_while_others_are_embedded_is_embedded_next(
    world: World, embeddings: ScriptedEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.planner.say("first")
    await world.app.scheduler.drain("search.index_sessions")
    embed = embeddings.of_passages

    async def embed_during_writes(*what: Any, **how: Any) -> list[bytes]:
        if not embeddings.texts:
            await world.planner.say("second")
            await world.app.scheduler.drain("search.index_sessions")
        return await embed(*what, **how)

    monkeypatch.setattr(embeddings, "of_passages", embed_during_writes)
    await world.app.scheduler.drain("search.embed_sessions")
    assert embeddings.texts == ["planner: first", "planner: second"]
    await check_index_complete(world)


async def test_nothing_is_embedded_without_new_items(world: World, embeddings: ScriptedEmbeddings) -> None:
    await world.index_sessions()
    assert embeddings.batches == []


def test_the_setting_is_on_or_off() -> None:
    assert Settings().indexes_sessions
    assert not replace(Settings(), session_indexing="off").indexes_sessions
    with pytest.raises(InvalidSetting, match="neither on nor off"):
        replace(Settings(), session_indexing="sometimes").indexes_sessions  # noqa: B018 - reading it raises the error
