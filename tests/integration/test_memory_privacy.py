"""Private memory is invisible to other agents, tenants and admins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.world import SESSION, refused

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("MS-07")

SECRET = "a-value-nobody-else-may-see"


async def sees(caller: Caller, key: str, session_id: str | None = None) -> bool:
    listed = key in await caller.memory_keys(session_id=session_id)
    if listed:
        assert await caller.recalled(key, session_id) == SECRET
        return True
    with refused("MEMORY_NOT_FOUND") as caught:
        await caller.recall(key, session_id)
    assert caught.value.context["available_alternatives"] == []
    with refused("MEMORY_NOT_FOUND"):
        await caller.forget(key, session_id=session_id)
    return False


@pytest.mark.parametrize("session_id", [None, SESSION])
async def test_memory_is_visible_to_its_agent_only(world: World, session_id: str | None) -> None:
    await world.analysis.remember("k", SECRET, session_id=session_id)
    others = [world.admin, world.planner, world.review]
    if session_id is None:
        others.append(world.stranger)
    assert [await sees(other, "k", session_id) for other in others] == [False] * len(others)
    assert await sees(world.analysis, "k", session_id)


async def test_agents_of_the_same_name_in_two_tenants_have_separate_memories(world: World) -> None:
    namesake = await world.stranger.create_agent("planner")
    await world.planner.remember("k", 1)
    await namesake.remember("k", 2)
    assert (await world.planner.recalled("k"), await namesake.recalled("k")) == (1, 2)


async def test_a_token_reads_the_memory_of_its_agent(world: World) -> None:
    await world.planner.remember("k", 1)
    by_token = await world.planner.with_token("planner", "planning")
    assert await by_token.recalled("k") == 1


async def test_a_reader_cannot_write_memory(world: World) -> None:
    reader = await world.admin.create_agent("reader", permissions=["read"])
    for call in (reader.remember("k", 1), reader.forget("k")):
        with refused("PERMISSION_DENIED"):
            await call
    assert await reader.memory_keys() == []


async def test_memory_of_an_unreadable_session_is_not_found(world: World) -> None:
    await world.planner.create_session("closed", members=["orchestrator"])
    for session_id in ("closed", "none", "", "a/b"):
        with refused("SESSION_NOT_FOUND"):
            await world.analysis.remember("k", 1, session_id=session_id)
        with refused("SESSION_NOT_FOUND"):
            await world.analysis.recall("k", session_id)
        with refused("SESSION_NOT_FOUND"):
            await world.analysis.memories(session_id=session_id)
        with refused("SESSION_NOT_FOUND"):
            await world.analysis.forget("k", session_id=session_id)


async def remove_members(world: World, session_id: str) -> None:
    """Leave a session to its creator."""
    await world.planner.call("session.remove_members", session_id=session_id, members=["tree:planner"])


async def test_memory_of_a_session_is_hidden_after_losing_access(world: World) -> None:
    for session_id in ("m1", "m2", "m3"):
        await world.planner.create_session(session_id)
    for session_id in (None, "m1", "m2", "m3"):
        for number in range(5):
            await world.analysis.remember(f"k{number}", SECRET, session_id=session_id)
    await remove_members(world, "m2")
    listed: list[tuple[str | None, str]] = []
    cursor = None
    while True:
        page = await world.analysis.memories(session_id="all", limit=2, cursor=cursor)
        listed += [(entry["session_id"], entry["key"]) for entry in page["entries"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert listed == [(session, f"k{number}") for session in (None, "m1", "m3") for number in range(5)]
    overview = await world.analysis.call("memory.overview", agent_id="analysis")
    assert list(overview["memory"]["sessions"]) == ["m1", "m3"]
    assert (overview["statistics"]["session_scopes"], overview["statistics"]["total_entries"]) == (2, 15)
    assert "truncated" not in overview


async def test_memory_of_an_archived_session_is_read_only(world: World) -> None:
    await world.analysis.remember("k", 1, session_id=SESSION)
    await world.planner.call("session.archive", session_id=SESSION)
    with refused("SESSION_ARCHIVED"):
        await world.analysis.remember("k", 2, session_id=SESSION)
    with refused("SESSION_ARCHIVED"):
        await world.analysis.forget("k", session_id=SESSION)
    assert await world.analysis.recalled("k", SESSION) == 1
    assert await world.analysis.memory_keys(session_id="all") == ["k"]


async def test_an_admin_inspects_a_memory_in_pages_and_is_audited(world: World) -> None:
    await world.analysis.remember("a", SECRET, metadata={"m": 1})
    await world.analysis.remember("gone", SECRET, expires_in=1)
    await world.analysis.remember("b", None, session_id=SESSION, expires_in=60)
    world.clock.advance(seconds=1)
    first = await world.admin.call("memory.inspect", agent_id="analysis", limit=1)
    assert (first["count"], first["has_more"]) == (1, True)
    assert first["entries"][0] == {
        "key": "a",
        "session_id": None,
        "value": SECRET,
        "metadata": {"m": 1},
        "created_at": 1771597800.0,
        "updated_at": "2026-02-20T14:30:00Z",
        "expires_at": None,
        "scope": "global",
        "value_size": len(SECRET) + 2,
        "version": 1,
    }
    second = await world.admin.call("memory.inspect", agent_id="analysis", limit=1, cursor=first["next_cursor"])
    assert [(e["key"], e["session_id"], e["value"]) for e in second["entries"]] == [("b", SESSION, None)]
    assert (second["has_more"], second["next_cursor"]) == (False, None)
    rows = [row for row in await world.admin.audit() if row["action"] == "memory.inspect"]
    assert [(row["target"], row["agent_id"], row["outcome"]) for row in rows] == [("analysis", "admin", "done")] * 2
    assert SECRET not in str(rows)


async def test_an_inspection_returns_at_most_four_mebibytes(world: World) -> None:
    for number in range(6):
        await world.analysis.remember(f"k{number}", "x" * 1_000_000)
    first = await world.admin.call("memory.inspect", agent_id="analysis")
    assert [entry["key"] for entry in first["entries"]] == ["k0", "k1", "k2", "k3"]
    rest = await world.admin.call("memory.inspect", agent_id="analysis", cursor=first["next_cursor"])
    assert [entry["key"] for entry in rest["entries"]] == ["k4", "k5"]


async def test_only_an_admin_inspects_a_memory(world: World) -> None:
    for caller in (world.planner, world.analysis):
        with refused("PERMISSION_DENIED"):
            await caller.call("memory.inspect", agent_id="analysis")
    with refused("AGENT_NOT_FOUND"):
        await world.stranger.call("memory.inspect", agent_id="analysis")


async def test_an_overview_returns_the_specified_shape(world: World) -> None:
    assert (await world.analysis.call("memory.overview", agent_id="analysis"))["memory"] == {
        "global": {},
        "sessions": {},
    }
    await world.analysis.remember("prefs", {"theme": "dark"}, metadata={"source": "user"})
    await world.analysis.remember("task", None, session_id=SESSION, expires_in=3600)
    await world.analysis.remember("gone", 1, expires_in=1)
    await world.analysis.remember("gone", 1, session_id=SESSION, expires_in=1)
    world.clock.advance(seconds=2)
    # Expired entries count alike, whether their expiry was recorded or not.
    await world.analysis.remember("task", None, session_id=SESSION, expires_in=3600)
    assert await world.analysis.call("memory.overview", agent_id="analysis") == {
        "agent_id": "analysis",
        "memory": {
            "global": {
                "prefs": {
                    "value": {"theme": "dark"},
                    "metadata": {"source": "user"},
                    "created_at": 1771597800.0,
                    "updated_at": "2026-02-20T14:30:00Z",
                    "expires_at": None,
                    "scope": "global",
                }
            },
            "sessions": {
                SESSION: {
                    "task": {
                        "value": None,
                        "metadata": {},
                        "created_at": 1771597800.0,
                        "updated_at": "2026-02-20T14:30:02Z",
                        "expires_at": 1771601402.0,
                        "scope": "session",
                    }
                }
            },
        },
        "statistics": {
            "global_keys": 1,
            "session_scopes": 1,
            "total_entries": 2,
            "memory_usage_kb": round((len('prefs{"theme":"dark"}{"source":"user"}') + len("tasknull")) / 1024, 3),
            "expired_entries_cleaned": 2,
        },
        "resource_info": {
            "last_updated": "2026-02-20T14:30:02Z",
            "supports_subscriptions": True,
            "cleanup_interval": 30,
            "max_memory_mb": 100,
        },
    }


async def test_an_overview_is_bounded_and_flags_omissions(world: World) -> None:
    for number in range(5):
        await world.analysis.remember(f"k{number}", "x" * 1_000_000)
    for number in range(300):
        await world.analysis.remember(f"small{number:03}", 1)
    overview = await world.analysis.call("memory.overview", agent_id="analysis")
    assert list(overview["memory"]["global"]) == ["k0", "k1", "k2", "k3"]
    assert overview["truncated"] is True
    assert overview["statistics"]["total_entries"] == 305
    for number in range(1, 5):
        await world.analysis.forget(f"k{number}")
    overview = await world.analysis.call("memory.overview", agent_id="analysis")
    assert len(overview["memory"]["global"]) == 301
    assert "truncated" not in overview


async def test_an_overview_of_another_agent_gets_the_same_error_if_it_exists_or_not(world: World) -> None:
    await world.analysis.remember("k", SECRET)
    refusals: list[Any] = []
    for caller in (world.admin, world.planner, world.review, world.stranger):
        for agent_id in ("analysis", "nobody-at-all"):
            with refused("PERMISSION_DENIED") as caught:
                await caller.call("memory.overview", agent_id=agent_id)
            refusals.append((caught.value.message, caught.value.hint, caught.value.context))
    assert all(refusal == refusals[0] for refusal in refusals)


async def test_only_the_agent_receives_events_of_its_memory(world: World) -> None:
    await world.analysis.remember("k", SECRET, session_id=SESSION, expires_in=5)
    await world.analysis.remember("g", SECRET)
    await world.analysis.forget("g")
    for other in (world.admin, world.planner, world.stranger):
        assert await other.memory_events() == []
    for other in (world.admin, world.review):
        assert await other.memory_events(session_id=SESSION) == []
    assert await world.analysis.memory_events(session_id=SESSION) == [("memory.written", "k")]
    everything = [("memory.written", "k"), ("memory.written", "g"), ("memory.deleted", "g")]
    assert await world.analysis.memory_events(personal=True) == everything


async def test_events_contain_versions_and_sizes_but_no_values(world: World) -> None:
    await world.planner.remember("k", SECRET, session_id=SESSION)
    await world.planner.remember("k", SECRET, session_id=SESSION, metadata={"m": SECRET})
    await world.planner.forget("k", session_id=SESSION)
    events = [e for e in (await world.planner.events())["events"] if e["type"].startswith("memory.")]
    assert [(e["session_id"], e["actor"], e["data"]) for e in events] == [
        (
            SESSION,
            "orchestrator:planner",
            {"version": version, "incarnation": 1, "commit": commit, "scope": "session", "value_size": len(SECRET) + 2},
        )
        for version, commit in ((1, 1), (2, 2), (2, 3))
    ]
    assert SECRET not in str(events)


async def test_neither_the_audit_log_nor_an_error_quotes_a_value(world: World) -> None:
    await world.planner.remember("k", SECRET)
    with refused("KEY_EXISTS") as caught:
        await world.planner.remember("k", SECRET * 2, overwrite=False)
    assert SECRET not in caught.value.message + str(caught.value.context)
    assert SECRET not in str(await world.admin.audit(limit=1000))
