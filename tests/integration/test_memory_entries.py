"""Private memory: entries read back unchanged, by their agent only."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.full_run import examples
from support.json_values import JSON, VALUES, nested, typed
from support.world import SESSION, World, outcome, refused
from weftline.state.memory.model import MAX_VALUE_BYTES, scope_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.settings import Settings
    from weftline.testing.clock import FrozenClock

pytestmark = pytest.mark.req("MS-07")

KEYS = st.from_regex(r"[ab0_:-][ab0_.:-]?(/[ab0_:-][ab0_.:-]?)?", fullmatch=True)


def shared_world(number: int) -> hypothesis.settings:
    # All examples share one world; each uses separate keys.
    shared = [hypothesis.HealthCheck.function_scoped_fixture]
    return hypothesis.settings(max_examples=examples(number), deadline=None, suppress_health_check=shared)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def shared_examples_world(
    runner: asyncio.Runner, database_url: str, clock: FrozenClock, settings: Settings
) -> Iterator[World]:
    world = World(database_url, clock, settings)
    runner.run(world.open())
    yield world
    runner.run(world.close())


async def test_any_json_value_round_trips_with_its_type(world: World) -> None:
    for number, value in enumerate(VALUES):
        await world.planner.remember(f"k{number}", value, metadata={"of": value} if value != nested(32) else None)
    for number, value in enumerate(VALUES):
        found = await world.planner.recall(f"k{number}")
        assert typed(found["value"]) == typed(value)
        assert typed(found["metadata"]) == typed({"of": value} if value != nested(32) else {})


@shared_world(40)
@given(values=st.lists(JSON, min_size=1, max_size=5))
def test_random_json_values_round_trip_with_their_types(
    values: list[Any], runner: asyncio.Runner, shared_examples_world: World
) -> None:
    async def check() -> None:
        for number, value in enumerate(values):
            await shared_examples_world.planner.remember(f"k{number}", value)
        for number, value in enumerate(values):
            assert typed(await shared_examples_world.planner.recalled(f"k{number}")) == typed(value)

    runner.run(check())


async def test_a_write_returns_the_specified_shape(world: World) -> None:
    assert await world.planner.remember("task_state", {"phase": 1}, session_id=SESSION, expires_in=3600) == {
        "success": True,
        "key": "task_state",
        "session_scoped": True,
        "expires_at": 1771601400.0,
        "scope": "session",
        "stored_at": "2026-02-20T14:30:00Z",
        "version": 1,
    }
    answer = await world.planner.remember("goal", 1)
    assert (answer["session_scoped"], answer["expires_at"], answer["scope"]) == (False, None, "global")


async def test_a_read_returns_the_specified_shape(world: World) -> None:
    await world.planner.remember("goal", [1], metadata={"type": "plan"})
    world.clock.advance(seconds=60)
    await world.planner.remember("goal", [2], metadata={"type": "task"}, expires_in=10)
    assert await world.planner.recall("goal") == {
        "success": True,
        "key": "goal",
        "value": [2],
        "metadata": {"type": "task"},
        "created_at": 1771597800.0,
        "updated_at": "2026-02-20T14:31:00Z",
        "expires_at": 1771597870.0,
        "scope": "global",
        "version": 2,
    }


async def test_a_write_inherits_neither_metadata_nor_ttl(world: World) -> None:
    await world.planner.remember("goal", 1, metadata={"a": 1}, expires_in=10)
    await world.planner.remember("goal", 2)
    found = await world.planner.recall("goal")
    assert (found["metadata"], found["expires_at"]) == ({}, None)


async def test_a_new_incarnation_has_its_own_creation_time_and_the_next_version(world: World) -> None:
    await world.planner.remember("goal", 1)
    await world.planner.remember("goal", 2)
    assert await world.planner.forget("goal") == {
        "success": True,
        "key": "goal",
        "scope": "global",
        "previous_version": 2,
    }
    world.clock.advance(seconds=5)
    await world.planner.remember("goal", 3)
    found = await world.planner.recall("goal")
    assert (found["version"], found["created_at"]) == (3, 1771597805.0)


async def test_keys_are_separate_per_session_and_global(world: World) -> None:
    await world.planner.create_session("s2")
    for value, session_id in ((0, None), (1, SESSION), (2, "s2")):
        await world.planner.remember("goal", value, session_id=session_id)
    await world.planner.forget("goal", session_id=SESSION)
    with refused("MEMORY_NOT_FOUND"):
        await world.planner.recall("goal", SESSION)
    assert [await world.planner.recalled("goal", session_id) for session_id in (None, "s2")] == [0, 2]


async def test_a_missing_key_error_suggests_similar_keys_of_its_scope(world: World) -> None:
    await world.planner.remember("current_task", 1)
    await world.planner.remember("current_tusk", 1, session_id=SESSION)
    await world.analysis.remember("current_tasks", 1)
    with refused("MEMORY_NOT_FOUND") as caught:
        await world.planner.recall("curent_task")
    assert caught.value.context["available_alternatives"] == ["current_task"]
    with refused("MEMORY_NOT_FOUND"):
        await world.planner.forget("curent_task")


async def test_without_overwrite_a_live_key_is_kept(world: World) -> None:
    await world.planner.remember("goal", 1, overwrite=False)
    await world.planner.remember("goal", 2)
    with refused("KEY_EXISTS") as caught:
        await world.planner.remember("goal", 3, overwrite=False)
    assert caught.value.context == {"key": "goal", "current_version": 2}
    assert await world.planner.recalled("goal") == 2
    await world.planner.remember("goal", 1, overwrite=False, session_id=SESSION)


async def test_if_version_limits_overwriting_and_deleting(world: World) -> None:
    await world.planner.remember("goal", 1, if_version=0)
    for stale in (0, 2):
        with refused("VERSION_CONFLICT") as caught:
            await world.planner.remember("goal", 9, if_version=stale)
        assert caught.value.context["current_version"] == 1
    with refused("VERSION_CONFLICT"):
        await world.planner.forget("goal", if_version=2)
    await world.planner.remember("goal", 2, if_version=1)
    await world.planner.forget("goal", if_version=2)
    with refused("VERSION_CONFLICT"):
        await world.planner.remember("goal", 3, if_version=2)


async def test_exactly_one_concurrent_writer_wins_a_version(world: World) -> None:
    in_other_process = world.planner.at(await world.another_app())
    for version in range(4):
        outcomes = await asyncio.gather(
            *(
                outcome(caller.remember("goal", number, if_version=version))
                for number, caller in enumerate([world.planner, in_other_process] * 4)
            )
        )
        assert Counter(outcomes) == {"ok": 1, "VERSION_CONFLICT": 7}


async def test_exactly_one_concurrent_writer_creates_a_key(world: World) -> None:
    in_other_process = world.planner.at(await world.another_app())
    calls = (
        caller.remember("goal", number, overwrite=False, session_id=SESSION)
        for number, caller in enumerate([world.planner, in_other_process] * 4)
    )
    assert Counter(await asyncio.gather(*map(outcome, calls))) == {"ok": 1, "KEY_EXISTS": 7}


async def test_a_list_has_the_values_of_a_prefix_if_asked_for(world: World) -> None:
    for key, value in (("plan/a", None), ("plan/b", {"n": [1]}), ("scope", "all")):
        await world.planner.remember(key, value, metadata={"of": key})
    page = await world.planner.memories(prefix="plan/", values=True, limit=1)
    rest = await world.planner.memories(prefix="plan/", values=True, limit=1, cursor=page["next_cursor"])
    found = [(entry["key"], entry["value"], entry["metadata"]) for entry in (*page["entries"], *rest["entries"])]
    assert found == [("plan/a", None, {"of": "plan/a"}), ("plan/b", {"n": [1]}, {"of": "plan/b"})]
    assert all({"value", "metadata"}.isdisjoint(entry) for entry in (await world.planner.memories())["entries"])


async def test_a_list_with_values_ends_its_page_at_four_mib(world: World) -> None:
    large = "x" * 1_000_000
    for key in "abcde":
        await world.planner.remember(key, large)
    page = await world.planner.memories(values=True)
    assert ([entry["key"] for entry in page["entries"]], page["has_more"]) == (["a", "b", "c", "d"], True)
    assert await world.planner.memory_keys(values=True, cursor=page["next_cursor"]) == ["e"]


@pytest.mark.parametrize("key", ["billing/limit", "style:python", "v1.2", "a/removed", "x/1.2", ":", "a/b/c.d:e"])
async def test_a_key_may_have_slashes_colons_and_dots(world: World, key: str) -> None:
    for session_id in (None, SESSION):
        await world.planner.remember(key, session_id, session_id=session_id)
        found = await world.planner.call("memory.get", key=key, session_id=session_id)
        assert (found["key"], found["value"], found["version"]) == (key, session_id, 1)
    listed = await world.planner.call("memory.list", session_id="all", prefix=key, limit=1)
    rest = await world.planner.call("memory.list", session_id="all", prefix=key, limit=1, cursor=listed["next_cursor"])
    assert [(entry["key"], entry["scope"]) for entry in (*listed["entries"], *rest["entries"])] == [
        (key, "global"),
        (key, "session"),
    ]
    await world.planner.call("memory.delete", key=key)
    with refused("MEMORY_NOT_FOUND"):
        await world.planner.call("memory.get", key=key)


INVALID_REQUESTS: tuple[dict[str, Any], ...] = (
    {"key": "", "value": 1},
    {"key": "a b", "value": 1},
    {"key": ".a", "value": 1},
    {"key": "a/", "value": 1},
    {"key": "/a", "value": 1},
    {"key": "a//b", "value": 1},
    {"key": "a/../b", "value": 1},
    {"key": "a\n", "value": 1},
    {"key": "é", "value": 1},
    {"key": "a" * 256, "value": 1},
    {"key": "a"},
    {"key": "a", "value": "\ud800"},
    {"key": "a", "value": {"\udfff": 1}},
    {"key": "a", "value": float("nan")},
    {"key": "a", "value": [[float("-inf")]]},
    {"key": "a", "value": {1: 2}},
    {"key": "a", "value": {1, 2}},
    {"key": "a", "value": nested(33)},
    {"key": "a", "value": nested(500)},
    {"key": "a", "value": 1, "metadata": []},
    {"key": "a", "value": 1, "metadata": {"a": nested(32)}},
    {"key": "a", "value": 1, "metadata": {"a": "x" * 70_000}},
    {"key": "a", "value": 1, "metadata": {"a": float("nan")}},
    {"key": "a", "value": 1, "expires_in": 0},
    {"key": "a", "value": 1, "expires_in": 31_536_001},
    {"key": "a", "value": 1, "expires_in": 1.5},
    {"key": "a", "value": 1, "expires_in": "60"},
    {"key": "a", "value": 1, "overwrite": 1},
    {"key": "a", "value": 1, "if_version": -1},
    {"key": "a", "value": 1, "session_id": 5},
    {"key": "a", "value": 1, "agent_id": "analysis"},
    {"key": "a", "value": 1, "owner": "analysis"},
)


async def test_invalid_requests_are_refused_and_change_nothing(world: World) -> None:
    for raw in INVALID_REQUESTS:
        with refused("INVALID_INPUT_FORMAT"):
            await world.planner.call("memory.set", **raw)
        assert await world.planner.memory_keys() == [], raw


async def test_integral_floats_are_accepted_as_ttl_and_kept_as_values(world: World) -> None:
    await world.planner.remember("a", 2.0, expires_in=60.0)
    found = await world.planner.recall("a")
    assert typed(found["value"]) == typed(2.0)
    assert found["expires_at"] == 1771597860.0


async def test_key_and_value_limits_are_inclusive(world: World) -> None:
    key = "K-" * 127 + "k"
    await world.planner.remember(key, "x" * (MAX_VALUE_BYTES - 2))
    assert (await world.planner.memories())["entries"][0]["value_size"] == MAX_VALUE_BYTES
    with refused("CONTENT_TOO_LARGE") as caught:
        await world.planner.remember(key, "é" * (MAX_VALUE_BYTES // 2))
    assert caught.value.context == {"value_size": MAX_VALUE_BYTES + 2, "limit_bytes": MAX_VALUE_BYTES}


async def test_entries_are_listed_without_values(world: World) -> None:
    await world.planner.remember("goal", {"é": 1}, session_id=SESSION, metadata={"a": 1})
    listed = await world.planner.memories(session_id=SESSION)
    assert listed == {
        "success": True,
        "entries": [
            {
                "key": "goal",
                "scope": "session",
                "session_id": SESSION,
                "created_at": 1771597800.0,
                "updated_at": "2026-02-20T14:30:00Z",
                "expires_at": None,
                "value_size": 8,
                "version": 1,
            }
        ],
        "count": 1,
        "scope_filter": "session",
        "has_more": False,
        "next_cursor": None,
    }
    assert (await world.planner.memories())["scope_filter"] == "global"
    assert (await world.planner.memories())["entries"] == []


async def test_all_lists_global_entries_and_those_of_every_session(world: World) -> None:
    await world.planner.create_session("s2")
    for session_id in ("s2", SESSION, None):
        for key in ("b", "a"):
            await world.planner.remember(key, 1, session_id=session_id)
    listed = await world.planner.memories(session_id="all")
    assert [(entry["session_id"], entry["key"]) for entry in listed["entries"]] == [
        (session_id, key) for session_id in (None, SESSION, "s2") for key in ("a", "b")
    ]
    assert listed["scope_filter"] == "all"
    assert await world.planner.memory_keys(session_id="all", prefix="b") == ["b"] * 3


@shared_world(25)
@given(keys=st.sets(KEYS, min_size=1, max_size=12), prefix=st.text("ab0_:-./", max_size=2), limit=st.integers(1, 5))
def test_pages_list_every_key_with_the_prefix_once_and_in_order(
    keys: set[str], prefix: str, limit: int, runner: asyncio.Runner, shared_examples_world: World
) -> None:
    async def check() -> None:
        for key in await shared_examples_world.planner.memory_keys(limit=200):
            await shared_examples_world.planner.forget(key)
        for key in keys:
            await shared_examples_world.planner.remember(key, 1)
        for session_id in (None, "all"):
            assert await pages(shared_examples_world, session_id=session_id, prefix=prefix, limit=limit) == sorted(
                key for key in keys if key.startswith(prefix)
            )

    runner.run(check())


async def pages(world: World, **which: Any) -> list[str]:
    """Return the keys of all pages."""
    found, cursor = [], None
    while True:
        page = await world.planner.memories(**which, cursor=cursor)
        found += [entry["key"] for entry in page["entries"]]
        assert page["count"] == len(page["entries"])
        assert page["has_more"] == (page["next_cursor"] is not None)
        if not page["has_more"]:
            return found
        cursor = page["next_cursor"]


async def test_paging_during_writes_misses_no_existing_key(world: World) -> None:
    for number in range(10):
        await world.planner.remember(f"k{number}", number)
    first = await world.planner.memories(session_id="all", limit=4)
    await asyncio.gather(
        world.planner.forget("k1"),
        world.planner.forget("k3"),
        world.planner.remember("k0_new", 1),
        world.planner.remember("k5_new", 1),
        world.planner.remember("k6", "changed"),
    )
    rest = await world.planner.memory_keys(session_id="all", cursor=first["next_cursor"])
    assert rest == ["k4", "k5", "k5_new", "k6", "k7", "k8", "k9"]


@pytest.mark.parametrize("limit", [0, 201])
async def test_the_page_size_is_1_to_200(world: World, limit: int) -> None:
    with refused("INVALID_INPUT_FORMAT"):
        await world.planner.memories(limit=limit)


@pytest.mark.parametrize("cursor", ["", "x", ".", "a.", "a.b c", ".é", "a" * 101 + ".b", "." + "a" * 256])
async def test_an_invalid_cursor_is_refused(world: World, cursor: str) -> None:
    with refused("INVALID_INPUT_FORMAT"):
        await world.planner.memories(cursor=cursor)


async def test_history_names_its_line_by_owner_and_session(world: World) -> None:
    await world.planner.remember("a", 1)
    await world.planner.remember("a", 1, session_id=SESSION)
    lines = [row[0] for row in await world.rows("SELECT line_id FROM lines WHERE tenant = $1", world.tenant)]
    scopes = {scope for line_id in lines if (scope := scope_of(line_id)) is not None}
    assert {(scope.owner, scope.session_id) for scope in scopes} == {("planner", None), ("planner", SESSION)}
    assert {scope.line_id for scope in scopes} <= set(lines)
