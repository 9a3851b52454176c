"""Budgets in tokens and money: whom they bind, what happens at their limits, and that nobody exceeds them together."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from support.assemblies import TASK, add_documents, assemble, ingest, receipt
from support.processes import outcomes_in_processes
from support.world import SESSION, Caller, outcome, refused
from weftline.jobs.figures import PRUNE_ALERTS
from weftline.kernel.clock import DAY_MICROS
from weftline.kernel.guards import collected_warnings
from weftline.models.metering import NewUsageEntry, UsageKey, UsageSums
from weftline.models.sql import UsageStore
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from support.world import World

pytestmark = pytest.mark.req("CE-T", part="budgets")

MODEL = "claude-sonnet-4-5"


async def set_budget(world: World, subject: str, **fields: Any) -> Any:
    return await world.admin.call("budget.set", **{"subject": subject, "period": "day", "at_limit": "refuse", **fields})


async def spend_of(world: World, subject: str, period: str = "day") -> Any:
    budgets = (await world.admin.call("budget.list"))["budgets"]
    return next(each for each in budgets if (each["subject"], each["period"]) == (subject, period))


async def events_of(world: World, *types: str) -> list[tuple[str, str]]:
    found = await world.admin.call("events.read", after=0, types=list(types))
    return [(each["type"], each["subject"]) for each in found["events"]]


async def first_prompt(world: World, **options: Any) -> Any:
    """Assemble a prompt on the day before: it counts in no budget of today."""
    answer = await assemble(world.analysis, **options)
    world.clock.advance(days=1)
    return answer


async def report(caller: Caller, answer: Any, tokens: int, output: int, **fields: Any) -> Any:
    usage = {"input_tokens": tokens, "output_tokens": output}
    named = {name: value for name, value in fields.items() if value is not None}
    return await caller.call(
        "context.emit_metrics", session_id=SESSION, receipt_id=answer["receipt_id"], usage=usage, **named
    )


@pytest.mark.both_databases
async def test_an_admin_sets_lists_and_deletes_budgets(world: World) -> None:
    await world.admin.call("team.create", team="research")
    made = await set_budget(world, "tenant", period="month", cost=25.5, at_limit="downgrade", warn_at=0.5)
    assert made == {
        "subject": "tenant",
        "period": "month",
        "tokens": None,
        "cost": 25.5,
        "at_limit": "downgrade",
        "warn_at": 0.5,
        "state": "within",
        "used_tokens": 0,
        "used_cost": 0.0,
        "calls": 0,
        "unpriced_calls": 0,
        "starts_at": "2026-02-01T00:00:00Z",
        "resets_at": "2026-03-01T00:00:00Z",
        "set_by": "human:admin",
        "set_at": made["set_at"],
        "tree_share": None,
        "agent_share": None,
        "shares": [],
    }
    for subject in ("agent:planner", "team:research", "tenant"):
        await set_budget(world, subject, tokens=1_000)
    names = ["agent:planner", "team:research", "tenant", "tenant"]
    assert [each["subject"] for each in (await world.admin.call("budget.list"))["budgets"]] == names
    first = await world.admin.call("budget.list", limit=3)
    rest = await world.admin.call("budget.list", limit=3, cursor=first["next_cursor"])
    assert [each["subject"] for each in [*first["budgets"], *rest["budgets"]]] == names
    assert "next_cursor" not in rest
    await world.admin.call("budget.delete", subject="tenant", period="day")
    with refused("BUDGET_NOT_FOUND"):
        await world.admin.call("budget.delete", subject="tenant", period="day")
    assert await events_of(world, "budget.changed", "budget.deleted") == [
        ("budget.changed", "tenant"),
        ("budget.changed", "agent:planner"),
        ("budget.changed", "team:research"),
        ("budget.changed", "tenant"),
        ("budget.deleted", "tenant"),
    ]


async def test_a_budget_needs_a_limit_and_somebody_to_limit(world: World) -> None:
    with refused("INVALID_INPUT_FORMAT"):
        await set_budget(world, "tenant")
    with refused("AGENT_NOT_FOUND"):
        await set_budget(world, "agent:nobody", tokens=1)
    with refused("TEAM_NOT_FOUND"):
        await set_budget(world, "team:nobody", tokens=1)
    with refused("PERMISSION_DENIED"):
        await world.planner.call("budget.set", subject="agent:analysis", period="day", tokens=1)


async def test_no_agent_changes_a_budget_that_limits_it(world: World) -> None:
    chief = await world.admin.create_agent("chief", permissions=["read", "write", "admin"], clearance=4)
    worker = await chief.create_agent("worker", parent_id="chief")
    await world.admin.call("team.create", team="research")
    await world.admin.call("team.add_member", team="research", agent_id="chief")
    for subject in ("tenant", "team:research", "agent:chief"):
        await set_budget(world, subject, tokens=1_000_000)
        for call in (
            chief.call("budget.set", subject=subject, period="day", tokens=2_000_000),
            chief.call("budget.delete", subject=subject, period="day"),
        ):
            with refused("SELF_MODIFICATION"):
                await call
    with refused("PERMISSION_DENIED"):
        await chief.call("budget.set", subject="agent:planner", period="day", tokens=1)
    await chief.call("budget.set", subject="agent:worker", period="day", tokens=1_000_000)
    with refused("SELF_MODIFICATION"):
        await worker.call("budget.delete", subject="agent:worker", period="day")


@pytest.mark.both_databases
async def test_a_spent_budget_refuses_until_it_resets(world: World) -> None:
    first = await first_prompt(world)
    await set_budget(world, "agent:analysis", tokens=first["tokens"] * 2 + 10)
    assert [await outcome(assemble(world.analysis, fresh=True)) for _ in range(3)] == ["ok", "ok", "BUDGET_EXCEEDED"]
    with refused("BUDGET_EXCEEDED") as caught:
        await assemble(world.analysis, fresh=True)
    resets = "2026-02-22T00:00:00Z"
    assert resets in caught.value.message
    assert caught.value.context == {
        "subject": "agent:analysis",
        "period": "day",
        "resets_at": resets,
        "limit_tokens": first["tokens"] * 2 + 10,
        "used_tokens": first["tokens"] * 2,
        "used_cost": 0.0,
    }
    # A refused call leaves no receipt and costs nothing.
    assert len((await world.analysis.call("receipt.list"))["receipts"]) == 3
    assert (await spend_of(world, "agent:analysis"))["used_tokens"] == first["tokens"] * 2
    # Others are not limited by it, and admins were told once that it was near, and once that it refuses.
    await assemble(world.review)
    assert await events_of(world, "budget.near", "budget.exceeded") == [
        ("budget.near", "agent:analysis"),
        ("budget.exceeded", "agent:analysis"),
    ]
    world.clock.advance(days=1)
    await assemble(world.analysis, fresh=True)
    assert (await spend_of(world, "agent:analysis"))["calls"] == 1


@pytest.mark.both_databases
async def test_a_budget_covers_agents_below_and_members_of_a_team_with_theirs(world: World) -> None:
    await world.admin.call("team.create", team="research")
    await world.admin.call("team.add_member", team="research", agent_id="planner")
    for subject in ("tenant", "team:research", "agent:planner", "agent:analysis"):
        await set_budget(world, subject, tokens=1_000_000)
    tokens = (await assemble(world.analysis))["tokens"]
    used = {each["subject"]: each["used_tokens"] for each in (await world.admin.call("budget.list"))["budgets"]}
    assert used == dict.fromkeys(["tenant", "team:research", "agent:planner", "agent:analysis"], tokens)
    await assemble(world.review)
    assert (await spend_of(world, "agent:planner"))["calls"] == 2
    assert (await spend_of(world, "agent:analysis"))["calls"] == 1
    # A prompt that another assembles counts for its agent.
    await assemble(world.planner, agent_id="analysis", fresh=True)
    assert (await spend_of(world, "agent:analysis"))["calls"] == 2
    # What others spend is for admins.
    shown = {each["subject"]: each["used_tokens"] for each in (await world.analysis.call("budget.list"))["budgets"]}
    assert shown.pop("agent:analysis") > tokens
    assert shown == dict.fromkeys(["tenant", "team:research", "agent:planner"])
    below = (await world.planner.call("budget.list", agent_id="analysis"))["budgets"]
    assert {each["subject"] for each in below if each["used_tokens"] is not None} == {"agent:analysis", "agent:planner"}
    with refused("AGENT_NOT_FOUND"):
        await world.analysis.call("budget.list", agent_id="review-2")
    assert (await world.stranger.call("budget.list"))["budgets"] == []


@pytest.mark.both_databases
@pytest.mark.parametrize("subject", ["tenant", "agent:planner"])
async def test_calls_at_the_same_time_never_exceed_a_budget_together(world: World, subject: str) -> None:
    """Two processes and three agents: as many calls pass as fit, and not one more."""
    other = await world.another_app()
    callers = [world.planner, world.analysis, world.review]
    callers += [caller.at(other) for caller in callers]
    tokens = [(await assemble(caller))["tokens"] for caller in callers]
    world.clock.advance(days=1)
    most = max(tokens)
    await set_budget(world, subject, tokens=most * 5)
    outcomes = await asyncio.gather(*(outcome(assemble(caller, fresh=True)) for caller in callers * 3))
    assert set(outcomes) == {"ok", "BUDGET_EXCEEDED"}
    spent = await spend_of(world, subject)
    assert spent["calls"] == outcomes.count("ok")
    assert most * 4 < spent["used_tokens"] <= most * 5
    (stored,) = await world.rows("SELECT COUNT(*), SUM(assembled_tokens) FROM receipts WHERE tenant = $1", world.tenant)
    assert tuple(stored) == (len(tokens) + spent["calls"], sum(tokens) + spent["used_tokens"])
    assert await events_of(world, "budget.exceeded") == [("budget.exceeded", subject)]


@pytest.mark.both_databases
async def test_reported_usage_corrects_what_was_estimated(world: World) -> None:
    await set_budget(world, "agent:analysis", tokens=100_000, cost=10.0, period="month", at_limit="warn")
    answer = await assemble(world.analysis, model=MODEL)
    estimated = await spend_of(world, "agent:analysis", "month")
    assert estimated["used_tokens"] == answer["tokens"]
    assert estimated["used_cost"] == pytest.approx(answer["savings"]["cost"])
    await report(world.analysis, answer, 700, 300)
    await report(world.analysis, answer, 700, 300)
    corrected = await spend_of(world, "agent:analysis", "month")
    cost = (await receipt(world.analysis, answer))["usage"]["cost"]
    assert (corrected["used_tokens"], corrected["calls"]) == (1_000, 1)
    assert corrected["used_cost"] == pytest.approx(cost, abs=1e-9)
    # Usage that is reported in the next period counts in the period of the call.
    late = await assemble(world.analysis, model=MODEL, fresh=True)
    world.clock.advance(days=31)
    await assemble(world.analysis, fresh=True)
    await report(world.analysis, late, 1_000, 4_000)
    now = await spend_of(world, "agent:analysis", "month")
    assert (now["calls"], now["unpriced_calls"]) == (1, 1)
    assert now["used_tokens"] < 5_000
    rows = await world.rows("SELECT tokens FROM budget_spend WHERE tenant = $1 ORDER BY starts_at", world.tenant)
    assert rows[0][0] == 6_000


@pytest.mark.both_databases
async def test_a_report_charges_no_more_than_the_call_can_have_used(world: World) -> None:
    """An agent that reports 40 million tokens exhausts neither the budget of its team nor that of the tenant."""
    await world.admin.call("team.create", team="crew")
    for member in ("analysis", "review-2"):
        await world.admin.call("team.add_member", team="crew", agent_id=member)
    for subject in ("tenant", "team:crew", "agent:analysis"):
        await set_budget(world, subject, tokens=1_000_000, cost=100.0)
    answer = await assemble(world.analysis, model=MODEL)
    with collected_warnings() as warnings:
        reported = await report(world.analysis, answer, 20_000_000, 20_000_000)
    assert "does not fit the assembled prompt" in " ".join(warnings)
    assert reported["held"] == ["input_tokens", "output_tokens"]
    charged = await spend_of(world, "tenant")
    assert (charged["used_tokens"], charged["calls"]) == (answer["tokens"], 1)
    assert charged["used_cost"] == pytest.approx(answer["savings"]["cost"])
    # Many reports that each stay below the limit of some model, or name a dearer or cheaper one, change nothing.
    reports = (
        (None, answer["tokens"], 64_000),
        ("claude-opus-4-1", answer["tokens"], 10),
        ("gpt-4o-mini", answer["tokens"], 10),
    )
    for model, tokens, output in reports:
        again = await assemble(world.analysis, model=MODEL, fresh=True)
        before = await spend_of(world, "tenant")
        assert (await report(world.analysis, again, tokens, output, model=model))["held"]
        assert await spend_of(world, "tenant") == before
    (held, *others) = (await world.admin.call("events.read", after=0, types=["model_call.held"]))["events"]
    assert (held["subject"], held["data"]["input_tokens"], len(others)) == ("analysis", 20_000_000, 3)
    assert (await world.analysis.call("events.read", session_id=SESSION, after=0, types=["model_call.held"]))[
        "events"
    ] == []
    charged_tokens = (await spend_of(world, "agent:analysis"))["used_tokens"]
    assert await outcome(assemble(world.review)) == "ok"
    # The report itself says what was reported; sums count what was estimated, unless it can have been used.
    reported = (await receipt(world.analysis, answer))["usage"]
    assert (reported["input_tokens"], reported["held"]) == (20_000_000, ["input_tokens", "output_tokens"])
    (used,) = (await world.admin.call("usage.report", by="agent", agent_id="analysis"))["rows"]
    (saved,) = (await world.admin.call("receipt.savings", by="agent", agent_id="analysis"))["rows"]
    assert (used["total_tokens"], used["reported_calls"]) == (charged_tokens + 2 * 10, 2)
    assert (saved["reported"], saved["output_tokens"]) == (2, 2 * 10)
    assert saved["input_tokens"] < charged_tokens


async def test_an_agent_does_not_empty_its_budget_by_reporting_less(world: World) -> None:
    tokens = (await first_prompt(world, model=MODEL))["tokens"]
    await set_budget(world, "agent:analysis", tokens=tokens * 3, cost=1_000.0)
    for usage in ({"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 1, "output_tokens": 0}):
        answer = await assemble(world.analysis, model=MODEL, fresh=True)
        await world.analysis.call(
            "context.emit_metrics",
            session_id=SESSION,
            receipt_id=answer["receipt_id"],
            usage=usage,
            # Without a known price: the expected price of the prompt stays.
            model="house-model",
        )
    spent = await spend_of(world, "agent:analysis")
    # About half of what was counted, before the margin for estimates.
    assert spent["used_tokens"] > 2 * tokens / 3
    assert (spent["used_cost"] > 0, spent["unpriced_calls"]) == (True, 0)
    refusals = [await outcome(assemble(world.analysis, fresh=True)) for _ in range(8)]
    assert refusals[-1] == "BUDGET_EXCEEDED"


async def test_the_budget_of_an_agent_bounds_what_it_takes_from_others(world: World) -> None:
    """A greedy agent spends its own budget, and leaves that of its team and tenant to the others."""
    tokens = (await first_prompt(world))["tokens"]
    await world.admin.call("team.create", team="crew")
    for member in ("analysis", "review-2"):
        await world.admin.call("team.add_member", team="crew", agent_id=member)
    for subject in ("tenant", "team:crew"):
        await set_budget(world, subject, tokens=tokens * 20)
    await set_budget(world, "agent:analysis", tokens=tokens * 5)
    greedy = await asyncio.gather(*(outcome(assemble(world.analysis, fresh=True)) for _ in range(12)))
    assert (greedy.count("ok"), greedy.count("BUDGET_EXCEEDED")) == (5, 7)
    with refused("BUDGET_EXCEEDED") as caught:
        await assemble(world.analysis, fresh=True)
    assert caught.value.context["subject"] == "agent:analysis"
    assert [await outcome(assemble(world.review, fresh=True)) for _ in range(5)] == ["ok"] * 5
    # Without a budget of its own, an agent can use up what is shared: it refuses everyone, and says which it is.
    await asyncio.gather(*(outcome(assemble(world.review, fresh=True)) for _ in range(20)))
    with refused("BUDGET_EXCEEDED") as caught:
        await assemble(world.analysis, agent_id="analysis", fresh=True)
    assert caught.value.context["subject"] in {"agent:analysis", "team:crew"}


@pytest.mark.both_databases
async def test_processes_at_the_same_time_never_exceed_a_budget_together(world: World) -> None:
    tokens = (await first_prompt(world))["tokens"]
    await set_budget(world, "tenant", tokens=tokens * 4)
    attempt = ("context.assemble", {"session_id": SESSION, "task_description": TASK, "fresh": True})
    outcomes = await outcomes_in_processes(world.analysis, world, [[attempt] * 4] * 3)
    assert (outcomes.count("ok"), outcomes.count("BUDGET_EXCEEDED")) == (4, 8)
    assert (await spend_of(world, "tenant"))["used_tokens"] == tokens * 4


@pytest.mark.req("WX-04")
@pytest.mark.both_databases
async def test_members_of_a_team_share_its_budget(world: World) -> None:
    await world.admin.call("team.create", team="crew")
    for member in ("analysis", "review-2"):
        await world.admin.call("team.add_member", team="crew", agent_id=member)
    tokens = (await first_prompt(world))["tokens"]
    await set_budget(world, "team:crew", tokens=tokens * 3)
    both = [world.analysis, world.review]
    outcomes = await asyncio.gather(*(outcome(assemble(caller, fresh=True)) for caller in both * 4))
    assert (outcomes.count("ok"), outcomes.count("BUDGET_EXCEEDED")) == (3, 5)
    with refused("BUDGET_EXCEEDED") as caught:
        await assemble(world.review, fresh=True)
    assert "the team 'crew'" in caught.value.message
    # Who is not in the team, or leaves it, is not limited by it.
    assert await outcome(assemble(world.planner)) == "ok"
    await world.admin.call("team.remove_member", team="crew", agent_id="review-2")
    assert await outcome(assemble(world.review, fresh=True)) == "ok"
    events = (await world.admin.call("events.read", after=0, types=["budget.exceeded"]))["events"]
    assert [each["subject"] for each in events] == ["team:crew"]


async def test_a_budget_in_money_refuses_too(world: World) -> None:
    answer = await first_prompt(world, model=MODEL)
    await set_budget(world, "tenant", cost=answer["savings"]["cost"] * 1.5)
    assert await outcome(assemble(world.analysis, model=MODEL, fresh=True)) == "ok"
    with refused("BUDGET_EXCEEDED") as caught:
        await assemble(world.analysis, model=MODEL, fresh=True)
    # The agent learns the limit, but not what others spent.
    assert caught.value.context.keys() == {"subject", "period", "resets_at", "limit_cost"}
    # A model without a known price is counted, and costs nothing.
    assert await outcome(assemble(world.analysis, model="house-model", fresh=True)) == "ok"
    assert (await spend_of(world, "tenant"))["unpriced_calls"] == 1


async def test_a_spent_budget_that_downgrades_gives_fewer_passages(world: World) -> None:
    texts = [f"The depot {number} in Lisbon opens at {number} and stores olive oil." for number in range(40)]
    await add_documents(world, *texts)
    task = "When does the depot in Lisbon open?"
    full = await assemble(world.analysis, task, token_budget=1_200)
    await set_budget(world, "agent:analysis", tokens=1, at_limit="downgrade")
    with collected_warnings() as warnings:
        await assemble(world.analysis, task, fresh=True)
        reduced = await assemble(world.analysis, task, token_budget=1_200, fresh=True)
    passages = [
        next(block["items"] for block in answer["blocks"] if block["kind"] == "retrieved") for answer in (full, reduced)
    ]
    assert passages[0] > 2 * passages[1] > 0
    assert not reduced["widened"]
    name = {"subject": "agent:analysis", "period": "day"}
    assert reduced["downgraded_by"] == [name]
    shown = await receipt(world.analysis, reduced)
    assert (shown["downgraded_by"], shown["budgets"]) == ([name], [name])
    assert "fewer passages" in warnings[0]


async def test_a_budget_that_warns_warns_from_its_soft_limit_on(world: World) -> None:
    tokens = (await first_prompt(world))["tokens"]
    await set_budget(world, "tenant", tokens=tokens * 4, at_limit="warn", warn_at=0.5)
    found = []
    for _ in range(5):
        with collected_warnings() as warnings:
            await assemble(world.analysis, fresh=True)
        found.append(" ".join(warnings))
    assert [("nearly" in text, "is spent." in text) for text in found] == [
        (False, False),
        (True, False),
        (True, False),
        (False, True),
        (False, True),
    ]
    assert await events_of(world, "budget.near", "budget.exceeded") == [
        ("budget.near", "tenant"),
        ("budget.exceeded", "tenant"),
    ]
    states = [each["state"] for each in (await world.planner.call("budget.list"))["budgets"]]
    assert states == ["reached"]
    # A higher limit is warned of again.
    await set_budget(world, "tenant", tokens=tokens * 6, at_limit="warn", warn_at=0.5)
    await assemble(world.analysis, fresh=True)
    assert [name for name, _ in await events_of(world, "budget.near", "budget.exceeded")][2:] == ["budget.exceeded"]


async def test_only_those_whom_a_budget_limits_read_its_events(world: World) -> None:
    await world.admin.call("team.create", team="research")
    ada, bob = [await world.admin.create_agent(name, kind="human") for name in ("ada", "bob")]
    await world.admin.call("team.add_member", team="research", agent_id="ada")
    for subject in ("tenant", "team:research", "agent:planner"):
        await set_budget(world, subject, tokens=10)
    readers = []
    for caller in (world.planner, ada, bob):
        events = (await caller.call("events.read", after=0, types=["budget.*"]))["events"]
        readers.append([each["subject"] for each in events])
    assert readers == [["agent:planner"], ["team:research"], []]


async def test_months_have_their_own_lengths(world: World) -> None:
    for month, resets in ((1, "2027-02-01"), (2, "2027-03-01"), (12, "2028-01-01")):
        world.clock.advance(seconds=(datetime(2027, month, 28, tzinfo=UTC) - world.clock.now()).total_seconds())
        made = await set_budget(world, "tenant", period="month", tokens=10)
        assert made["resets_at"] == f"{resets}T00:00:00Z"


async def test_days_and_months_end_at_midnight_in_utc_wherever_the_server_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last microsecond of a month and the first of the next are in two periods, in every zone of the server."""
    await set_budget(world, "tenant", period="month", tokens=1_000_000)
    await set_budget(world, "tenant", period="day", tokens=1_000_000)
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago", "UTC"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        end = datetime(2028, 3, 1, tzinfo=UTC)  # after the 29th of February
        world.clock.advance(seconds=(end - world.clock.now()).total_seconds())
        world.clock.advance(seconds=-0.000001)
        await assemble(world.analysis, fresh=True)
        last = {period: await spend_of(world, "tenant", period) for period in ("day", "month")}
        assert [each["starts_at"] for each in last.values()] == ["2028-02-29T00:00:00Z", "2028-02-01T00:00:00Z"]
        assert {each["resets_at"] for each in last.values()} == {"2028-03-01T00:00:00Z"}
        calls = [each["calls"] for each in last.values()]
        world.clock.advance(seconds=0.000001)
        assert [(await spend_of(world, "tenant", period))["calls"] for period in ("day", "month")] == [0, 0]
        world.clock.advance(seconds=-0.000001)
        assert [(await spend_of(world, "tenant", period))["calls"] for period in ("day", "month")] == calls
    monkeypatch.undo()
    time.tzset()


