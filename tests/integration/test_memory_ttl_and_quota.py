"""Private memory: expiry, deletion and quota."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from support.world import SESSION, outcome, refused
from weftline import Weftline
from weftline.history.lines import LineStore
from weftline.history.model import LATEST, ChangeKind, blob_hash
from weftline.state.memory.model import MemoryScope, MemoryUsage
from weftline.state.memory.service import _EXPIRE_BATCH
from weftline.state.memory.sql import MemoryStore
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from pathlib import Path

    from support.world import Caller, World

pytestmark = pytest.mark.req("MS-07")

GLOBAL = MemoryScope("planner", None)
IN_SESSION = MemoryScope("planner", SESSION)
MICROSECOND = 0.000001


async def lines(world: World, ask: Any) -> Any:
    return await world.app.database.read(Scope(world.tenant), lambda tx: ask(LineStore(tx)))


async def usage(world: World, owner: str = "planner") -> MemoryUsage:
    return await world.app.database.read(Scope(world.tenant), lambda tx: MemoryStore(tx).usage(owner))


async def total_weight(world: World, owner: str = "planner") -> int:
    """Return the sum of the rows' weights."""
    rows = await world.rows(
        "SELECT weight FROM memory_entries WHERE tenant = $1 AND principal_id = $2", world.tenant, owner
    )
    return sum(row[0] for row in rows)


@pytest.mark.parametrize("session_id", [None, SESSION])
async def test_an_entry_expires_on_every_read_path_at_the_exact_microsecond(
    world: World, session_id: str | None
) -> None:
    await world.planner.remember("k", 1, expires_in=1, session_id=session_id)
    await world.planner.remember("kept", 1, session_id=session_id)
    world.clock.advance(seconds=1 - MICROSECOND)
    assert await world.planner.recalled("k", session_id) == 1
    assert await world.planner.memory_keys(session_id=session_id) == ["k", "kept"]
    world.clock.advance(seconds=MICROSECOND)
    with refused("MEMORY_NOT_FOUND") as caught:
        await world.planner.recall("k", session_id)
    assert caught.value.context["available_alternatives"] == []
    with refused("MEMORY_NOT_FOUND"):
        await world.planner.forget("k", session_id=session_id)
    for which in (session_id, "all"):
        assert await world.planner.memory_keys(session_id=which) == ["kept"]
    overview = await world.planner.call("memory.overview", agent_id="planner")
    assert overview["statistics"]["total_entries"] == 1
    inspected = await world.admin.call("memory.inspect", agent_id="planner")
    assert [entry["key"] for entry in inspected["entries"]] == ["kept"]


async def test_an_expired_key_can_be_created_again_at_its_next_version(world: World) -> None:
    for version, terms in ((2, {"overwrite": False}), (4, {"if_version": 0}), (6, {})):
        await world.planner.remember("k", 1, expires_in=1)
        world.clock.advance(seconds=1)
        assert (await world.planner.remember("k", 2, **terms))["version"] == version
        await world.planner.forget("k")
    await world.planner.remember("k", 1, expires_in=1)
    world.clock.advance(seconds=1)
    with refused("VERSION_CONFLICT"):
        await world.planner.remember("k", 2, if_version=1)


async def test_the_maximum_ttl_is_a_year(world: World) -> None:
    await world.planner.remember("k", 1, expires_in=31_536_000)
    world.clock.advance(seconds=31_536_000 - MICROSECOND)
    assert await world.planner.recalled("k") == 1
    world.clock.advance(seconds=MICROSECOND)
    assert await world.planner.memory_keys() == []


