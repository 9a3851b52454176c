"""Board snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.world import refused
from weftline.history.lines import LineStore
from weftline.history.model import Tag
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from support.world import World

pytestmark = pytest.mark.req("SC-15")


async def test_a_snapshot_is_taken_listed_and_read(world: World) -> None:
    await world.planner.write("goal", "ship")
    taken = await world.analysis.snapshot("pre_approval")
    assert taken == {
        "label": "pre_approval",
        "created_by": "subagent:analysis",
        "created_at": "2026-02-20T14:30:00Z",
    }
    world.clock.advance(minutes=1)
    await world.planner.write("goal", "wait")
    await world.planner.snapshot("A-later_one")
    assert await world.review.snapshots() == ["pre_approval", "A-later_one"]
    assert await world.review.call("board.read_snapshot", session_id="s1", label="pre_approval") == {
        **taken,
        "entries": [
            {
                "key": "goal",
                "value": "ship",
                "written_by": "orchestrator:planner",
                "written_at": "2026-02-20T14:30:00Z",
                "version": 1,
            }
        ],
    }


async def test_snapshots_never_change(world: World) -> None:
    await world.planner.snapshot("mark")
    with refused("SNAPSHOT_EXISTS"):
        await world.planner.snapshot("mark")
    for label in ("", "a b", "../x", "a\n", "é", "x" * 101):
        with refused("INVALID_INPUT_FORMAT"):
            await world.planner.snapshot(label)


async def test_an_unknown_label_is_not_found(world: World) -> None:
    for attempt in (world.planner.read_snapshot, world.planner.compare, world.planner.restore):
        for label in ("none", "../x"):
            with refused("SNAPSHOT_NOT_FOUND"):
                await attempt(label)
    await world.planner.snapshot("mark")
    with refused("SNAPSHOT_NOT_FOUND"):
        await world.planner.compare("mark", "none")


async def test_snapshots_are_compared_by_value(world: World) -> None:
    for key in ("stays", "changes", "goes", "rewritten"):
        await world.planner.write(key, "1")
    await world.planner.snapshot("before")
    await world.planner.write("changes", "2")
    await world.planner.write("rewritten", "1")
    await world.planner.delete("goes")
    await world.planner.write("comes", "1")
    compared = await world.planner.compare("before")
    assert [entry["key"] for entry in compared["added"]] == ["comes"]
    assert [entry["key"] for entry in compared["removed"]] == ["goes"]
    assert compared["modified"] == [
        {"key": "changes", "from_version": 1, "to_version": 2, "from_value": "1", "to_value": "2"}
    ]
    assert compared["unchanged"] == ["rewritten", "stays"]
    await world.planner.snapshot("after")
    assert await world.planner.compare("before", "after") == compared


async def test_a_restore_writes_the_whole_board_as_new_versions(world: World) -> None:
    await world.planner.write("stays", "1")
    await world.analysis.write("changes", "1")
    await world.planner.write("goes", "1")
    await world.planner.snapshot("mark")
    await world.planner.write("changes", "2")
    await world.planner.delete("goes")
    await world.planner.write("comes", "1")
    restored = await world.planner.restore("mark")
    assert restored == {"restored": "mark", "written": ["changes", "goes"], "deleted": ["comes"]}
    assert (await world.planner.compare("mark"))["unchanged"] == ["changes", "goes", "stays"]
    assert [(v["version"], v["value"]) for v in (await world.planner.history("changes"))["versions"]] == [
        (1, "1"),
        (2, "2"),
        (3, "1"),
    ]
    assert (await world.planner.history("goes"))["incarnation"] == 2
    assert (await world.planner.read("stays"))["version"] == 1
    assert (await world.planner.read("changes"))["written_by"] == "orchestrator:planner"
    assert await world.planner.restore("mark") == {"restored": "mark", "written": [], "deleted": []}


async def test_a_restore_restores_the_acls(world: World) -> None:
    await world.review.write("verdict", "x", readable_by=["subagent:review:*"], writable_by=["subagent:review:*"])
    await world.review.snapshot("mark")
    await world.review.write("verdict", "x", readable_by=["*"], writable_by=["*"])
    await world.planner.restore("mark")
    with refused("KEY_NOT_FOUND"):
        await world.planner.read("verdict")
    info = (await world.review.list())["keys"][0]
    assert (info["readable_by"], info["writable_by"]) == (["subagent:review:*"], ["subagent:review:*"])


async def test_an_empty_board_can_be_restored(world: World) -> None:
    await world.planner.snapshot("empty")
    await world.planner.write("goal")
    await world.planner.restore("empty")
    assert await world.planner.keys() == []
    assert await world.planner.size() == 0


async def test_sub_agents_cannot_restore(world: World) -> None:
    await world.planner.snapshot("mark")
    with refused("PERMISSION_DENIED"):
        await world.analysis.restore("mark")


@pytest.mark.req("CE-F25")
async def test_pruned_values_are_flagged_in_snapshots_and_comparisons(world: World) -> None:
    short = await world.planner.create_session("short", keep_versions=1)
    await short.write("empty", "")
    for number in range(17):
        await short.write("goal", f"v{number}")
    for name, version in (("old", "3"), ("older", "2")):
        await short.call("history.branch", context_id="board:short", branch=name, from_version=version)
        await short.snapshot(name, branch=name)
    read = await short.call("board.read_snapshot", session_id="short", label="old", branch="old")
    empty, goal = read["entries"]
    assert (empty["key"], empty["value"], "pruned" in empty) == ("empty", "", False)
    assert (goal["key"], goal["value"], goal["version"], goal["pruned"]) == ("goal", None, 2, True)
    same = await short.call("board.compare_snapshots", session_id="short", from_label="old", branch="old")
    assert (same["unchanged"], same["modified"]) == (["empty", "goal"], [])
    await short.write("goal", "", branch="old")
    changed = await short.call("board.compare_snapshots", session_id="short", from_label="old", branch="old")
    assert changed["modified"] == [
        {"key": "goal", "from_version": 2, "to_version": 3, "from_value": None, "to_value": ""}
    ]
    await short.delete("goal", branch="old")
    gone = await short.call("board.compare_snapshots", session_id="short", from_label="old", branch="old")
    assert [(entry["value"], entry["pruned"]) for entry in gone["removed"]] == [(None, True)]


async def test_labels_of_automatic_snapshots_are_reserved(world: World) -> None:
    for label in ("before-rollback-v3", "after-plan-v1", "before-x-v2-2"):
        with refused("INVALID_INPUT_FORMAT"):
            await world.planner.snapshot(label)
    for label in ("before-rollback", "after-v1", "the-before-x-v1"):
        await world.planner.snapshot(label)


async def test_the_automatic_snapshot_before_a_restore_gets_a_free_label(world: World) -> None:
    await world.planner.write("goal", "1")
    await world.planner.snapshot("mark")
    taken = Tag("before-restore-v2", 1, "orchestrator", 0)
    await world.app.database.write(Scope(world.tenant), lambda tx: LineStore(tx).tag("board:s1", taken))
    await world.planner.write("goal", "2")
    await world.planner.restore("mark")
    assert await world.planner.read_snapshot("before-restore-v2") == {"goal": "1"}
    assert await world.planner.read_snapshot("before-restore-v2-2") == {"goal": "2"}


@pytest.mark.req("SC-12")
async def test_a_restore_prunes_old_values(world: World) -> None:
    short = await world.planner.create_session("short", keep_versions=1)
    await short.write("goal", "first")
    await short.snapshot("mark")
    for number in range(6):
        await short.write("goal", f"v{number}")
    await short.restore("mark")
    kept = await world.rows(
        "SELECT version FROM changes WHERE tenant = $1 AND line_id = 'board:short' AND pruned = 0 ORDER BY version",
        world.tenant,
    )
    assert [row[0] for row in kept] == [1, 7, 8]