@pytest.mark.both_databases
async def test_old_sums_are_deleted(world: World) -> None:
    await set_budget(world, "tenant", tokens=1_000_000)
    for days in (39, 3, 0):
        await assemble(world.analysis, fresh=True)
        world.clock.advance(days=days)
    starts = await world.rows("SELECT starts_at FROM budget_spend WHERE tenant = $1", world.tenant)
    assert len(starts) == 2


async def test_a_conversation_goes_on_when_its_budget_is_raised(world: World) -> None:
    await ingest(world.analysis, {"content": "What happened?"})
    await set_budget(world, "agent:analysis", tokens=1)
    with refused("BUDGET_EXCEEDED"):
        await assemble(world.analysis)
    await set_budget(world, "agent:analysis", tokens=1_000_000)
    await assemble(world.analysis)


async def alerts_of(world: World) -> list[tuple[str, str, str]]:
    rows = await world.rows(
        "SELECT condition, subject, state FROM alerts WHERE tenant = $1 ORDER BY alert_id", world.tenant
    )
    return [tuple(row) for row in rows]


@pytest.mark.both_databases
async def test_a_budget_has_one_alert_until_its_period_ends(world: World) -> None:
    tokens = (await first_prompt(world))["tokens"]
    await set_budget(world, "agent:planner", tokens=tokens * 2, at_limit="warn", warn_at=0.5)
    for _ in range(3):
        await assemble(world.analysis, fresh=True)
    near, exceeded = (("budget.near", "agent:planner"), ("budget.exceeded", "agent:planner"))
    assert await alerts_of(world) == [(*near, "open"), (*exceeded, "open")]
    world.clock.advance(days=1)
    await assemble(world.analysis, fresh=True)
    assert [state for *_, state in await alerts_of(world)] == ["resolved", "resolved", "open"]
    await set_budget(world, "agent:planner", tokens=tokens * 200, at_limit="warn")
    assert [state for *_, state in await alerts_of(world)] == ["resolved"] * 3