async def test_subscribers_receive_the_expiry_of_entries(world: World) -> None:
    await world.analysis.remember("k", 1, expires_in=1)
    await world.analysis.remember("k", 1, expires_in=1, session_id=SESSION)
    await world.analysis.remember("later", 1, expires_in=2)
    await world.analysis.write("board_key", ttl_seconds=1)
    await world.app.scheduler.drain("keys.expire")
    world.clock.advance(seconds=1)
    await world.app.scheduler.drain("keys.expire")
    await world.app.scheduler.drain("keys.expire")
    events = (await world.analysis.events(personal=True, types=["memory.expired"]))["events"]
    assert sorted((e["session_id"] or "", e["subject"], e["actor"], e["data"]["scope"]) for e in events) == [
        ("", "k", "system", "global"),
        (SESSION, "k", "system", "session"),
    ]
    assert await world.planner.memory_events() == await world.admin.memory_events() == []
    world.clock.advance(seconds=1)
    await world.app.scheduler.drain("keys.expire")
    assert (await world.analysis.memory_events(personal=True))[-1] == ("memory.expired", "later")
    assert (await world.planner.history("board_key"))["ended"] == "expired"
    assert await usage(world, "analysis") == MemoryUsage(weight=0, expired=3)


async def test_entries_of_an_archived_session_expire_too(world: World) -> None:
    await world.planner.remember("k", 1, expires_in=1, session_id=SESSION)
    await world.planner.call("session.archive", session_id=SESSION)
    world.clock.advance(seconds=1)
    await world.app.scheduler.drain("keys.expire")
    assert await world.planner.memory_events() == [("memory.written", "k"), ("memory.expired", "k")]
    assert (await usage(world)).weight == 0


async def test_expiring_entries_of_a_deleted_session_does_nothing(world: World) -> None:
    deleted_line = MemoryScope("planner", "deleted").line_id
    expired = await world.app.database.write(
        Scope(world.tenant), lambda tx: world.app.expiry._expire_entries(deleted_line, tx)
    )
    assert list(expired) == []
    assert await world.rows("SELECT 1 FROM lines WHERE tenant = $1 AND line_id = $2", world.tenant, deleted_line) == []


async def test_many_expired_entries_are_recorded_in_batches(world: World) -> None:
    for number in range(_EXPIRE_BATCH + 5):
        await world.planner.remember(f"k{number:04}", 1, expires_in=1)
    world.clock.advance(seconds=1)
    await world.planner.remember("k0204", 2)
    assert (await usage(world)).expired in {_EXPIRE_BATCH, _EXPIRE_BATCH + 1}
    assert await world.planner.memory_keys() == ["k0204"]
    await world.app.scheduler.drain("keys.expire")
    assert await usage(world) == MemoryUsage(weight=6, expired=_EXPIRE_BATCH + 5)
    assert await lines(world, lambda store: store.verify(GLOBAL.line_id)) is None


async def test_expiry_is_published_without_a_write(tmp_path: Path) -> None:
    async with Weftline.open(tmp_path) as weftline, asyncio.timeout(60):
        await weftline.memory.set("k", {"a": 1}, expires_in=1)
        async for event in weftline.follow(after=0):
            if event.type == "memory.expired":
                assert (event.subject, event.actor) == ("k", "system")
                break


async def test_history_records_every_change_and_verifies(world: World) -> None:
    await world.planner.remember("a", 1, metadata={"m": "\x00"})
    await world.planner.remember("a", 2, expires_in=5)
    await world.planner.remember("b", None, expires_in=1)
    world.clock.advance(seconds=1)
    await world.planner.forget("a")
    await world.planner.remember("b", 1.0)
    await world.planner.remember("a", 2, session_id=SESSION)
    for scope in (GLOBAL, IN_SESSION):
        assert await lines(world, lambda store, scope=scope: store.verify(scope.line_id)) is None
    (latest,) = await lines(world, lambda store: store.state_at(GLOBAL.line_id, LATEST))
    assert (latest.change.key, latest.change.incarnation, latest.value) == ("b", 2, "1.0")
    past = await lines(world, lambda store: store.versions(GLOBAL.line_id, "a", 1, 9))
    assert [version.change.act for version in past] == [ChangeKind.DELETE, ChangeKind.WRITE, ChangeKind.WRITE]
    assert past[2].change.meta.metadata_hash == blob_hash('{"m":"\\u0000"}').hex()
    ended = await lines(world, lambda store: store.versions(GLOBAL.line_id, "b", 1, 9))
    assert [(version.change.act, version.author) for version in ended] == [
        (ChangeKind.EXPIRE, "system"),
        (ChangeKind.WRITE, "orchestrator:planner"),
    ]


