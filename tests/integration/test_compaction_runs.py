"""Runs of compactions: queued at the threshold, on a frozen cut, applied in one transaction while the agent goes on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from support.compaction_runs import (
    SMALL_TALK,
    compact,
    compactions,
    conversation,
    current,
    long_window,
    say,
    text_of,
)
from support.jobs import pause_jobs
from support.statement_log import statements_of
from support.windows import contents, create, ingest, message, published, show
from support.world import SESSION, refused
from weftline.jobs.compaction import COMPACT
from weftline.kernel.job_store import JobStore
from weftline.storage.sql.database import SYSTEM, Scope
from weftline.windows.compaction.compactor import Compactor
from weftline.windows.compaction.runs import MAX_ATTEMPTS, MAX_FAILURES
from weftline.windows.compaction.sql import due_compactions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from support.world import World

pytestmark = pytest.mark.req("CE-F6")
ANALYSIS = f"window:{SESSION}:analysis"


@pytest.fixture(autouse=True)
def _jobs_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    pause_jobs(monkeypatch, COMPACT)


async def run_due(world: World) -> None:
    await world.app.scheduler.drain(COMPACT)


async def states(world: World, line_id: str = ANALYSIS) -> list[str]:
    return [each.state.value for each in await compactions(world, line_id)]


def while_running(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[Any]], times: int = 1) -> None:
    """Do something after the first runs have read their cut and before they finish."""
    compacting, left = Compactor.compact, [times]

    async def compact_meanwhile(*args: Any) -> Any:
        draft = await compacting(*args)
        if left[0]:
            left[0] -= 1
            await act()
        return draft

    monkeypatch.setattr(Compactor, "compact", compact_meanwhile)


async def test_a_window_at_its_threshold_is_compacted_in_the_background(world: World) -> None:
    await long_window(world.analysis, turns=150, limit=10_000)
    assert await states(world) == ["queued"]
    assert (await show(world.analysis))["threshold_reached"] is True
    before = await contents(world.analysis)
    await run_due(world)
    (done,) = await compactions(world, ANALYSIS)
    assert (done.state, done.trigger, done.used) == ("applied", "threshold", "sliding_window")
    assert done.tokens_after < done.tokens_before
    assert done.saved_tokens == done.tokens_before - done.tokens_after
    assert (await show(world.analysis))["threshold_reached"] is False
    assert await contents(world.analysis) == before


async def test_below_the_threshold_nothing_is_queued_and_no_compaction_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(world.analysis, model_max_tokens=20_000, reserved_tokens=0)
    await say(world.analysis, 20)
    database = world.app.database
    below = await statements_of(lambda: say(world.analysis, 1, first=20), database, monkeypatch)
    assert not [each for each in below if "compactions" in each]
    assert await states(world) == []
    await world.app.scheduler.drain(COMPACT)
    assert await published(world.analysis, "window.threshold_reached") == []


async def test_above_the_threshold_a_write_reads_one_row_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await long_window(world.analysis, turns=150, limit=10_000)
    await run_due(world)
    above = await statements_of(lambda: say(world.analysis, 1, first=150), world.app.database, monkeypatch)
    assert len([each for each in above if "compactions" in each]) == 1


async def test_automatic_compaction_can_be_switched_off(world: World) -> None:
    await world.admin.call("layer.define", layer="tenant", compaction={"auto": False})
    await long_window(world.analysis, turns=150, limit=10_000)
    assert await states(world) == []
    assert len(await published(world.analysis, "window.threshold_reached")) == 1
    assert (await compact(world.analysis))["state"] == "applied"


async def test_triggers_coalesce(world: World) -> None:
    await create(world.analysis, model_max_tokens=10_000, reserved_tokens=0)
    others = [world.analysis.at(await world.another_app()) for _ in range(2)]
    said = conversation(240)
    callers = [world.analysis, *others]
    await asyncio.gather(
        *(ingest(callers[n % 3], *said[n * 10 : n * 10 + 10]) for n in range(24)),
        *(compact(caller, wait_seconds=0) for caller in callers),
    )
    assert await states(world) == ["queued"]
    await asyncio.gather(*(caller.app.scheduler.drain(COMPACT) for caller in callers))
    assert await states(world) == ["applied"]


async def test_the_agent_goes_on_while_its_window_is_compacted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    while_running(monkeypatch, lambda: say(world.analysis, 5, first=200))
    await long_window(world.analysis, turns=150, limit=10_000)
    await run_due(world)
    applied = await current(world, ANALYSIS)
    assert applied is not None
    assert applied.compaction.cut == 150
    assert applied.compaction.attempts == 1
    assert not any(event_id in summary.sources for summary in applied.view.summaries for event_id in ("t200", "t204"))
    assert (await show(world.analysis))["last_number"] == 155


async def test_a_window_that_grows_again_is_compacted_again_from_its_originals(world: World) -> None:
    await long_window(world.analysis, turns=150, limit=10_000)
    await run_due(world)
    first = await current(world, ANALYSIS)
    await say(world.analysis, 150, first=150)
    assert await states(world) == ["applied", "queued"]
    await run_due(world)
    assert await states(world) == ["superseded", "applied"]
    second = await current(world, ANALYSIS)
    assert first is not None
    assert second is not None
    assert second.compaction.events_covered > first.compaction.events_covered
    # Finished groups stay as they were, so that provider caches hit.
    assert second.view.summaries[: len(first.view.summaries) - 1] == first.view.summaries[:-1]


async def test_a_rollback_during_the_run_is_not_undone_by_its_result(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await long_window(world.analysis, turns=100, limit=10_000)
    await say(world.analysis, 60, first=100, words="The secret word is xylophone. " * 8)
    while_running(
        monkeypatch,
        lambda: world.planner.call("history.rollback", context_id=ANALYSIS, target_version=1),
    )
    await run_due(world)
    applied = await current(world, ANALYSIS)
    assert applied is None or "xylophone" not in text_of(applied.view)
    assert "xylophone" not in str([await compactions(world, ANALYSIS)])
    assert (await compactions(world, ANALYSIS))[0].attempts == 2


async def test_a_redaction_during_the_run_keeps_its_text_out_of_the_view(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(world.analysis, model_max_tokens=10_000, reserved_tokens=0)
    await ingest(world.analysis, message("secret", "We decided that the secret word is xylophone. " * 4))
    await say(world.analysis, 150)
    item = (await world.analysis.call("window.events", session_id=SESSION, limit=1))["events"][0]["item_id"]
    while_running(
        monkeypatch,
        lambda: world.admin.call("records.redact", item_id=item, state="removed", reason="a secret"),
    )
    await run_due(world)
    applied = await current(world, ANALYSIS)
    assert applied is not None
    assert applied.compaction.attempts == 2
    assert "xylophone" not in text_of(applied.view)
    assert not await world.rows("SELECT 1 FROM compactions WHERE state = 'queued' OR state = 'running'")


@pytest.mark.parametrize("what", ["window", "session"])
async def test_a_window_that_is_deleted_during_the_run_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    await long_window(world.analysis, turns=150, limit=10_000)
    calls = {
        "window": lambda: world.planner.call("window.delete", session_id=SESSION, agent_id="analysis"),
        "session": lambda: world.admin.call("session.delete", session_id=SESSION, force=True),
    }
    while_running(monkeypatch, calls[what])
    await run_due(world)
    assert await world.rows("SELECT state FROM compactions WHERE tenant = $1", world.tenant) == []
    assert await world.rows("SELECT 1 FROM compaction_views WHERE tenant = $1", world.tenant) == []
    assert await world.rows("SELECT 1 FROM jobs WHERE tenant = $1 AND job LIKE 'compaction:%'", world.tenant) == []


@pytest.mark.req("CE-E", part="a compaction that fails never blocks the agent")
async def test_a_compaction_that_fails_gives_up_and_the_agent_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(Compactor, "compact", broken)
    await long_window(world.analysis, turns=150, limit=10_000)
    for _ in range(MAX_FAILURES):
        await run_due(world)
    (failed,) = await compactions(world, ANALYSIS)
    assert (failed.state, failed.attempts, failed.degraded) == ("failed", MAX_FAILURES, ("truncation",))
    await ingest(world.analysis, message("next", "Go on."))
    prompt = await world.analysis.call("context.assemble", session_id=SESSION, task_description="Go on.")
    assert "Go on." in str(prompt)
    # Not again at once, but when it has grown.
    assert await states(world) == ["failed"]
    await say(world.analysis, 10, first=300)
    assert await states(world) == ["failed", "queued"]


async def test_a_compaction_that_never_ends_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class ProcessEnds(BaseException):
        """Leaves what a process leaves that is killed."""

    async def dies(*_: Any) -> Any:
        raise ProcessEnds

    monkeypatch.setattr(Compactor, "compact", dies)
    await long_window(world.analysis, turns=150, limit=10_000)
    (queued,) = await compactions(world, ANALYSIS)
    for _ in range(MAX_ATTEMPTS):
        with contextlib.suppress(ProcessEnds):
            await world.app.compaction._perform(world.tenant, queued.compaction_id)
        world.clock.advance(seconds=3_600)
    (running,) = await compactions(world, ANALYSIS)
    assert (running.state, running.attempts, running.failures) == ("running", MAX_ATTEMPTS, 0)
    await world.app.compaction._perform(world.tenant, queued.compaction_id)
    assert await states(world) == ["failed"]


async def test_a_run_that_lost_its_lease_applies_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await long_window(world.analysis, turns=150, limit=10_000)
    other = await world.another_app()

    async def take_over() -> None:
        world.clock.advance(minutes=2)
        await other.scheduler.drain(COMPACT)

    while_running(monkeypatch, take_over)
    await run_due(world)
    (done,) = await compactions(world, ANALYSIS)
    assert (done.state, done.attempts) == ("applied", 2)
    assert len(await world.rows("SELECT 1 FROM compaction_views WHERE tenant = $1", world.tenant)) == 1


async def test_an_explicit_call_performs_what_is_queued_with_its_own_options(world: World) -> None:
    await long_window(world.analysis, turns=150, limit=10_000)
    done = await compact(world.analysis, strategy="key_facts", keep_recent=5)
    assert done["state"] == "applied"
    assert done["strategy"] == "key_facts"
    (stored,) = await compactions(world, ANALYSIS)
    assert (stored.trigger, stored.keep_recent) == ("request", 5)


async def test_a_short_window_is_left_as_it_is(world: World) -> None:
    await ingest(world.analysis, message("a", SMALL_TALK))
    done = await compact(world.analysis)
    assert done["state"] == "skipped"
    assert "Nothing would be saved" in done["reason"]


@pytest.mark.req("CE-F7")
async def test_a_window_is_compacted_as_configured(world: World) -> None:
    await world.admin.call("layer.define", layer="tenant", compaction={"strategy": "key_facts", "keep_recent": 7})
    await long_window(world.analysis, turns=150, limit=10_000)
    await run_due(world)
    (done,) = await compactions(world, ANALYSIS)
    assert (done.state, done.used, done.keep_recent) == ("applied", "key_facts", 7)


@pytest.mark.req("CE-T", part="all limits of what exists")
@pytest.mark.parametrize("plan", ["free", "pro"])
async def test_smaller_plans_compact_by_a_sliding_window_only(world: World, plan: Any) -> None:
    await world.app.tenants.set_plan(world.tenant, plan)
    await world.admin.call("layer.define", layer="tenant", compaction={"strategy": "key_facts"})
    await long_window(world.analysis, turns=150, limit=10_000)
    with refused("QUOTA_EXCEEDED"):
        await compact(world.analysis, strategy="hierarchical")
    done = await compact(world.analysis)
    assert (done["state"], done["strategy"]) == ("applied", "sliding_window")
    assert f"The plan '{plan}' compacts by a sliding window only, not by key_facts." in done["reason"]
    assert (await compact(world.analysis, strategy="sliding_window"))["state"] == "applied"


async def test_an_automatic_compaction_that_costs_more_than_it_saves_is_skipped(world: World) -> None:
    """A cache that is cheap to read and dear to write: most of the prompt would be written again for little."""
    await world.admin.call("layer.define", layer="tenant", compaction={"target": 0.7, "threshold": 0.5})
    await long_window(world.analysis, turns=90, limit=10_000, model="claude-sonnet-4-5")
    await run_due(world)
    (skipped,) = await compactions(world, ANALYSIS)
    assert skipped.state == "skipped"
    assert "prompt cache" in skipped.reason
    assert await current(world, ANALYSIS) is None
    assert (await compact(world.analysis))["state"] == "applied"


async def test_near_the_limit_the_cache_does_not_count(world: World) -> None:
    await world.admin.call("layer.define", layer="tenant", compaction={"target": 0.7})
    await long_window(world.analysis, turns=170, limit=10_000, model="claude-sonnet-4-5")
    await run_due(world)
    assert await states(world) == ["applied"]


async def test_a_rollback_ends_what_the_view_saves(world: World) -> None:
    await long_window(world.analysis, turns=150, limit=10_000)
    await run_due(world)
    await world.planner.call("history.rollback", context_id=ANALYSIS, target_version=1)
    assert (await show(world.analysis))["threshold_reached"] is False
    await say(world.analysis, 50, first=500)
    assert (await show(world.analysis))["threshold_reached"] is True
    assert await states(world) == ["applied", "queued"]


async def test_a_caller_waits_for_the_run_of_another_process(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job runs by itself in one process; a caller of another one waits for its result."""
    await world.admin.call("layer.define", layer="tenant", compaction={"auto": False})
    await long_window(world.analysis, turns=150, limit=10_000)
    first, second = await world.another_app(), await world.another_app()
    for app in (first, second):
        app.scheduler.paused.clear()
    asked = await asyncio.gather(
        *(compact(world.analysis.at(app), wait_seconds=20) for app in (first, second, first, second))
    )
    assert {each["state"] for each in asked} == {"applied"}
    assert len({each["compaction_id"] for each in asked}) == 1