@pytest.mark.both_databases
async def test_a_new_budget_begins_with_no_more_than_calls_can_have_used(world: World) -> None:
    answers = [await assemble(world.analysis, model=MODEL, fresh=True) for _ in range(2)]
    await report(world.analysis, answers[0], 20_000_000, 20_000_000)
    made = await set_budget(world, "tenant", tokens=1_000_000, cost=100.0)
    assert made["used_tokens"] < 200_000
    assert made["used_cost"] < 10
    assert await outcome(assemble(world.review)) == "ok"
    # Nor with less than half of the prompts.
    less = [await assemble(world.review, model=MODEL, fresh=True) for _ in range(3)]
    for answer in less:
        await report(world.review, answer, 0, 0)
    half = sum(each["tokens"] for each in less) // 2
    assert (await set_budget(world, "agent:review-2", tokens=1_000_000))["used_tokens"] >= half


@pytest.mark.both_databases
async def test_the_alert_of_a_past_period_is_resolved_without_another_call(world: World) -> None:
    tokens = (await first_prompt(world))["tokens"]
    await set_budget(world, "agent:analysis", tokens=tokens)
    await set_budget(world, "tenant", period="month", tokens=tokens, at_limit="warn")
    await assemble(world.analysis, fresh=True)
    await world.app.scheduler.drain(PRUNE_ALERTS)
    assert [state for *_, state in await alerts_of(world)] == ["open", "open"]
    world.clock.advance(days=1)
    await world.app.scheduler.drain(PRUNE_ALERTS)
    assert sorted(await alerts_of(world)) == [
        ("budget.exceeded", "agent:analysis", "resolved"),
        ("budget.exceeded", "tenant", "open"),
    ]
    world.clock.advance(days=31)
    await world.app.scheduler.drain(PRUNE_ALERTS)
    assert [state for *_, state in await alerts_of(world)] == ["resolved", "resolved"]