async def test_replaced_deleted_and_expired_values_are_deleted_from_the_database(world: World) -> None:
    await world.planner.remember("replaced", "a marker")
    await world.planner.remember("replaced", "harmless")
    await world.planner.remember("deleted", {"inside": "a marker"}, metadata={"also": "a marker"})
    await world.planner.forget("deleted")
    await world.planner.remember("expired", ["a marker"], metadata={"also": "a marker"}, expires_in=1)
    await world.planner.remember("twice", "used twice")
    await world.planner.remember("again", "used twice")
    await world.planner.forget("twice")
    world.clock.advance(seconds=1)
    await world.planner.remember("next", 1)
    for table in ("blobs", "changes", "commits", "memory_entries", "events", "audit_log"):
        rows = await world.rows(f"SELECT * FROM {table} WHERE tenant = $1", world.tenant)
        assert not [row for row in rows if "marker" in str(tuple(row))], table
    assert (await world.planner.recall("again"))["value"] == "used twice"
    assert await lines(world, lambda store: store.verify(GLOBAL.line_id)) is None


async def test_concurrently_deleted_values_are_deleted_from_the_database(world: World) -> None:
    agents = [world.planner, world.analysis, world.review, world.admin]
    for number in range(20):
        await asyncio.gather(*(agent.remember(f"k{number}", f"a marker {number}") for agent in agents))
    for number in range(20):
        await asyncio.gather(*(agent.forget(f"k{number}") for agent in agents))
    await world.app.scheduler.drain("history.sweep")
    rows = await world.rows("SELECT content FROM blobs WHERE tenant = $1", world.tenant)
    assert not [row for row in rows if b"marker" in bytes(row[0])]
    assert await world.rows("SELECT 1 FROM doubtful_blobs WHERE tenant = $1", world.tenant) == []


async def test_deleting_a_session_deletes_its_memory(world: World) -> None:
    for caller in (world.planner, world.analysis):
        await caller.remember("here", "of the session", session_id=SESSION)
        await caller.remember("there", "of the agent")
    await world.planner.call("session.delete", session_id=SESSION, force=True)
    for caller, owner in ((world.planner, "planner"), (world.analysis, "analysis")):
        with refused("SESSION_NOT_FOUND"):
            await caller.recall("here", SESSION)
        assert await caller.memory_keys(session_id="all") == ["there"]
        assert (await usage(world, owner)).weight == await total_weight(world, owner) == len('there"of the agent"')
    left = await world.rows("SELECT line_id FROM lines WHERE tenant = $1", world.tenant)
    assert sorted(row[0] for row in left) == ["memory:analysis", "memory:planner"]
    blobs = await world.rows("SELECT content FROM blobs WHERE tenant = $1", world.tenant)
    assert [row[0] for row in blobs] == [b'"of the agent"']
    await world.planner.create_session(SESSION)
    assert await world.planner.memory_keys(session_id=SESSION) == []
    assert (await world.planner.remember("here", 1, session_id=SESSION))["version"] == 2


async def test_a_session_is_deleted_during_memory_writes(world: World) -> None:
    other_app = await world.another_app()
    callers = [world.planner, world.analysis, world.review.at(other_app), world.planner.at(other_app)]
    await asyncio.gather(*(caller.remember("k", 1, session_id=SESSION) for caller in callers))
    calls = [outcome(caller.remember(f"k{n}", n, session_id=SESSION)) for n in range(5) for caller in callers]
    calls.insert(8, outcome(world.admin.call("session.delete", session_id=SESSION, force=True)))
    assert set(await asyncio.gather(*calls)) <= {"ok", "SESSION_NOT_FOUND"}
    for owner in ("planner", "analysis", "review-2"):
        assert (await usage(world, owner)).weight == await total_weight(world, owner) == 0
    assert await world.rows("SELECT line_id FROM lines WHERE tenant = $1", world.tenant) == []


@pytest.fixture
async def limited(world: World) -> Caller:
    """Return a caller whose memory limit is one mebibyte."""
    return world.planner.at(await world.another_app(memory_limit_mb=1))


