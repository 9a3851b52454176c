"""Keys with a TTL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.world import refused

if TYPE_CHECKING:
    from support.world import World


@pytest.mark.req("SC-14")
async def test_an_expired_key_is_hidden_on_every_read_path_without_a_sweep(world: World) -> None:
    answer = await world.planner.write("blocker", "waiting", ttl_seconds=60)
    assert answer["expires_at"] == "2026-02-20T14:31:00Z"
    assert (await world.planner.read("blocker"))["expires_at"] == "2026-02-20T14:31:00Z"
    assert (await world.planner.list())["keys"][0]["expires_at"] == "2026-02-20T14:31:00Z"
    world.clock.advance(seconds=59.999)
    assert await world.planner.value("blocker") == "waiting"
    world.clock.advance(seconds=0.001)
    with refused("KEY_NOT_FOUND"):
        await world.planner.read("blocker")
    assert (await world.planner.batch("blocker"))["missing"] == ["blocker"]
    listed = await world.planner.list()
    assert (listed["keys"], listed["metadata"]["total_size_tokens"], listed["metadata"]["key_count"]) == ([], 0, 0)
    assert (await world.planner.check_board())["checked"] == 0
    assert (await world.admin.inspect())["entries"] == []
    with refused("KEY_NOT_FOUND"):
        await world.planner.delete("blocker")


@pytest.mark.req("SC-14")
async def test_an_expired_key_frees_its_tokens(world: World) -> None:
    small = await world.planner.create_session("small", max_value_tokens=10, max_total_tokens=10)
    await small.write("a", "x" * 40, ttl_seconds=5)
    with refused("STORE_FULL"):
        await small.write("b", "x" * 40)
    world.clock.advance(seconds=5)
    await small.write("b", "x" * 40)
    assert await small.size() == 10


@pytest.mark.req("SC-14")
async def test_a_key_created_after_its_expiry_has_its_next_version(world: World) -> None:
    await world.planner.write("phase", "one", ttl_seconds=5)
    world.clock.advance(seconds=6)
    with refused("VERSION_CONFLICT"):
        await world.planner.write("phase", "two", if_version=1)
    assert (await world.planner.write("phase", "two", if_version=0))["version"] == 2
    first, second = await world.planner.history("phase", incarnation=1), await world.planner.history("phase")
    assert (first["ended"], first["ended_by"], first["ended_at"]) == ("expired", "system", "2026-02-20T14:30:05Z")
    assert (second["incarnation"], second["incarnations"], [v["value"] for v in second["versions"]]) == (2, 2, ["two"])


@pytest.mark.req("SC-14")
async def test_history_shows_an_expiry_without_a_later_write(world: World) -> None:
    await world.planner.write("phase", "one", ttl_seconds=5)
    assert "ended" not in await world.planner.history("phase")
    world.clock.advance(seconds=5)
    history = await world.planner.history("phase")
    assert (history["ended"], history["ended_by"], history["ended_at"]) == ("expired", "system", "2026-02-20T14:30:05Z")


@pytest.mark.req("SC-14")
async def test_each_write_resets_the_ttl(world: World) -> None:
    await world.planner.write("phase", "one", ttl_seconds=5)
    await world.planner.write("phase", "two", ttl_seconds=50)
    world.clock.advance(seconds=6)
    assert await world.planner.value("phase") == "two"
    await world.planner.write("phase", "three")
    world.clock.advance(days=400)
    assert await world.planner.value("phase") == "three"


@pytest.mark.req("SC-14")
async def test_expiry_is_published_with_the_next_change_of_the_board(world: World) -> None:
    await world.planner.write("phase", "one", ttl_seconds=5)
    world.clock.advance(seconds=6)
    await world.planner.write("other")
    events = [(e["type"], e["subject"], e["actor"]) for e in (await world.planner.events())["events"]]
    assert events[-2:] == [("board.expired", "phase", "system"), ("board.written", "other", "orchestrator:planner")]


@pytest.mark.req("SC-14")
@pytest.mark.req("SC-15")
async def test_a_restored_key_has_the_ttl_left_at_the_snapshot(world: World) -> None:
    await world.planner.write("phase", "one", ttl_seconds=60)
    world.clock.advance(seconds=20)
    await world.planner.snapshot("mark")
    world.clock.advance(hours=1)
    await world.planner.restore("mark")
    assert await world.planner.value("phase") == "one"
    world.clock.advance(seconds=39)
    assert await world.planner.value("phase") == "one"
    world.clock.advance(seconds=1)
    assert await world.planner.keys() == []


@pytest.mark.req("SC-14")
async def test_a_snapshot_after_the_expiry_does_not_contain_the_key(world: World) -> None:
    await world.planner.write("phase", "one", ttl_seconds=5)
    world.clock.advance(seconds=5)
    await world.planner.snapshot("mark")
    assert await world.planner.read_snapshot("mark") == {}