async def test_a_late_report_opens_no_alert_about_a_past_period(world: World) -> None:
    answer = await assemble(world.analysis)
    await set_budget(world, "agent:analysis", tokens=answer["tokens"] * 3, at_limit="warn")
    late = await assemble(world.analysis, fresh=True)
    world.clock.advance(days=1)
    await assemble(world.analysis, fresh=True)
    await report(world.analysis, late, answer["tokens"] * 2, 1_000)
    assert await alerts_of(world) == []


async def test_the_alert_of_a_refused_prompt_stays_when_a_smaller_one_fits(world: World) -> None:
    small = (await assemble(world.analysis))["tokens"]
    world.clock.advance(days=1)
    await set_budget(world, "agent:analysis", tokens=small * 2)
    with refused("BUDGET_EXCEEDED"):
        await assemble(world.analysis, "Summarise the incident. " * 500, fresh=True)
    await assemble(world.analysis, fresh=True)
    assert await alerts_of(world) == [("budget.exceeded", "agent:analysis", "open")]


@pytest.mark.both_databases
async def test_a_new_budget_begins_with_what_was_spent_in_its_period(world: World) -> None:
    now = int(world.clock.now().timestamp() * 1_000_000)
    sums = UsageSums(calls=2, unpriced_calls=1, total_tokens=500, cost_nanos=2_500_000_000)
    entries = [
        NewUsageEntry("call", f"c{number}", now - days * DAY_MICROS, UsageKey("assembly", agent_id), sums)
        for number, (agent_id, days) in enumerate([("analysis", 0), ("planner", 1), ("admin", 0), ("planner", 100)])
    ]
    await world.app.database.write(Scope(world.tenant), lambda tx: UsageStore(tx).add(*entries))
    made = {
        (subject, period): (await set_budget(world, subject, period=period, tokens=10_000))["used_tokens"]
        for subject in ("tenant", "agent:planner", "agent:analysis", "agent:review-2")
        for period in ("day", "month")
    }
    assert list(made.values()) == [1_000, 1_500, 500, 1_000, 500, 500, 0, 0]
    spent = await spend_of(world, "tenant", "month")
    assert (spent["used_cost"], spent["calls"], spent["unpriced_calls"]) == (7.5, 6, 3)
    # Changing it counts nothing twice, and assembled prompts are in the usage too.
    assert (await set_budget(world, "tenant", period="month", tokens=20_000))["used_tokens"] == 1_500
    await assemble(world.review)
    counted = await spend_of(world, "tenant", "month")
    await world.admin.call("budget.delete", subject="tenant", period="month")
    again = await set_budget(world, "tenant", period="month", tokens=20_000)
    assert {**again, "set_at": 0, "at_limit": 0} == {**counted, "set_at": 0, "at_limit": 0}