HALF = "x" * (2**19 - 10)


async def test_a_write_beyond_the_quota_is_refused(world: World, limited: Caller) -> None:
    await limited.remember("a", HALF)
    await limited.remember("b", HALF, session_id=SESSION)
    with refused("MEMORY_LIMIT_EXCEEDED") as caught:
        await limited.remember("c", "y" * 100)
    assert caught.value.context == {"used_bytes": 2**20 - 14, "limit_bytes": 2**20, "value_size": 102}
    with refused("MEMORY_LIMIT_EXCEEDED"):
        await limited.remember("a", HALF + "y" * 15)
    await limited.remember("a", HALF + "y" * 14)
    assert (await usage(world)).weight == await total_weight(world) == 2**20
    await limited.remember("a", "z" * len(HALF))
    await limited.forget("b", session_id=SESSION)
    await limited.remember("c", "y" * 100)
    assert (await usage(world)).weight == await total_weight(world)


async def test_metadata_counts_toward_the_quota(limited: Caller) -> None:
    metadata = {"m": "x" * 65_000}
    outcomes = [await outcome(limited.remember(f"k{number}", 1, metadata=metadata)) for number in range(17)]
    assert outcomes == ["ok"] * 16 + ["MEMORY_LIMIT_EXCEEDED"]


async def test_expired_entries_do_not_count_toward_the_quota(world: World, limited: Caller) -> None:
    await limited.remember("a", HALF, expires_in=1, session_id=SESSION)
    await limited.remember("b", HALF)
    world.clock.advance(seconds=1 - MICROSECOND)
    with refused("MEMORY_LIMIT_EXCEEDED"):
        await limited.remember("c", HALF)
    world.clock.advance(seconds=MICROSECOND)
    await limited.remember("c", HALF)
    with refused("MEMORY_LIMIT_EXCEEDED"):
        await limited.remember("d", HALF)


async def test_entries_can_shrink_when_the_quota_is_exceeded(world: World, limited: Caller) -> None:
    await world.planner.remember("a", HALF)
    await world.planner.remember("b", HALF + HALF)
    with refused("MEMORY_LIMIT_EXCEEDED"):
        await limited.remember("c", 1)
    await limited.remember("b", HALF + HALF[1:])
    await limited.forget("b")
    await limited.remember("c", 1)


async def test_the_quota_is_per_agent(world: World, limited: Caller) -> None:
    await limited.remember("a", HALF + HALF)
    await world.analysis.at(limited.app).remember("a", HALF + HALF)


async def test_concurrent_writers_do_not_exceed_the_quota(world: World, limited: Caller) -> None:
    in_other_process = limited.at(await world.another_app(memory_limit_mb=1))
    value = "x" * (2**18 - 10)
    for round_number in range(2):
        calls = (
            caller.remember(f"k{number}", value + str(round_number), session_id=SESSION if number % 2 else None)
            for number, caller in enumerate([limited, in_other_process] * 4)
        )
        outcomes = Counter(await asyncio.gather(*map(outcome, calls)))
        assert outcomes == {"ok": 4, "MEMORY_LIMIT_EXCEEDED": 4}
        assert (await usage(world)).weight == await total_weight(world) <= 2**20


async def test_the_usage_equals_the_rows_after_concurrent_changes(world: World) -> None:
    in_other_process = world.planner.at(await world.another_app())
    for round_number in range(3):
        calls = [
            outcome(caller.remember(f"k{n % 4}", "x" * n, expires_in=1 if n % 3 else None, session_id=session_id))
            for n in range(12)
            for caller, session_id in ((world.planner, None), (in_other_process, SESSION))
        ]
        calls += [outcome(in_other_process.forget(f"k{n}", session_id=SESSION)) for n in range(2)]
        calls.append(outcome(world.app.scheduler.drain("keys.expire")))
        await asyncio.gather(*calls)
        world.clock.advance(seconds=round_number)
        assert (await usage(world)).weight == await total_weight(world)
    for scope in (GLOBAL, IN_SESSION):
        assert await lines(world, lambda store, scope=scope: store.verify(scope.line_id)) is None
