"""Private memory: expiry, deletion and quota."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from support.world import SESSION, outcome, refused
from weft import Weft
from weft.capabilities.history.model import LATEST, ChangeKind, blob_hash
from weft.capabilities.memory.model import MemoryScope, MemoryUsage
from weft.capabilities.memory.service import _EXPIRE_BATCH
from weft.storage.sql.database import Scope
from weft.storage.sql.history import SqlLineStore
from weft.storage.sql.memory import SqlMemoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from support.world import Caller, World

pytestmark = pytest.mark.req("MS-07")

GLOBAL = MemoryScope("planner", None)
IN_SESSION = MemoryScope("planner", SESSION)
MICROSECOND = 0.000001


async def lines(world: World, ask: Any) -> Any:
    return await world.app.database.read(Scope(world.tenant), lambda tx: ask(SqlLineStore(tx)))


async def held(world: World, owner: str = "planner") -> MemoryUsage:
    return await world.app.database.read(Scope(world.tenant), lambda tx: SqlMemoryStore(tx).usage(owner))


async def weighed(world: World, owner: str = "planner") -> int:
    """Return what the rows themselves add up to."""
    rows = await world.rows(
        "SELECT weight FROM memory_entries WHERE tenant = $1 AND principal_id = $2", world.tenant, owner
    )
    return sum(row[0] for row in rows)


@pytest.mark.parametrize("session_id", [None, SESSION])
async def test_an_entry_is_gone_for_every_reader_at_the_microsecond_it_expires(
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


async def test_an_expired_key_can_be_created_again_at_version_one(world: World) -> None:
    for terms in ({"overwrite": False}, {"if_version": 0}, {}):
        await world.planner.remember("k", 1, expires_in=1)
        world.clock.advance(seconds=1)
        assert (await world.planner.remember("k", 2, **terms))["version"] == 1
        await world.planner.forget("k")
    await world.planner.remember("k", 1, expires_in=1)
    world.clock.advance(seconds=1)
    with refused("VERSION_CONFLICT"):
        await world.planner.remember("k", 2, if_version=1)


async def test_a_lifetime_of_a_year_is_the_longest(world: World) -> None:
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
    assert await held(world, "analysis") == MemoryUsage(weight=0, expired=3)


async def test_entries_of_an_archived_session_expire_too(world: World) -> None:
    await world.planner.remember("k", 1, expires_in=1, session_id=SESSION)
    await world.planner.call("session.archive", session_id=SESSION)
    world.clock.advance(seconds=1)
    await world.app.scheduler.drain("keys.expire")
    assert await world.planner.memory_events() == [("memory.written", "k"), ("memory.expired", "k")]
    assert (await held(world)).weight == 0


async def test_there_is_nothing_to_bury_where_a_session_has_just_been_deleted(world: World) -> None:
    gone = MemoryScope("planner", "deleted").line_id
    told = await world.app.database.write(Scope(world.tenant), lambda tx: world.app.expiry._expire_entries(gone, tx))
    assert list(told) == []
    assert await world.rows("SELECT 1 FROM lines WHERE tenant = $1 AND line_id = $2", world.tenant, gone) == []


async def test_many_that_expire_at_once_are_buried_a_part_at_a_time(world: World) -> None:
    for number in range(_EXPIRE_BATCH + 5):
        await world.planner.remember(f"k{number:04}", 1, expires_in=1)
    world.clock.advance(seconds=1)
    await world.planner.remember("k0204", 2)
    assert (await held(world)).expired in {_EXPIRE_BATCH, _EXPIRE_BATCH + 1}
    assert await world.planner.memory_keys() == ["k0204"]
    await world.app.scheduler.drain("keys.expire")
    assert await held(world) == MemoryUsage(weight=6, expired=_EXPIRE_BATCH + 5)
    assert await lines(world, lambda store: store.verify(GLOBAL.line_id)) is None


async def test_expiry_is_published_without_a_write(tmp_path: Path) -> None:
    async with Weft.open(tmp_path) as weft, asyncio.timeout(20):
        await weft.memory.set("k", {"a": 1}, expires_in=1)
        async for event in weft.follow(after=0):
            if event.type == "memory.expired":
                assert (event.subject, event.actor) == ("k", "system")
                break


async def test_history_keeps_every_step_and_verifies(world: World) -> None:
    await world.planner.remember("a", 1, metadata={"m": "\x00"})
    await world.planner.remember("a", 2, expires_in=5)
    await world.planner.remember("b", None, expires_in=1)
    world.clock.advance(seconds=1)
    await world.planner.forget("a")
    await world.planner.remember("b", 1.0)
    await world.planner.remember("a", 2, session_id=SESSION)
    for scope in (GLOBAL, IN_SESSION):
        assert await lines(world, lambda store, scope=scope: store.verify(scope.line_id)) is None
    (standing,) = await lines(world, lambda store: store.state_at(GLOBAL.line_id, LATEST))
    assert (standing.change.key, standing.change.incarnation, standing.value) == ("b", 2, "1.0")
    past = await lines(world, lambda store: store.versions(GLOBAL.line_id, "a", 1, 9))
    assert [version.change.act for version in past] == [ChangeKind.DELETE, ChangeKind.WRITE, ChangeKind.WRITE]
    assert past[2].change.meta.metadata_hash == blob_hash('{"m":"\\u0000"}').hex()
    ended = await lines(world, lambda store: store.versions(GLOBAL.line_id, "b", 1, 9))
    assert [(version.change.act, version.author) for version in ended] == [
        (ChangeKind.EXPIRE, "system"),
        (ChangeKind.WRITE, "orchestrator"),
    ]


async def test_what_is_replaced_deleted_or_expired_is_gone_from_the_database(world: World) -> None:
    await world.planner.remember("replaced", "a telltale")
    await world.planner.remember("replaced", "harmless")
    await world.planner.remember("deleted", {"inside": "a telltale"}, metadata={"also": "a telltale"})
    await world.planner.forget("deleted")
    await world.planner.remember("expired", ["a telltale"], metadata={"also": "a telltale"}, expires_in=1)
    await world.planner.remember("twice", "said twice")
    await world.planner.remember("again", "said twice")
    await world.planner.forget("twice")
    world.clock.advance(seconds=1)
    await world.planner.remember("next", 1)
    for table in ("blobs", "changes", "commits", "memory_entries", "events", "audit_log"):
        rows = await world.rows(f"SELECT * FROM {table} WHERE tenant = $1", world.tenant)
        assert not [row for row in rows if "telltale" in str(tuple(row))], table
    assert (await world.planner.recall("again"))["value"] == "said twice"
    assert await lines(world, lambda store: store.verify(GLOBAL.line_id)) is None


async def test_what_many_forget_at_once_is_gone(world: World) -> None:
    agents = [world.planner, world.analysis, world.review, world.admin]
    for number in range(20):
        await asyncio.gather(*(agent.remember(f"k{number}", f"a telltale {number}") for agent in agents))
    for number in range(20):
        await asyncio.gather(*(agent.forget(f"k{number}") for agent in agents))
    await world.app.scheduler.drain("history.sweep")
    rows = await world.rows("SELECT content FROM blobs WHERE tenant = $1", world.tenant)
    assert not [row for row in rows if b"telltale" in bytes(row[0])]
    assert await world.rows("SELECT 1 FROM doubtful_blobs WHERE tenant = $1", world.tenant) == []


async def test_a_deleted_session_takes_every_memory_of_it_along(world: World) -> None:
    for caller in (world.planner, world.analysis):
        await caller.remember("here", "of the session", session_id=SESSION)
        await caller.remember("there", "of the agent")
    await world.planner.call("session.delete", session_id=SESSION)
    for caller, owner in ((world.planner, "planner"), (world.analysis, "analysis")):
        with refused("SESSION_NOT_FOUND"):
            await caller.recall("here", SESSION)
        assert await caller.memory_keys(session_id="all") == ["there"]
        assert (await held(world, owner)).weight == await weighed(world, owner) == len('there"of the agent"')
    left = await world.rows("SELECT line_id FROM lines WHERE tenant = $1", world.tenant)
    assert sorted(row[0] for row in left) == ["memory:analysis", "memory:planner"]
    blobs = await world.rows("SELECT content FROM blobs WHERE tenant = $1", world.tenant)
    assert [row[0] for row in blobs] == [b'"of the agent"']
    await world.planner.create_session(SESSION)
    assert await world.planner.memory_keys(session_id=SESSION) == []
    assert (await world.planner.remember("here", 1, session_id=SESSION))["version"] == 1


async def test_a_session_is_deleted_while_agents_remember_it(world: World) -> None:
    elsewhere = await world.another_app()
    callers = [world.planner, world.analysis, world.review.at(elsewhere), world.planner.at(elsewhere)]
    await asyncio.gather(*(caller.remember("k", 1, session_id=SESSION) for caller in callers))
    calls = [outcome(caller.remember(f"k{n}", n, session_id=SESSION)) for n in range(5) for caller in callers]
    calls.insert(8, outcome(world.admin.call("session.delete", session_id=SESSION)))
    assert set(await asyncio.gather(*calls)) <= {"ok", "SESSION_NOT_FOUND"}
    for owner in ("planner", "analysis", "review-2"):
        assert (await held(world, owner)).weight == await weighed(world, owner) == 0
    assert await world.rows("SELECT line_id FROM lines WHERE tenant = $1", world.tenant) == []


@pytest.fixture
async def small(world: World) -> Caller:
    """Return a caller whose memory may hold one mebibyte."""
    return world.planner.at(await world.another_app(memory_limit_mb=1))


HALF = "x" * (2**19 - 10)


async def test_what_would_make_a_memory_too_large_is_refused(world: World, small: Caller) -> None:
    await small.remember("a", HALF)
    await small.remember("b", HALF, session_id=SESSION)
    with refused("MEMORY_LIMIT_EXCEEDED") as caught:
        await small.remember("c", "y" * 100)
    assert caught.value.context == {"used_bytes": 2**20 - 14, "limit_bytes": 2**20, "value_size": 102}
    with refused("MEMORY_LIMIT_EXCEEDED"):
        await small.remember("a", HALF + "y" * 15)
    await small.remember("a", HALF + "y" * 14)
    assert (await held(world)).weight == await weighed(world) == 2**20
    await small.remember("a", "z" * len(HALF))
    await small.forget("b", session_id=SESSION)
    await small.remember("c", "y" * 100)
    assert (await held(world)).weight == await weighed(world)


async def test_metadata_counts_too(small: Caller) -> None:
    metadata = {"m": "x" * 65_000}
    outcomes = [await outcome(small.remember(f"k{number}", 1, metadata=metadata)) for number in range(17)]
    assert outcomes == ["ok"] * 16 + ["MEMORY_LIMIT_EXCEEDED"]


async def test_what_has_expired_counts_no_more_wherever_it_is(world: World, small: Caller) -> None:
    await small.remember("a", HALF, expires_in=1, session_id=SESSION)
    await small.remember("b", HALF)
    world.clock.advance(seconds=1 - MICROSECOND)
    with refused("MEMORY_LIMIT_EXCEEDED"):
        await small.remember("c", HALF)
    world.clock.advance(seconds=MICROSECOND)
    await small.remember("c", HALF)
    with refused("MEMORY_LIMIT_EXCEEDED"):
        await small.remember("d", HALF)


async def test_a_full_memory_can_be_made_smaller_under_a_lower_limit(world: World, small: Caller) -> None:
    await world.planner.remember("a", HALF)
    await world.planner.remember("b", HALF + HALF)
    with refused("MEMORY_LIMIT_EXCEEDED"):
        await small.remember("c", 1)
    await small.remember("b", HALF + HALF[1:])
    await small.forget("b")
    await small.remember("c", 1)


async def test_each_agent_has_its_own_limit(world: World, small: Caller) -> None:
    await small.remember("a", HALF + HALF)
    await world.analysis.at(small.app).remember("a", HALF + HALF)


async def test_writers_at_once_do_not_exceed_the_limit_together(world: World, small: Caller) -> None:
    elsewhere = small.at(await world.another_app(memory_limit_mb=1))
    value = "x" * (2**18 - 10)
    for round_number in range(2):
        calls = (
            caller.remember(f"k{number}", value + str(round_number), session_id=SESSION if number % 2 else None)
            for number, caller in enumerate([small, elsewhere] * 4)
        )
        outcomes = Counter(await asyncio.gather(*map(outcome, calls)))
        assert outcomes == {"ok": 4, "MEMORY_LIMIT_EXCEEDED": 4}
        assert (await held(world)).weight == await weighed(world) <= 2**20


async def test_what_a_memory_adds_up_to_stays_true_whatever_happens_at_once(world: World) -> None:
    elsewhere = world.planner.at(await world.another_app())
    for round_number in range(3):
        calls = [
            outcome(caller.remember(f"k{n % 4}", "x" * n, expires_in=1 if n % 3 else None, session_id=session_id))
            for n in range(12)
            for caller, session_id in ((world.planner, None), (elsewhere, SESSION))
        ]
        calls += [outcome(elsewhere.forget(f"k{n}", session_id=SESSION)) for n in range(2)]
        calls.append(outcome(world.app.scheduler.drain("keys.expire")))
        await asyncio.gather(*calls)
        world.clock.advance(seconds=round_number)
        assert (await held(world)).weight == await weighed(world)
    for scope in (GLOBAL, IN_SESSION):
        assert await lines(world, lambda store, scope=scope: store.verify(scope.line_id)) is None
