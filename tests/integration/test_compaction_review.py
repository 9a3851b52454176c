"""Human review of compactions: held, shown side by side, approved or refused, while the agent goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.approvals import approval_of
from support.compaction_runs import compact, compactions, current, long_window, say
from support.jobs import pause_jobs
from support.windows import contents, create, ingest, message
from support.world import SESSION, refused
from weftline.jobs.compaction import COMPACT
from weftline.kernel.guards import collected_warnings

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("CE-H")
ANALYSIS = f"window:{SESSION}:analysis"


@pytest.fixture(autouse=True)
def _jobs_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    pause_jobs(monkeypatch, COMPACT)


@pytest.fixture
async def critical(world: World) -> World:
    """The compactions of an agent are reviewed."""
    config = {"compaction": {"review": True}}
    await world.admin.call("agent.define", agent_id="analysis", config=config)
    return world


async def held_compaction(world: World, *, made: bool = False) -> Any:
    """Fill a window, which may be made already, and return the compaction of it that is held."""
    await (say(world.analysis, 150) if made else long_window(world.analysis, turns=150, limit=10_000))
    await world.app.scheduler.drain(COMPACT)
    (held,) = await compactions(world, ANALYSIS)
    assert held.state == "held"
    return held


async def assembled(world: World) -> str:
    return str(await world.analysis.call("context.assemble", session_id=SESSION, task_description="Go on."))


async def test_a_held_compaction_changes_nothing_until_it_is_approved(critical: World) -> None:
    held = await held_compaction(critical)
    assert await current(critical, ANALYSIS) is None
    await ingest(critical.analysis, message("next", "Go on meanwhile."))
    assert "Go on meanwhile." in await assembled(critical)
    approval = await critical.admin.call("approval.approve", approval_id=held.approval_id)
    assert approval["state"] == "performed"
    applied = await current(critical, ANALYSIS)
    assert applied is not None
    assert applied.compaction.compaction_id == held.compaction_id
    assert "next" not in {event_id for summary in applied.view.summaries for event_id in summary.sources}


async def test_a_call_with_other_options_is_told_that_it_joins_the_held_one(critical: World) -> None:
    held = await held_compaction(critical)
    with collected_warnings() as found:
        joined = await critical.analysis.call("context.compact", session_id=SESSION, keep_recent=9, wait_seconds=0)
    assert joined["compaction_id"] == held.compaction_id
    assert found == [
        "The window has a compaction that is held, with other options; this call joins it. Ask again when it is done."
    ]
    with collected_warnings() as none:
        await critical.analysis.call("context.compact", session_id=SESSION, wait_seconds=0)
    assert none == []


async def test_a_rejected_compaction_leaves_the_view_before(critical: World) -> None:
    await long_window(critical.analysis, turns=150, limit=10_000)
    await critical.app.scheduler.drain(COMPACT)
    await critical.admin.call("approval.approve", approval_id=await approval_of(critical.admin))
    before = await current(critical, ANALYSIS)
    await say(critical.analysis, 150, first=150)
    await critical.app.scheduler.drain(COMPACT)
    await critical.admin.call("approval.reject", approval_id=await approval_of(critical.admin), reason="Keep it.")
    assert [each.state for each in await compactions(critical, ANALYSIS)] == ["applied", "rejected"]
    assert await current(critical, ANALYSIS) == before
    # It is asked again when the window has grown, not at once.
    await ingest(critical.analysis, message("one", "One more."))
    assert len(await compactions(critical, ANALYSIS)) == 2
    await say(critical.analysis, 20, first=400)
    assert [each.state for each in await compactions(critical, ANALYSIS)] == ["applied", "rejected", "queued"]


async def test_an_approver_sees_the_summaries_next_to_the_originals(critical: World) -> None:
    held = await held_compaction(critical)
    shown = await critical.admin.call("approval.show", approval_id=held.approval_id)
    assert shown["operation"] == "compaction.apply"
    assert shown["session_id"] == SESSION
    assert shown["agent_id"] == "analysis"
    assert shown["details"]["tokens_after"] < shown["details"]["tokens_before"]
    summary = shown["details"]["summaries"][0]
    assert summary["original"].startswith("Turn 0.")
    assert summary["tokens_after"] < summary["tokens_before"]
    assert summary["dropped"]
    own = await critical.analysis.call("approval.show", approval_id=held.approval_id)
    assert own.get("details") is None


async def reviewer(world: World, agent_id: str = "approver", **fields: Any) -> Caller:
    """Return a human outside the session who may approve calls, by default, and is no admin."""
    who = {"kind": "human", "clearance": 3, "permissions": ["read", "write"]} | fields
    return await world.admin.create_agent(agent_id, **who)


@pytest.mark.both_databases
async def test_who_may_decide_about_a_compaction_reads_it_until_the_decision(critical: World) -> None:
    approver = await reviewer(critical)
    await create(critical.analysis, model_max_tokens=10_000, reserved_tokens=0)
    await ingest(critical.analysis, message("rent", "We decided: the hall in Rennes is rented for 4,200 euros."))
    held = await held_compaction(critical, made=True)
    named = {"compaction_id": held.compaction_id}
    shown = await approver.call("compaction.show", **named, limit=50)
    assert shown == await critical.analysis.call("compaction.show", **named, limit=50)
    summaries = shown["summaries"]
    assert shown["compaction"]["approval_id"] == held.approval_id
    assert "4,200" in str([each["facts"] for each in summaries])
    assert any(each["loss_notes"] for each in summaries)
    assert "hall in Rennes" in summaries[0]["originals"][0]["content"]
    with refused("PERMISSION_DENIED") as error:
        await approver.call("compaction.apply", **named)
    assert error.value.context["approval_id"] == held.approval_id
    rows: Any = await critical.admin.audit()
    (row,) = [row for row in rows if row["action"] == "compaction.show"]
    assert (row["outcome"], row["actor"], row["target"]) == ("done", "human:approver", held.compaction_id)
    await approver.call("approval.approve", approval_id=held.approval_id)
    with refused("COMPACTION_NOT_FOUND"):
        await approver.call("compaction.show", **named)


@pytest.mark.both_databases
async def test_nobody_else_reads_a_held_compaction(critical: World) -> None:
    held = await held_compaction(critical)
    named = {"compaction_id": held.compaction_id}
    hostile = [
        await reviewer(critical, "junior", clearance=2),
        # Agents approve nothing, whatever their clearance.
        await reviewer(critical, "machine", kind="agent", clearance=5),
        critical.review,
        critical.stranger,
    ]
    for caller in hostile:
        with refused("COMPACTION_NOT_FOUND"):
            await caller.call("compaction.show", **named)
    approver = await reviewer(critical)
    for operation in ("compaction.facts", "compaction.list", "window.events"):
        with refused("SESSION_NOT_FOUND"):
            await approver.call(operation, session_id=SESSION, agent_id="analysis")
    critical.clock.advance(days=40)
    with refused("COMPACTION_NOT_FOUND"):
        await approver.call("compaction.show", **named)


@pytest.mark.both_databases
async def test_an_approver_reads_no_other_compaction_of_the_window(critical: World) -> None:
    first = await held_compaction(critical)
    await critical.admin.call("approval.approve", approval_id=first.approval_id)
    await say(critical.analysis, 150, first=150)
    await critical.app.scheduler.drain(COMPACT)
    applied, second = await compactions(critical, ANALYSIS)
    approver = await reviewer(critical)
    assert (await approver.call("compaction.show", compaction_id=second.compaction_id))["summaries"]
    with refused("COMPACTION_NOT_FOUND"):
        await approver.call("compaction.show", compaction_id=applied.compaction_id)
    await critical.analysis.call("compaction.drop", session_id=SESSION)
    with refused("COMPACTION_NOT_FOUND"):
        await approver.call("compaction.show", compaction_id=second.compaction_id)


async def test_what_is_redacted_during_the_review_is_neither_shown_nor_stored_with_the_approval(
    critical: World,
) -> None:
    await create(critical.analysis, model_max_tokens=10_000, reserved_tokens=0)
    await ingest(critical.analysis, message("secret", "We decided that the secret word is xylophone."))
    await say(critical.analysis, 150)
    await critical.app.scheduler.drain(COMPACT)
    approval_id = await approval_of(critical.admin)
    assert "xylophone" in str(await critical.admin.call("approval.show", approval_id=approval_id))
    (first, *_) = (await critical.analysis.call("window.events", session_id=SESSION, limit=200))["events"]
    await critical.admin.call("records.redact", item_id=first["item_id"], state="removed", reason="a secret")
    shown = await critical.admin.call("approval.show", approval_id=approval_id)
    assert "xylophone" not in str(shown)
    assert shown["details"]["changed_since"] == 1
    await critical.admin.call("approval.approve", approval_id=approval_id)
    assert "xylophone" not in await assembled(critical)


async def test_a_review_that_expires_ends_the_compaction(critical: World) -> None:
    await held_compaction(critical)
    critical.clock.advance(days=40)
    await critical.app.scheduler.drain("approvals.advance")
    (ended,) = await compactions(critical, ANALYSIS)
    assert (ended.state, ended.reason) == ("rejected", "Nobody reviewed it in time.")


async def test_what_was_rolled_back_meanwhile_is_not_applied(critical: World) -> None:
    held = await held_compaction(critical)
    await critical.planner.call("history.rollback", context_id=ANALYSIS, target_version=0)
    await critical.admin.call("approval.approve", approval_id=held.approval_id)
    (ended,) = await compactions(critical, ANALYSIS)
    assert (ended.state, ended.reason) == ("skipped", "The events that it stands for have changed since.")
    assert await contents(critical.analysis) == []


async def test_a_session_can_ask_for_reviews_of_all_its_windows(world: World) -> None:
    planner = await world.planner.create_session("critical", compaction_review=True)
    await long_window(planner, turns=150, limit=10_000)
    done = await compact(planner)
    assert done["state"] == "held"
    assert done["approval_id"].startswith("approval_")
    assert (await compact(planner))["compaction_id"] == done["compaction_id"]


async def test_an_agent_cannot_apply_its_own_held_compaction(critical: World) -> None:
    held = await held_compaction(critical)
    for caller in (critical.analysis, critical.planner):
        with refused("PERMISSION_DENIED"):
            await caller.call("compaction.apply", compaction_id=held.compaction_id)
    assert (await critical.admin.call("compaction.apply", compaction_id=held.compaction_id))["state"] == "applied"
    approval = await critical.admin.call("approval.approve", approval_id=held.approval_id)
    assert approval["failed_with"]["code"] == "COMPACTION_NOT_HELD"


async def test_a_dropped_compaction_is_not_applied_by_a_late_approval(critical: World) -> None:
    held = await held_compaction(critical)
    await critical.analysis.call("compaction.drop", session_id=SESSION)
    await critical.admin.call("approval.approve", approval_id=held.approval_id)
    assert await current(critical, ANALYSIS) is None