async def test_a_caller_that_does_not_wait_is_answered_at_once(world: World) -> None:
    await world.admin.call("layer.define", layer="tenant", compaction={"auto": False})
    await long_window(world.analysis, turns=150, limit=10_000)
    assert (await compact(world.analysis, wait_seconds=0))["state"] == "queued"


async def test_a_caller_waits_through_a_run_that_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    compacting, failures = Compactor.compact, iter([RuntimeError("broken")])

    async def broken_once(*args: Any) -> Any:
        for error in failures:
            raise error
        return await compacting(*args)

    monkeypatch.setattr(Compactor, "compact", broken_once)
    await world.admin.call("layer.define", layer="tenant", compaction={"auto": False})
    await long_window(world.analysis, turns=150, limit=10_000)
    world.app.scheduler.paused.clear()
    assert (await compact(world.analysis, wait_seconds=30))["state"] == "applied"
    (done,) = await compactions(world, ANALYSIS)
    assert done.attempts == 2


async def test_tenants_take_turns_and_a_leased_compaction_is_left_alone(world: World) -> None:
    await long_window(world.analysis, turns=150, limit=10_000)
    await long_window(world.review, turns=150, limit=10_000)
    now = world.app.lease_runner.now

    async def due() -> list[tuple[str, str]]:
        found = await world.app.database.read(SYSTEM, lambda tx: due_compactions(tx, "compaction:", now))
        return [each for each in found if each[0] == world.tenant]

    first, second = [each.compaction_id for each in await compactions(world, ANALYSIS)] + [
        each.compaction_id for each in await compactions(world, f"window:{SESSION}:review-2")
    ]
    assert await due() == [(world.tenant, first)]
    await world.app.database.write(
        Scope(world.tenant),
        lambda tx: JobStore(tx).claim(f"compaction:{first}", "other", now, now + 60_000_000, due_by=now),
    )
    assert await due() == [(world.tenant, second)]