async def test_a_team_is_deleted_with_its_budgets(world: World) -> None:
    await world.admin.call("team.create", team="research")
    await set_budget(world, "team:research", tokens=10)
    await world.admin.call("team.delete", team="research")
    assert (await world.admin.call("budget.list"))["budgets"] == []


async def spent_shares(caller: Caller, subject: str = "tenant", period: str = "day", **which: Any) -> dict[str, Any]:
    """Return what was spent of the shares in a budget."""
    budgets = (await caller.call("budget.list", **which))["budgets"]
    budget = next(each for each in budgets if (each["subject"], each["period"]) == (subject, period))
    return {each["share"]: each["used_tokens"] for each in budget["shares"]}


async def report_twice(caller: Caller, tokens: int) -> None:
    """Assemble a prompt, and report twice its tokens: as much as a receipt allows."""
    told = await report(caller, await assemble(caller, model=MODEL), 2 * tokens, 0)
    assert told["held"] == []


@pytest.mark.both_databases
async def test_an_agent_spends_no_more_of_a_shared_budget_than_its_share(world: World) -> None:
    """Reports as high as a receipt allows spend the share of who reports them, and nothing of what others have."""
    used = (await first_prompt(world, model=MODEL))["tokens"]
    await set_budget(world, "tenant", tokens=100 * used, agent_share=0.2)
    while await outcome(report_twice(world.analysis, used)) == "ok":
        assert (await spend_of(world, "tenant"))["used_tokens"] <= 100 * used
    with refused("BUDGET_EXCEEDED") as caught:
        await assemble(world.analysis, model=MODEL)
    assert (caught.value.context["subject"], caught.value.context["share"]) == ("tenant", "agent:analysis")
    assert caught.value.context["limit_tokens"] == 20 * used
    assert "share of the agent 'analysis' in the budget of the tenant" in caught.value.message
    await assemble(world.review, model=MODEL)
    spent = await spent_shares(world.admin)
    assert spent["agent:review-2"] == used
    assert 20 * used - 2 * used <= spent["agent:analysis"] <= 20 * used
    assert (await spend_of(world, "tenant"))["used_tokens"] == sum(spent.values())
    told = await world.admin.call("events.read", after=0, types=["budget.exceeded"])
    assert [(each["subject"], each["data"]["share"]) for each in told["events"]] == [("tenant", "agent:analysis")]


