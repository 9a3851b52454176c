"""Retention of events and audit rows: what is deleted, what is kept for whom, and what readers are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.bundles import exported, imported
from support.knowledge import embed_quickly
from weftline.jobs.retention import PRUNE_LOGS
from weftline.kernel.clock import to_micros
from weftline.settings import Settings
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from support.world import World

DAY = 86_400
HOOK = "https://example.com/hook"
OF_CHUNKS = "FROM chunks WHERE tenant = $1"


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database_url=database_url, event_days=10, audit_days=20)


async def prune(world: World) -> None:
    """Index everything, and run the job."""
    await world.index_sessions()
    await world.app.scheduler.drain(PRUNE_LOGS)


async def seqs(world: World) -> list[int]:
    rows = await world.rows("SELECT seq FROM events WHERE tenant = $1 ORDER BY seq", world.tenant)
    return [row[0] for row in rows]


async def test_old_events_are_deleted_and_readers_are_told(world: World) -> None:
    await world.planner.write("goal", "old")
    horizon = await world.last_event()
    world.clock.advance(seconds=11 * DAY)
    await world.planner.write("goal", "new")
    await prune(world)
    assert await seqs(world) == [horizon + 1]
    answer = await world.planner.call("events.read", session_id="s1", after=0)
    assert (answer["pruned_through"], [event["seq"] for event in answer["events"]]) == (horizon, [horizon + 1])
    assert "pruned_through" not in await world.planner.call("events.read", session_id="s1", after=horizon)
    other = world.planner.at(await world.another_app())
    answer = await other.call("events.read", session_id="s1", after=horizon - 1, types=["message.*"], wait_seconds=60)
    assert (answer["pruned_through"], answer["events"], answer["next_after"]) == (horizon, [], horizon + 1)
    assert await world.planner.value("goal") == "new"
    assert len((await world.planner.history("goal"))["versions"]) == 2


async def test_nothing_is_deleted_that_is_young_or_when_retention_is_off(world: World) -> None:
    before = await seqs(world)
    world.clock.advance(seconds=9 * DAY)
    await prune(world)
    assert await seqs(world) == before
    app = await world.another_app(event_days=0, audit_days=0)
    world.clock.advance(seconds=900 * DAY)
    await app.scheduler.drain(PRUNE_LOGS)
    assert await seqs(world) == before


async def test_audit_rows_have_their_own_retention(world: World) -> None:
    count = len(await world.admin.audit())
    world.clock.advance(seconds=19 * DAY)
    await world.admin.create_agent("late")
    await prune(world)
    assert len(await world.admin.audit()) == count + 1
    world.clock.advance(seconds=2 * DAY)
    await prune(world)
    world.clock.advance(seconds=3600)
    await prune(world)
    assert [row["target"] for row in await world.admin.audit()] == ["late"]


async def test_webhooks_and_the_index_are_never_overtaken(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_: object) -> None:
        """Accept every address."""

    monkeypatch.setattr(world.app.webhooks, "check", resolve)
    world.app.scheduler.paused |= {"webhooks.deliver"}
    hook = await world.admin.call("webhook.create", url=HOOK)
    cursor = await world.last_event()
    await world.planner.write("goal", "x")
    world.clock.advance(seconds=11 * DAY)
    await world.app.scheduler.drain(PRUNE_LOGS)
    assert (await seqs(world))[0] == 1  # not indexed yet
    await prune(world)
    assert (await seqs(world))[0] == cursor + 1  # the webhook has yet to read it
    await world.admin.call("webhook.update", webhook_id=hook["webhook_id"], enabled=False)
    end = await world.last_event()
    await prune(world)
    assert await seqs(world) == [end]
    enabled = await world.admin.call("webhook.update", webhook_id=hook["webhook_id"], enabled=True)
    assert enabled["missed"] == end - 1 - cursor
    replayed = await world.admin.call("webhook.replay", webhook_id=hook["webhook_id"], from_seq=1)
    assert replayed["pruned_through"] == end - 1


async def test_pending_deliveries_are_kept_and_dead_letters_go(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_: object) -> None:
        """Accept every address."""

    monkeypatch.setattr(world.app.webhooks, "check", resolve)
    world.app.scheduler.paused |= {"webhooks.deliver"}
    hook = (await world.admin.call("webhook.create", url=HOOK))["webhook_id"]
    columns = "tenant, webhook_id, seq, state, attempts, due_at"
    add = f"INSERT INTO webhook_deliveries ({columns}) VALUES ($1, $2, $3, $4, 0, 0)"
    await world.planner.write("goal", "x")
    last = await world.last_event()
    await world.sql(add, world.tenant, hook, 1, "dead")
    await world.sql(add, world.tenant, hook, last, "pending")
    await world.sql("UPDATE webhooks SET cursor = $1 WHERE tenant = $2", last, world.tenant)
    world.clock.advance(seconds=11 * DAY)
    await prune(world)
    assert await seqs(world) == [last]
    rows = await world.rows("SELECT seq, state FROM webhook_deliveries WHERE tenant = $1", world.tenant)
    assert [tuple(row) for row in rows] == [(last, "pending")]


async def test_imported_events_stay_as_long_as_those_written_with_them(world: World) -> None:
    for number in range(3):
        await world.planner.write("goal", str(number))
    bundle = await exported(world.admin)
    world.clock.advance(seconds=30 * DAY)
    await imported(world.stranger, bundle)
    counted = "SELECT COUNT(*) FROM events WHERE tenant = $1 AND at < $2"
    old = to_micros(world.clock.now()) - 20 * DAY * 1_000_000

    async def old_events() -> int:
        rows = await world.app.database.read(
            Scope(world.other_tenant), lambda tx: tx.all(counted, world.other_tenant, old)
        )
        return int(rows[0][0])

    there = await old_events()
    assert there > 3
    await prune(world)
    assert await old_events() == there
    for _ in range(12):
        world.clock.advance(seconds=DAY)
        await prune(world)
    assert await old_events() == 0


async def test_a_clock_that_jumps_ahead_deletes_at_most_a_day(world: World) -> None:
    await world.planner.write("goal", "0")
    world.clock.advance(seconds=11 * DAY)
    await prune(world)
    for number in range(5):
        world.clock.advance(seconds=DAY)
        await world.planner.write("goal", str(number))
    kept = await seqs(world)
    world.clock.advance(seconds=365 * DAY)  # wrong
    await prune(world)
    assert await seqs(world) == kept
    world.clock.advance(seconds=-365 * DAY)
    await prune(world)
    assert await seqs(world) == kept


async def test_events_of_the_future_do_not_block_retention(world: World) -> None:
    await world.sql("UPDATE events SET at = $1 WHERE tenant = $2 AND seq = 1", 4_000_000_000_000_000, world.tenant)
    await world.planner.write("goal", "x")
    world.clock.advance(seconds=11 * DAY)
    await world.planner.write("goal", "y")
    last = await world.last_event()
    await prune(world)
    assert await seqs(world) == [last]


@pytest.mark.req("CE-F52")
async def test_reindexing_finds_everything_without_events(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    embed_quickly(monkeypatch)
    for number in range(12):
        await world.planner.write(f"motto_{number}", f"marmalade {number} on the board")
        await world.planner.say(f"marmalade {number} in a message")
        await world.planner.remember(f"note{number}", f"marmalade {number} in private memory")
    await world.planner.remember("here", "marmalade in session memory", session_id="s1")
    event = {"event_id": "e1", "content": "marmalade in a window"}
    await world.planner.call("context.ingest", session_id="s1", events=[event])
    world.clock.advance(seconds=11 * DAY)
    await prune(world)
    assert await seqs(world) == []
    before = await indexed(world)
    assert len(before) == 3 * 12 + 2
    newest = await world.rows(f"SELECT collection, MAX(number) {OF_CHUNKS} GROUP BY collection", world.tenant)
    await world.sql("DELETE FROM chunks WHERE tenant = $1 AND number % 2 = 0", world.tenant)
    await world.admin.call("knowledge.reindex_all")
    await world.index_sessions()
    assert await indexed(world) == before
    oldest = dict(await world.rows(f"SELECT collection, MIN(number) {OF_CHUNKS} GROUP BY collection", world.tenant))
    assert all(oldest[collection] > number for collection, number in newest)


async def indexed(world: World) -> set[tuple[str, str]]:
    rows = await world.rows(f"SELECT place, item {OF_CHUNKS}", world.tenant)
    return {(row[0], row[1]) for row in rows}


async def test_records_and_exports_work_without_old_events(world: World) -> None:
    await world.planner.write("goal", "x")
    await world.planner.say("hello")
    world.clock.advance(seconds=11 * DAY)
    await prune(world)
    assert await seqs(world) == []
    await world.planner.call("records.list", session_id="s1")
    assert await world.planner.message_texts() == ["hello"]
    assert await world.planner.found("hello") == ["hello"]
    await imported(world.stranger, await exported(world.admin))
    assert await world.stranger.value("goal") == "x"
    assert await world.stranger.message_texts() == ["hello"]


async def test_the_cache_of_session_members_survives_pruned_events(world: World) -> None:
    embed_quickly(monkeypatch := pytest.MonkeyPatch())
    try:
        await world.planner.say("marmalade")
        await world.index_sessions()
        await world.planner.call("search.query", query="marmalade")
        later = await world.planner.create_session("later")
        await later.say("marmalade too")
        world.clock.advance(seconds=11 * DAY)
        await prune(world)
        found = (await world.planner.call("search.query", query="marmalade", min_score=0.0))["results"]
        assert {result["session_id"] for result in found} == {"s1", "later"}
    finally:
        monkeypatch.undo()
