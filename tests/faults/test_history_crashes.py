"""A failure during a history change leaves the old state or the new one."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import support.history_writer_process
from support import forked_python
from support.crash_injection import CrashPoint, crashes
from support.world import SESSION
from weftline.history.model import blob_hash

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from support.world import World
    from weftline.testing.clock import FrozenClock

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.req("SC-08"),
    pytest.mark.req("CE-F22"),
    pytest.mark.req("CE-F25"),
]

TIMEOUT_SECONDS = 60
BOARD = f"board:{SESSION}"
DRAFT = f"{BOARD}@draft"
TABLES = (
    *("lines", "commits", "changes", "blobs", "tags", "pins", "switches", "reviews", "retention", "prunings"),
    *("entries", "sessions", "events", "doubtful_blobs"),
)
RETAINED = ("lines", "commits", "changes", "blobs", "tags", "pins", "entries", "prunings")


_EVERY_ROW = "SELECT * FROM {} WHERE tenant = $1"


async def all_rows(world: World, tables: tuple[str, ...] = TABLES) -> dict[str, list[str]]:
    """Return every row of the tenant, by table."""
    return {
        table: sorted(str(tuple(row)) for row in await world.rows(_EVERY_ROW.format(table), world.tenant))
        for table in tables
    }


async def expect_intact(world: World) -> None:
    for (line_id,) in await world.rows("SELECT line_id FROM lines WHERE tenant = $1", world.tenant):
        if line_id.startswith("board:"):
            verified = await world.planner.call("history.verify", context_id=line_id)
            assert verified["intact"], verified
    assert (await world.admin.inspect())["history_intact"]


async def diverged_branches(world: World) -> None:
    """Make a board and a branch that changed different keys."""
    for number in range(3):
        await world.planner.write("goal", f"goal {number}")
        await world.planner.write(f"k{number}", "base")
    await world.planner.snapshot("mark")
    await world.planner.call("history.branch", context_id=BOARD, branch="draft")
    await world.planner.write("k1", "ours")
    await world.planner.delete("k2")
    await world.planner.write("k3", "theirs", branch="draft")
    await world.planner.delete("k0", branch="draft")


def planner_call(operation: str, **raw: Any) -> Callable[[World], Awaitable[Any]]:
    return lambda world: world.planner.call(operation, **raw)


async def resolve(world: World) -> None:
    (review,) = (await world.admin.call("history.reviews", state="open"))["reviews"]
    chosen = {"goal": {"take": "theirs"}}
    await world.admin.call("history.resolve", review_id=review["review_id"], resolutions=chosen)


async def close_review(world: World) -> None:
    (review,) = (await world.admin.call("history.reviews", state="open"))["reviews"]
    await world.planner.call("history.close_review", review_id=review["review_id"])


CHANGES: dict[str, Callable[[World], Awaitable[Any]]] = {
    "rollback": planner_call("history.rollback", context_id=BOARD, target_version="2"),
    "rollback of a branch": planner_call("history.rollback", context_id=DRAFT, target_version="mark"),
    "restore": lambda world: world.planner.restore("mark"),
    "snapshot": planner_call("history.snapshot", context_id=BOARD, label="another"),
    "branch": planner_call("history.branch", context_id=BOARD, branch="other", from_version="3"),
    "switch": planner_call("history.switch", context_id=BOARD, branch="draft"),
    "delete of a branch": planner_call("history.delete_branch", context_id=BOARD, branch="draft", force=True),
    "merge": planner_call("history.merge", context_id=BOARD, from_context_id=DRAFT),
    "merge into a branch": planner_call("history.merge", context_id=DRAFT, from_context_id=BOARD),
}
CONFLICTS: dict[str, Callable[[World], Awaitable[Any]]] = {
    "merge with a conflict": planner_call("history.merge", context_id=BOARD, from_context_id=DRAFT),
    "resolve": resolve,
    "close the review": close_review,
}


async def expect_atomic(world: World, patch: pytest.MonkeyPatch, act: Callable[[World], Awaitable[Any]]) -> None:
    """Crash the change at each of its statements in turn; check that nothing is written until it completes."""
    before = await all_rows(world)
    crashed_statements = 0
    while await crashes(
        world, patch, CrashPoint(crashed_statements + 1, after=crashed_statements % 2 == 0), lambda: act(world)
    ):
        crashed_statements += 1
        assert await all_rows(world) == before, f"statement {crashed_statements} was not rolled back"
    assert crashed_statements > 1
    assert await all_rows(world) != before
    await expect_intact(world)


@pytest.mark.parametrize("name", CHANGES)
async def test_a_crash_at_any_statement_rolls_back_the_change(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    await diverged_branches(world)
    await expect_atomic(world, monkeypatch, CHANGES[name])


@pytest.mark.parametrize("name", CONFLICTS)
async def test_a_crash_during_conflict_handling_rolls_back(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    await diverged_branches(world)
    await world.planner.write("goal", "our goal")
    await world.planner.write("goal", "their goal", branch="draft")
    if name != "merge with a conflict":
        await CONFLICTS["merge with a conflict"](world)
    await expect_atomic(world, monkeypatch, CONFLICTS[name])


@pytest.mark.req("CE-F55")
async def test_pruning_completes_after_a_crash_at_any_statement(
    world: World, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await diverged_branches(world)
    for number in range(5):
        await world.planner.write("goal", f"later goal {number}")
    rule = {"subject": "board", "days": None, "versions": 1}
    await world.admin.call("history.set_retention", **rule)
    marked = await world.planner.read_snapshot("mark")
    seen = [await all_rows(world, RETAINED)]
    for at in range(1, 500):
        crashed = await crashes(
            world, monkeypatch, CrashPoint(at, after=at % 2 == 0), lambda: world.admin.call("history.prune")
        )
        seen.append(await all_rows(world, RETAINED))
        await expect_intact(world)
        assert await world.planner.read_snapshot("mark") == marked
        if not crashed:
            break
        # The holder of the job's lease is dead; let the lease expire.
        clock.advance(hours=1)
    clock.advance(hours=1)
    await world.admin.call("history.prune")
    end = await all_rows(world, RETAINED)
    assert end != seen[0]
    order = [state for place, state in enumerate(seen) if state not in seen[:place]]
    kept = [len(state["blobs"]) for state in order]
    assert kept == sorted(kept, reverse=True)
    lines = 2
    assert len(order) <= lines + 1
    assert await world.planner.read_snapshot("mark") == marked


async def test_acknowledged_changes_survive_a_process_killed_during_merges_and_rollbacks(world: World) -> None:
    board = await world.planner.create_session("long", keep_versions=10_000, max_total_tokens=1_000_000)
    process = await asyncio.create_subprocess_exec(
        forked_python.python(),
        str(Path(support.history_writer_process.__file__)),
        world.url,
        world.planner.credential,
        "long",
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT_SECONDS):
        output = b"".join([await process.stdout.readline() for _ in range(150)])
        process.send_signal(signal.SIGKILL)
        output += await process.stdout.read()
        await process.wait()
    await world.close_app(world.app)
    world.app = await world.another_app()
    world.admin, board = world.admin.at(world.app), board.at(world.app)
    # On PostgreSQL the killed client's last transaction may still hold its lock; a write waits for it.
    await board.write("alive", "again")
    acknowledged = [line.split() for line in output.decode().splitlines()]
    assert {line[0] for line in acknowledged} == {"wrote", "at"}
    for kind, line_id, what in acknowledged:
        if kind == "at":
            await board.call("history.show" if what != "0" else "history.log", context_id=line_id, **_version(what))
        else:
            written = "SELECT seq FROM changes WHERE tenant = $1 AND line_id = $2 AND blob_hash = $3"
            assert await world.rows(written, world.tenant, line_id, blob_hash(what)), (line_id, what)
    for line_id in {line[1] for line in acknowledged}:
        assert (await board.call("history.verify", context_id=line_id))["intact"]
    assert (await world.admin.in_session("long").inspect())["history_intact"]


def _version(number: str) -> dict[str, str]:
    return {} if number == "0" else {"version": number}
