"""Retention rules and the pruning job: in batches, once, and never needed values."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.world import World, refused
from weftline.history import value_pruning
from weftline.jobs.history_pruning import HistoryPruner
from weftline.jobs.runner import LeaseRunner
from weftline.kernel.clock import DAY_MICROS
from weftline.kernel.identity import system_actor
from weftline.kernel.job_store import JobStore, Progress
from weftline.kernel.ports import LEASE_MICROS
from weftline.testing.clock import FrozenClock

if TYPE_CHECKING:
    from support.world import Caller
    from weftline.app.app import App
    from weftline.jobs.runner import Lease
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Scope

LINE = "board:s1"


async def history(caller: Caller, verb: str, **what: Any) -> Any:
    return await caller.call(f"history.{verb}", **what)


async def values(caller: Caller, line: str = LINE, key: str = "goal") -> list[str | None]:
    """Return the value of a key at each version of its line."""
    head = (await history(caller, "log", context_id=line, limit=1))["commits"][0]["version"]
    found = []
    for version in range(1, head + 1):
        entries = (await history(caller, "state", context_id=line, version=str(version), key=key))["entries"]
        found.append(entries[0]["value"] if entries else None)
    return found


async def write_often(world: World, times: int = 6, session: str = "s1") -> None:
    caller = world.planner.in_session(session)
    for number in range(1, times + 1):
        await caller.write("goal", f"{session} {number}")
        world.clock.advance(days=10)


async def retained_rows(world: World) -> Any:
    """Return all rows that pruning may change, without generated ids."""
    queries = (
        "SELECT line_id, key, seq, pruned FROM changes WHERE tenant = $1 ORDER BY line_id, key, seq",
        "SELECT hash FROM blobs WHERE tenant = $1 ORDER BY hash",
        "SELECT line_id, rule, versions, bytes, first_seq, last_seq FROM prunings WHERE tenant = $1 ORDER BY line_id",
        "SELECT job, cursor FROM jobs WHERE tenant = $1",
    )
    return [[tuple(row) for row in await world.rows(query, world.tenant)] for query in queries]


@pytest.mark.req("CE-F57")
async def test_rules_are_set_per_kind_of_line_or_per_line(world: World) -> None:
    shown = {r["subject"]: (r["days"], r["versions"]) for r in (await history(world.planner, "retention"))["rules"]}
    assert shown == {
        "board": ("indefinite", "all"),
        "agent": ("indefinite", "all"),
        "layer": ("indefinite", "all"),
        "window": ("indefinite", "all"),
        "conversation_context": ("indefinite", "all"),
        "learned_knowledge": ("indefinite", "all"),
        "team_preferences": ("indefinite", "all"),
        "work_artifacts": (90, "all"),
    }
    await history(world.admin, "set_retention", subject="learned_knowledge", days=365)
    await history(world.admin, "set_retention", subject=LINE, days=30, versions=5)
    await history(world.admin, "set_retention", subject="work_artifacts", days="indefinite")
    rules = {r["subject"]: r for r in (await history(world.admin, "retention"))["rules"]}
    assert (rules["learned_knowledge"]["days"], rules["work_artifacts"]["days"]) == (365, "indefinite")
    assert (rules[LINE]["days"], rules[LINE]["versions"], rules[LINE]["updated_by"]) == (30, 5, "human:admin")
    assert LINE not in {r["subject"] for r in (await history(world.planner, "retention"))["rules"]}
    stranger = {r["subject"]: r["days"] for r in (await history(world.stranger, "retention"))["rules"]}
    assert stranger["work_artifacts"] == 90


@pytest.mark.req("CE-F57")
async def test_setting_one_field_keeps_the_others(world: World) -> None:
    async def rule(subject: str, **what: Any) -> Any:
        answer = await history(world.admin, "set_retention", subject=subject, **what)
        return answer["days"], answer["versions"]

    assert await rule("work_artifacts", versions=5) == (90, 5)
    assert await rule("work_artifacts", days="indefinite") == ("indefinite", 5)
    assert await rule("work_artifacts", versions=0) == ("indefinite", "all")
    assert await rule("board", days=365) == (365, "all")
    assert await rule(LINE, versions=3) == (365, 3)
    assert await rule(LINE, days=30) == (30, 3)


@pytest.mark.req("CE-F57")
async def test_a_rule_can_be_cleared(world: World) -> None:
    async def clear(subject: str) -> Any:
        answer = await history(world.admin, "clear_retention", subject=subject)
        return answer["cleared"], answer["follows"], answer["days"], answer["versions"]

    await history(world.admin, "set_retention", subject="board", days=365)
    await history(world.admin, "set_retention", subject=LINE, days=30)
    await history(world.admin, "set_retention", subject="work_artifacts", days=30)
    with refused("PERMISSION_DENIED"):
        await history(world.planner, "clear_retention", subject=LINE)
    assert await clear(LINE) == (True, "board", 365, "all")
    assert await clear("board") == (True, "board", "indefinite", "all")
    assert await clear("board") == (False, "board", "indefinite", "all")
    assert await clear("work_artifacts") == (True, "work_artifacts", 90, "all")
    for subject in (LINE, "boards", "board:nowhere"):
        with refused("CONTEXT_NOT_FOUND"):
            await clear(subject)


@pytest.mark.req("CE-F57")
async def test_only_admins_set_rules_and_invalid_ones_are_refused(world: World) -> None:
    with refused("PERMISSION_DENIED"):
        await history(world.planner, "set_retention", subject="board", days=30)
    for days in (0, 31, -30, "30", None, "never"):
        with refused("INVALID_INPUT_FORMAT"):
            await history(world.admin, "set_retention", subject="board", days=days)
    for subject in ("boards", "board:nowhere", "memory", "x:y"):
        with refused("CONTEXT_NOT_FOUND"):
            await history(world.admin, "set_retention", subject=subject, days=30)
    await world.planner.remember("a", 1)
    with refused("INVALID_INPUT_FORMAT"):
        await history(world.admin, "set_retention", subject="memory:planner", days=30)


@pytest.mark.req("CE-F57")
async def test_values_replaced_before_the_retention_period_are_pruned(world: World) -> None:
    await write_often(world)
    await history(world.admin, "set_retention", subject="board", days=30)
    pruned = await history(world.admin, "prune")
    # Ten days after the sixth write, the first two values were replaced more than thirty days ago.
    assert (pruned["started"], pruned["finished"], pruned["versions"]) == (True, True, 2)
    assert await values(world.planner) == [None, None, "s1 3", "s1 4", "s1 5", "s1 6"]
    (row,) = (await history(world.admin, "prune_log"))["prunings"]
    assert (row["context_id"], row["rule"], row["versions"]) == (LINE, "board: 30 days", 2)
    assert (row["first_version"], row["last_version"], row["pruned_by"]) == (1, 2, "human:admin")
    assert row["bytes"] == pruned["bytes"] > 0
    (entry,) = (await history(world.planner, "state", context_id=LINE, version="1"))["entries"]
    assert (entry["value"], entry["pruned"]) == (None, True)
    assert (await history(world.planner, "verify", context_id=LINE))["intact"]
    assert len((await history(world.planner, "log", context_id=LINE))["commits"]) == 6
    events = (await world.admin.events())["events"]
    assert [(e["type"], e["subject"]) for e in events if e["type"] == "history.pruned"] == [("history.pruned", LINE)]


@pytest.mark.req("CE-F57")
async def test_the_given_number_of_versions_is_kept(world: World) -> None:
    await write_often(world)
    await history(world.admin, "set_retention", subject=LINE, days=None, versions=2)
    await history(world.admin, "prune", context_id=LINE)
    assert await values(world.planner) == [None, None, None, None, "s1 5", "s1 6"]
    with refused("VERSION_PRUNED"):
        await history(world.admin, "rollback", context_id=LINE, target_version="1")
    with refused("CONTEXT_NOT_FOUND"):
        await history(world.admin, "prune", context_id="board:nowhere")
    with refused("PERMISSION_DENIED"):
        await history(world.planner, "prune")


@pytest.mark.req("CE-F57")
async def test_values_of_snapshots_branches_and_reviews_are_not_pruned(world: World) -> None:
    await write_often(world, 2)
    await history(world.admin, "snapshot", context_id=LINE, label="keep")
    await write_often(world, 2)
    await history(world.planner, "branch", context_id=LINE, branch="try")
    await world.planner.write("goal", "theirs", branch="try")
    await world.planner.write("goal", "ours")
    merge = {"context_id": LINE, "from_context_id": f"{LINE}@try"}
    review = await history(world.planner, "merge", **merge)
    await write_often(world, 2)
    await history(world.admin, "set_retention", subject="board", days=None, versions=1)
    await history(world.admin, "prune")
    assert await values(world.planner) == [None, "s1 2", None, "s1 2", "ours", None, "s1 2"]
    await history(world.planner, "close_review", review_id=review["review_id"])
    await history(world.planner, "delete_branch", context_id=LINE, branch="try", force=True)
    await history(world.admin, "prune")
    assert await values(world.planner) == [None, "s1 2", None, None, None, None, "s1 2"]
    assert (await history(world.planner, "verify", context_id=LINE))["intact"]


@pytest.mark.req("CE-F57")
async def test_artifacts_are_deleted_after_90_days(world: World) -> None:
    line = "context:analysis:work_artifacts"
    item = {"memory_type": "work_artifacts", "key": "report", "value": "findings"}
    await world.analysis.call("context.push", knowledge=[item], if_version=0)
    world.clock.advance(days=91)
    await history(world.admin, "prune")
    log = await history(world.analysis, "log", context_id=line)
    assert [c["changes"][0]["act"] for c in log["commits"]] == ["expire", "write"]
    (row,) = (await history(world.admin, "prune_log"))["prunings"]
    assert (row["context_id"], row["rule"]) == (line, "work_artifacts: 90 days")
    assert (await history(world.admin, "verify", context_id="context:analysis", deep=True))["intact"]


@pytest.mark.req("CE-F57")
async def test_values_of_a_context_snapshot_are_not_pruned(world: World) -> None:
    await history(world.admin, "set_retention", subject="learned_knowledge", days=None, versions=1)
    for number in range(4):
        item = {"memory_type": "learned_knowledge", "key": "goal", "value": number}
        await world.analysis.call("context.push", knowledge=[item], if_version=number)
        if number == 1:
            await history(world.admin, "snapshot", context_id="context:analysis", label="keep")
    await history(world.admin, "prune")
    assert await values(world.analysis, "context:analysis:learned_knowledge") == [None, 1, None, 3]
    await history(world.admin, "rollback", context_id="context:analysis", target_version="keep")
    assert (await values(world.analysis, "context:analysis:learned_knowledge"))[-1] == 1


async def test_pruning_runs_once_a_day(world: World) -> None:
    await write_often(world)
    await history(world.admin, "set_retention", subject="board", days=30)
    await world.app.scheduler.drain("history.prune")
    assert (await values(world.planner))[:3] == [None, None, "s1 3"]
    world.clock.advance(days=1)
    await history(world.admin, "set_retention", subject="board", days=None, versions=1)
    await world.app.scheduler.drain("history.prune")
    assert (await values(world.planner))[:5] == [None] * 5
    rows = (await history(world.admin, "prune_log"))["prunings"]
    assert [row["pruned_by"] for row in rows] == ["system", "system"]


async def test_pruning_is_not_due_again_within_a_day(world: World) -> None:
    await world.app.scheduler.drain("history.prune")
    await write_often(world, 2)
    world.clock.advance(days=-20)
    await history(world.admin, "set_retention", subject="board", days=None, versions=1)
    world.clock.advance(hours=23)
    await world.app.scheduler.drain("history.prune")
    assert await values(world.planner) == ["s1 1", "s1 2"]
    world.clock.advance(hours=1)
    await world.app.scheduler.drain("history.prune")
    assert await values(world.planner) == [None, "s1 2"]


class Killed(Exception):
    """The process was killed."""


class DyingTransaction:
    """A transaction whose process dies at a given statement."""

    def __init__(self, transaction: Transaction, countdown: list[int]) -> None:
        self._transaction = transaction
        self._countdown = countdown

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._transaction, name)
        if name not in {"one", "all", "run", "changed"}:
            return found

        async def run(*what: Any) -> Any:
            self._countdown[0] -= 1
            if self._countdown[0] < 0:
                raise Killed
            return await found(*what)

        return run


class DyingDatabase:
    """A database whose process dies after a number of statements."""

    def __init__(self, app: App, statements: int) -> None:
        self._database = app.database
        self._countdown = [statements]

    async def read(self, scope: Scope, work: Any, *, heavy: bool = False) -> Any:
        return await self._database.read(scope, lambda tx: work(DyingTransaction(tx, self._countdown)), heavy=heavy)

    async def write(self, scope: Scope, work: Any) -> Any:
        return await self._database.write(scope, lambda tx: work(DyingTransaction(tx, self._countdown)))


def pruner_dying_after(world: World, statements: int) -> HistoryPruner:
    runner = LeaseRunner(DyingDatabase(world.app, statements), world.clock)  # type: ignore[arg-type]
    return HistoryPruner(runner, world.app._container)


async def fill_two_boards(world: World) -> None:
    for session in ("a", "b"):
        await world.planner.create_session(session)
        await write_often(world, 7, session)
        await world.planner.in_session(session).write("other", "x")
    await history(world.admin, "snapshot", context_id="board:a", label="keep")
    await history(world.admin, "set_retention", subject="board", days=None, versions=2)


@pytest.mark.req("CE-F57")
async def test_pruning_killed_at_any_statement_resumes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_pruning, "_CHANGES_BATCH", 3)
    undisturbed = World(world.url, FrozenClock(), world.settings)
    await undisturbed.open()
    for each in (undisturbed, world):
        await fill_two_boards(each)
    assert (await undisturbed.app.pruner.prune(system_actor(undisturbed.tenant), None)).finished
    expected = await retained_rows(undisturbed)
    await undisturbed.close()

    async def prune_and_die_after(statements: int) -> bool:
        """Return whether the process survived."""
        try:
            run = await pruner_dying_after(world, statements).prune(system_actor(world.tenant), None)
        except Killed:
            world.clock.advance(seconds=LEASE_MICROS / 1_000_000)
            return False
        return run.finished

    deaths = 0
    while not await prune_and_die_after(deaths):
        for line in ("board:a", "board:b"):
            assert (await history(world.planner, "verify", context_id=line))["intact"]
        deaths += 1
    assert deaths > 10
    assert await retained_rows(world) == expected


async def test_two_processes_prune_once(world: World) -> None:
    await fill_two_boards(world)
    others = [await world.another_app() for _ in range(2)]
    await asyncio.gather(
        world.app.scheduler.drain("history.prune"), *(app.scheduler.drain("history.prune") for app in others)
    )
    left = await retained_rows(world)
    assert [(line_id, versions) for line_id, _, versions, *_ in left[2]] == [("board:a", 5), ("board:b", 5)]


async def test_a_second_process_is_refused_while_one_prunes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_pruning, "_CHANGES_BATCH", 3)
    await fill_two_boards(world)
    with pytest.raises(Killed):
        await pruner_dying_after(world, 30).prune(system_actor(world.tenant), None)
    answer = await history(world.admin, "prune")
    assert (answer["started"], answer["finished"]) == (False, False)
    world.clock.advance(seconds=LEASE_MICROS / 1_000_000)
    answer = await history(world.admin, "prune")
    assert (answer["started"], answer["finished"], answer["versions"]) == (True, True, 10)


async def test_a_process_that_lost_its_lease_stops_pruning(world: World) -> None:
    steps = 0

    async def taken_over(transaction: Transaction, _progress: Progress) -> None:
        nonlocal steps
        steps += 1
        await transaction.run(
            "UPDATE jobs SET holder = 'another' WHERE tenant = $1 AND job = 'contended'", transaction.tenant
        )

    async def work(lease: Lease) -> str:
        while True:
            await lease.advance(taken_over)

    assert await world.app.lease_runner.run(world.tenant, "contended", work) is None
    assert steps == 1


async def test_pruning_out_of_time_resumes_at_its_cursor(world: World) -> None:
    runner = world.app.lease_runner

    async def count(transaction: Transaction, progress: Progress) -> int:
        done, jobs = int(progress.cursor or 0) + 1, JobStore(transaction)
        if done < 5:
            await jobs.save("counting", Progress(str(done)))
        else:
            await jobs.finish("counting", runner.now + DAY_MICROS)
        return done

    async def one_step(lease: Lease) -> int:
        return await lease.advance(count)

    async def all_steps(lease: Lease) -> int:
        while (done := await lease.advance(count)) < 5:
            pass
        return done

    assert await runner.run(world.tenant, "counting", one_step) == 1
    assert await runner.run(world.tenant, "counting", one_step, only_if_due=True) == 2
    assert await runner.run(world.tenant, "counting", all_steps, only_if_due=True) == 5
    assert await runner.run(world.tenant, "counting", one_step, only_if_due=True) is None
    assert await runner.run(world.tenant, "counting", one_step) == 1


@pytest.mark.req("CE-F21")
async def test_automatic_tags_are_pruned_and_manual_ones_kept(world: World) -> None:
    for step in ("draft", "review", "ship"):
        await world.planner.write("goal", f"in {step}", step=step)
    await world.planner.snapshot("agreed")
    named = [s["label"] for s in (await history(world.planner, "snapshots", context_id=LINE))["snapshots"]]
    assert {"after-draft-v1", "after-review-v2", "agreed"} <= set(named)
    world.clock.advance(days=31)
    await history(world.admin, "set_retention", subject="board", days=30)
    await history(world.admin, "prune")
    left = [s["label"] for s in (await history(world.planner, "snapshots", context_id=LINE))["snapshots"]]
    assert left == ["agreed"]
    assert (await values(world.planner))[:2] == [None, None]


@pytest.mark.req("CE-F21")
async def test_deleting_a_snapshot_needs_clearance_and_releases_its_values(world: World) -> None:
    await world.planner.write("goal", "old")
    await world.planner.snapshot("mark")
    await world.planner.write("goal", "new")
    with refused("PERMISSION_DENIED"):
        await history(world.analysis, "delete_snapshot", context_id=LINE, label="mark")
    await history(world.admin, "set_retention", subject="board", versions=1)
    await history(world.admin, "prune")
    assert await values(world.planner) == ["old", "new"]
    assert (await history(world.admin, "delete_snapshot", context_id=LINE, label="mark"))["deleted"] == "mark"
    with refused("SNAPSHOT_NOT_FOUND"):
        await history(world.admin, "delete_snapshot", context_id=LINE, label="mark")
    await history(world.admin, "prune")
    assert await values(world.planner) == [None, "new"]


async def test_a_damaged_line_does_not_stop_pruning_of_others(world: World) -> None:
    await history(world.admin, "set_retention", subject="board", versions=1)
    await history(world.admin, "set_retention", subject="learned_knowledge", versions=1)
    await world.analysis.call("context.push", knowledge=[{"key": "k", "value": "known"}], if_version=0)
    await write_often(world, times=3)
    await world.sql(
        "UPDATE changes SET meta = 'damaged' WHERE tenant = $1 AND line_id = 'context:analysis:learned_knowledge'",
        world.tenant,
    )
    await world.app.scheduler.drain("history.prune")
    assert await values(world.planner) == [None, None, "s1 3"]