@pytest.mark.both_databases
async def test_a_tree_of_agents_spends_no_more_than_its_share(world: World) -> None:
    """Agents below an agent do not multiply what it may spend."""
    used = (await first_prompt(world))["tokens"]
    other = await world.admin.create_agent("other")
    await world.admin.call("session.add_members", session_id=SESSION, members=["other"])
    await ingest(other, {"content": "A mooring at pier nine."})
    await set_budget(world, "tenant", tokens=6 * used, tree_share=0.5)
    passed = [await outcome(assemble(caller)) for caller in (world.analysis, world.review) * 3]
    assert set(passed[:2]) == {"ok"}
    assert passed[-1] == "BUDGET_EXCEEDED"
    with refused("BUDGET_EXCEEDED") as caught:
        await assemble(world.analysis)
    assert caught.value.context["share"] == "tree:planner"
    # What the whole tree spends is not told to one of it.
    assert "used_tokens" not in caught.value.context
    await assemble(other)
    assert (await spent_shares(world.admin)).keys() == {"tree:planner", "tree:other"}
    assert await spent_shares(world.analysis) == {"tree:planner": None}
    assert (await spent_shares(world.planner))["tree:planner"] > 0


async def test_the_trees_in_the_budget_of_an_agent_are_those_below_it(world: World) -> None:
    deep = await world.admin.create_agent("deep", parent_id="analysis")
    used = (await first_prompt(world))["tokens"]
    await set_budget(world, "agent:planner", tokens=100 * used, tree_share=0.5, agent_share=0.4)
    for caller in (deep, world.analysis, world.review, world.planner):
        await ingest(caller, {"content": "A mooring at pier nine."})
        await assemble(caller)
    spent = await spent_shares(world.admin, "agent:planner")
    assert spent.keys() == {
        "tree:analysis",
        "tree:review-2",
        "tree:planner",
        "agent:deep",
        "agent:analysis",
        "agent:review-2",
        "agent:planner",
    }
    assert spent["tree:analysis"] == spent["agent:deep"] + spent["agent:analysis"]


