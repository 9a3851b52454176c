"""A killed process leaves the old view or the new one, and another process finishes the compaction."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import support.window_writer_process
from support import forked_python
from support.compaction_process import (
    compaction_process,
    dies_after_the_commit,
    dies_before_the_commit,
    dies_while_computing,
)
from support.compaction_runs import compact, compactions, current, long_window, say
from support.crash_injection import MORE_THAN_A_LEASE
from support.jobs import pause_jobs
from support.processes import process
from support.webhooks import wait_until
from support.windows import create, show
from support.world import SESSION
from weftline.jobs.compaction import COMPACT
from weftline.windows.compaction.runs import MAX_FAILURES

if TYPE_CHECKING:
    from support.world import World

pytestmark = [pytest.mark.req("CE-F6"), pytest.mark.req("SC-08")]
ANALYSIS = f"window:{SESSION}:analysis"


@pytest.fixture(autouse=True)
def _no_compaction_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    pause_jobs(monkeypatch, COMPACT)


async def until_dead(make: Any, world: World) -> None:
    """Run a process until it has killed itself."""
    async with process(make, world) as running:
        await wait_until(lambda: dead(running))


async def dead(running: Any) -> bool:
    return running._process.exitcode is not None


async def finished(world: World) -> bool:
    return not await world.rows("SELECT 1 FROM compactions WHERE state IN ('queued', 'running')")


@pytest.mark.parametrize("killed", [dies_while_computing, dies_before_the_commit, dies_after_the_commit])
async def test_a_killed_run_leaves_the_old_view_or_the_new_one(world: World, killed: Any) -> None:
    await long_window(world.analysis, turns=150, limit=10_000)
    await world.app.scheduler.drain(COMPACT)
    before = await current(world, ANALYSIS)
    await say(world.analysis, 150, first=150)
    await until_dead(killed, world)
    # On PostgreSQL the killed client's last transaction may still hold its lock; a write waits for it.
    await say(world.analysis, 1, first=900)
    left = await current(world, ANALYSIS)
    is_committed = killed is dies_after_the_commit
    assert (left == before) is not is_committed
    async with process(compaction_process, world, MORE_THAN_A_LEASE):
        await wait_until(lambda: finished(world))
    done = await compactions(world, ANALYSIS)
    assert [each.state for each in done] == ["superseded", "applied"]
    assert done[-1].attempts == (1 if is_committed else 2)
    assert await world.rows("SELECT job FROM jobs WHERE tenant = $1 AND job LIKE 'compaction:%'", world.tenant) == []


async def test_a_run_is_not_repeated_while_its_process_may_live(world: World) -> None:
    await long_window(world.analysis, turns=150, limit=10_000)
    await until_dead(dies_while_computing, world)
    async with process(compaction_process, world):
        await asyncio.sleep(1)
        (running,) = await compactions(world, ANALYSIS)
        assert (running.state, running.attempts) == ("running", 1)


async def test_the_death_of_a_process_is_no_failure_of_its_compaction(world: World) -> None:
    await long_window(world.analysis, turns=150, limit=10_000)
    for lease in range(MAX_FAILURES):
        async with process(dies_while_computing, world, MORE_THAN_A_LEASE * lease) as running:
            await wait_until(lambda running=running: dead(running))
    async with process(compaction_process, world, MORE_THAN_A_LEASE * MAX_FAILURES):
        await wait_until(lambda: finished(world))
    (done,) = await compactions(world, ANALYSIS)
    assert (done.state, done.attempts, done.failures) == ("applied", MAX_FAILURES + 1, 0)


async def test_processes_that_write_and_compact_one_window_at_once_make_one_view(world: World) -> None:
    await create(world.analysis, model_max_tokens=10_000, reserved_tokens=0)
    writers = [
        await asyncio.create_subprocess_exec(
            forked_python.python(),
            str(Path(support.window_writer_process.__file__)),
            *(world.url, world.settings.data_dir, world.analysis.credential, SESSION, f"w{number}", "12"),
        )
        for number in range(3)
    ]
    async with asyncio.timeout(120):
        assert [await writer.wait() for writer in writers] == [0, 0, 0]
    assert (await show(world.analysis))["last_number"] == 360
    await world.app.scheduler.drain(COMPACT)
    done = await compactions(world, ANALYSIS)
    assert [each.state for each in done].count("applied") == 1
    assert {each.state for each in done} <= {"applied", "superseded", "skipped"}
    assert {each.attempts for each in done} == {1}
    # A call that joins a run gets what that run saw.
    assert (await compact(world.analysis))["state"] == "applied"
    applied = await current(world, ANALYSIS)
    assert applied is not None
    covered = [event_id for summary in applied.view.summaries for event_id in summary.sources]
    assert len(covered) == len(set(covered)) > 250
