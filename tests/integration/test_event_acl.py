"""Events of a key are for those who may read the key now, as its versions and records are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.world import SESSION
from weftline.sessions.events.model import EventFilter

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [pytest.mark.req("SC-11"), pytest.mark.both_databases]
BOARD = f"board:{SESSION}"
CLOSED = ["orchestrator"]


async def seen(caller: Caller, key: str = "plan", **filters: Any) -> list[tuple[str, int]]:
    """Return the events of a key that a caller may see: what happened, and the version."""
    found = (await caller.events(session_id=SESSION, **filters))["events"]
    return [(each["type"].partition(".")[2], each["data"]["version"]) for each in found if each["subject"] == key]


async def test_closing_a_key_hides_its_earlier_events(world: World) -> None:
    await world.planner.write("plan", "open")
    assert await seen(world.analysis) == [("written", 1)]
    await world.planner.write("plan", "closed", readable_by=CLOSED)
    assert await seen(world.analysis) == []
    assert await seen(world.planner) == [("written", 1), ("written", 2)]
    # Another process reads the log, not the cache of this one.
    assert await seen(world.analysis.at(await world.another_app())) == []
    listed = await world.analysis.call("records.list", session_id=SESSION, types=["context_event"])
    assert "'plan'" not in str(listed)


async def test_opening_a_key_again_shows_what_was_open(world: World) -> None:
    await world.planner.write("plan", "open")
    await world.planner.write("plan", "closed", readable_by=CLOSED)
    assert await seen(world.analysis) == []
    await world.planner.write("plan", "open again", readable_by=["*"])
    assert await seen(world.analysis) == [("written", 1), ("written", 3)]


async def test_deleting_a_closed_key_opens_nothing(world: World) -> None:
    await world.planner.write("plan", "open")
    await world.planner.write("plan", "closed", readable_by=CLOSED)
    await world.planner.delete("plan")
    assert await seen(world.analysis) == []
    await world.analysis.write("plan", "a new one")
    assert await seen(world.analysis) == [("written", 3)]
    assert len(await seen(world.planner)) == 4


async def test_a_branch_has_its_own_rule(world: World) -> None:
    await world.planner.write("plan", "open")
    await world.planner.call("history.branch", context_id=BOARD, branch="try")
    await world.planner.write("plan", "open", branch="try")
    await world.planner.write("plan", "closed", branch="try", readable_by=CLOSED)
    assert await seen(world.analysis) == [("written", 1)]
    assert await seen(world.analysis, types=["branch.*"]) == []
    assert len(await seen(world.planner, types=["branch.*"])) == 2


async def test_a_merge_that_closes_a_key_hides_its_earlier_events(world: World) -> None:
    await world.planner.write("plan", "open")
    await world.planner.call("history.branch", context_id=BOARD, branch="try")
    await world.planner.write("plan", "closed", branch="try", readable_by=CLOSED)
    assert await seen(world.analysis) == [("written", 1)]
    await world.planner.call("history.merge", context_id=BOARD, from_context_id=f"{BOARD}@try")
    assert await seen(world.analysis) == []


async def test_a_follower_that_lags_does_not_get_what_was_closed_meanwhile(world: World) -> None:
    """The feed serves recent events from memory: those are of now too."""
    start = await world.last_event()
    following = world.planner.follow(EventFilter(SESSION), start)
    await world.planner.write("plan", "open")
    await world.planner.write("other", "open")
    async with asyncio.timeout(60):
        await anext(following)
    assert await seen(world.analysis, after=start) == [("written", 1)]
    await world.planner.write("plan", "closed", readable_by=CLOSED)
    assert await seen(world.analysis, after=start) == []
    assert await seen(world.analysis, "other", after=start) == [("written", 1)]
    await following.aclose()  # type: ignore[attr-defined]


async def test_an_imported_session_keeps_the_rule(world: World) -> None:
    await world.planner.write("plan", "open")
    await world.planner.write("plan", "closed", readable_by=CLOSED)
    exported = await world.admin.call("bundle.export", session_id=SESSION, history=True)
    await world.admin.call("bundle.import", bundle=exported["bundle"], session_id="copy")
    found = (await world.analysis.call("events.read", session_id="copy", after=0))["events"]
    assert [each for each in found if each["subject"] == "plan"] == []


async def test_boards_without_acls_are_read_without_looking_up_keys(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> Any:
        raise AssertionError("looked up")

    monkeypatch.setattr("weftline.sessions.events.sql.later_key_acls", fail)
    await world.planner.write("plan", "open")
    assert await seen(world.analysis) == [("written", 1)]