@pytest.mark.both_databases
async def test_new_shares_begin_with_what_was_spent_in_the_period(world: World) -> None:
    await first_prompt(world)
    first = await assemble(world.analysis)
    await assemble(world.review)
    await set_budget(world, "tenant", tokens=1_000_000)
    assert await spent_shares(world.admin) == {}
    await set_budget(world, "tenant", tokens=1_000_000, agent_share=0.5, tree_share=0.9)
    spent = await spent_shares(world.admin)
    assert spent["agent:analysis"] == first["tokens"]
    assert spent["tree:planner"] == spent["agent:analysis"] + spent["agent:review-2"]
    # A share that is only changed keeps its sums; one that is taken away has none.
    await set_budget(world, "tenant", tokens=1_000_000, agent_share=0.6)
    kept = {name: tokens for name, tokens in spent.items() if name.startswith("agent:")}
    assert await spent_shares(world.admin) == kept
    await world.admin.call("budget.delete", subject="tenant", period="day")
    assert await world.rows("SELECT 1 FROM budget_share_spend WHERE tenant = $1", world.tenant) == []


async def test_a_share_of_a_budget_that_warns_warns(world: World) -> None:
    used = (await first_prompt(world))["tokens"]
    await set_budget(world, "tenant", tokens=100 * used, agent_share=0.01, at_limit="warn")
    with collected_warnings() as warnings:
        await assemble(world.analysis)
    assert any("share of the agent 'analysis'" in each for each in warnings)
    downgraded = await set_budget(world, "tenant", tokens=100 * used, agent_share=0.01, at_limit="downgrade")
    assert downgraded["agent_share"] == 0.01
    answer = await assemble(world.analysis)
    assert answer["downgraded_by"] == [{"subject": "tenant", "period": "day", "share": "agent:analysis"}]


async def test_a_share_is_a_part(world: World) -> None:
    for wrong in (0, -0.1, 1.5):
        with refused("INVALID_INPUT_FORMAT"):
            await set_budget(world, "tenant", tokens=100, agent_share=wrong)
