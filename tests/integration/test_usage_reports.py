"""Usage of model calls: what each cost, added up exactly by agent, team, session, step, model and time."""

from __future__ import annotations

import asyncio
import csv
import random
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from support.assemblies import assemble, ingest
from support.teams import create_team
from support.world import SESSION, outcome, refused
from weftline.jobs.figures import PRUNE_USAGE, ROLL_UP
from weftline.kernel.clock import to_micros
from weftline.models.metering import NewUsageEntry, UsageKey, UsageQuery, UsageSums
from weftline.models.sql import UsageStore
from weftline.providers.prices import PriceTable
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from support.world import Caller, World
    from weftline.kernel.transaction import Transaction

MODEL, OTHER_MODEL = "claude-sonnet-4-5", "gpt-5-mini"
EVERY = ["read", "write", "admin"]
USAGE = {"input_tokens": 900, "output_tokens": 50, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 0}


async def prompt(caller: Caller, **options: Any) -> Any:
    return await assemble(caller, **{"model": MODEL, **options})


async def report(caller: Caller, answer: Any, **fields: Any) -> Any:
    return await caller.call(
        "context.emit_metrics", session_id=SESSION, receipt_id=answer["receipt_id"], **{"usage": USAGE, **fields}
    )


async def usage(caller: Caller, by: str, **filters: Any) -> dict[str, Any]:
    found = await caller.call("usage.report", by=by, **filters)
    return {row["group"]: row for row in found["rows"]}


async def roll_up(world: World) -> None:
    await world.app.scheduler.drain(ROLL_UP)


@pytest.mark.both_databases
@pytest.mark.req("CE-M")
@pytest.mark.req("CE-F54")
async def test_calls_and_reports_add_up_before_and_after_they_are_rolled_up(world: World) -> None:
    await create_team(world.admin, "research", "analysis")
    await ingest(world.analysis, {"content": "The price cache is too short. " * 50})
    first, second = await prompt(world.analysis), await prompt(world.analysis)
    third = await prompt(world.planner, model="unknown-model")
    reported = await report(world.analysis, first, latency_ms=800, quality_score=0.5)
    savings = (await world.admin.call("receipt.savings", by="tenant"))["rows"][0]
    for _ in range(2):
        whole = await world.admin.call("usage.report", by="tenant")
        (row,) = whole["rows"]
        assert {"group": "", **whole["total"]} == row
        assert (row["calls"], row["reported_calls"], row["unpriced_calls"]) == (3, 1, 1)
        for name in ("naive_baseline_tokens", "document_tokens", "engine_assembled_tokens", "input_tokens"):
            assert row[name] == savings[name]
        assert row["naive_cost"] == pytest.approx(savings["naive_cost"])
        assert row["expected_cost"] == pytest.approx(savings["cost"])
        assert row["reported_cost"] == pytest.approx(reported["cost"])
        assert row["total_tokens"] == 1_050 + second["tokens"] + third["tokens"]
        assert row["cost"] == pytest.approx(reported["cost"] + second["savings"]["cost"])
        by_agent = await usage(world.admin, "agent")
        assert {agent: each["calls"] for agent, each in by_agent.items()} == {"analysis": 2, "planner": 1}
        assert (by_agent["analysis"]["provider_ms"], by_agent["analysis"]["quality_score"]) == (800, 0.5)
        assert by_agent["planner"]["cost"] is None
        assert (await usage(world.admin, "team"))["research"]["calls"] == 2
        assert set(await usage(world.admin, "model")) == {MODEL, "unknown-model"}
        assert set(await usage(world.admin, "day", agent_id="analysis")) == {"2026-02-20T00:00:00Z"}
        await roll_up(world)
    assert (await usage(world.admin, "kind"))["assembly"]["scored_calls"] == 3


@pytest.mark.req("CE-M")
async def test_a_report_of_another_model_moves_the_call_there(world: World) -> None:
    first, second = await prompt(world.analysis), await prompt(world.analysis)
    await roll_up(world)
    await report(world.analysis, first, model=OTHER_MODEL)
    await report(world.analysis, first, model=OTHER_MODEL)
    for _ in range(2):
        by_model = await usage(world.admin, "model")
        assert {name: each["calls"] for name, each in by_model.items()} == {MODEL: 1, OTHER_MODEL: 1}
        assert by_model[OTHER_MODEL]["input_tokens"] == 1_000
        assert by_model[MODEL]["total_tokens"] == second["tokens"]
        await roll_up(world)


@pytest.mark.both_databases
@pytest.mark.req("CE-M")
async def test_the_same_report_counts_once_whatever_the_price_is_by_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = await prompt(world.analysis)
    first = await asyncio.gather(*(report(world.analysis, answer) for _ in range(4)))
    rates = PriceTable.rates

    def dearer(self: PriceTable, *given: Any) -> Any:
        found = rates(self, *given)
        assert found is not None
        return structs.replace(found, input=found.input * 2)

    monkeypatch.setattr(PriceTable, "rates", dearer)
    world.clock.advance(days=1)
    again = await report(world.analysis, answer)
    assert [each["cost"] for each in first] == [again["cost"]] * 4
    with refused("USAGE_CONFLICT"):
        await report(world.analysis, answer, usage={**USAGE, "output_tokens": 51})
    row = (await usage(world.admin, "model"))[MODEL]
    assert (row["calls"], row["reported_calls"], row["output_tokens"], row["cost"]) == (1, 1, 50, again["cost"])
    assert len(await world.rows("SELECT seq FROM usage_entries WHERE tenant = $1", world.tenant)) == 2


async def test_prices_are_read_before_a_report_takes_the_writer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = await prompt(world.analysis)
    steps: list[str] = []
    rates = PriceTable.rates

    async def load(_: PriceTable) -> None:
        steps.append("load")

    def found(self: PriceTable, *given: Any) -> Any:
        steps.append("rates")
        return rates(self, *given)

    monkeypatch.setattr(PriceTable, "load", load)
    monkeypatch.setattr(PriceTable, "rates", found)
    await report(world.analysis, answer)
    assert steps[:2] == ["load", "rates"]


@pytest.mark.req("CE-F45")
async def test_the_fill_of_a_window_is_that_of_the_receipts_whatever_the_budget_of_a_prompt(world: World) -> None:
    answers = [await prompt(world.analysis, token_budget=tokens, fresh=True) for tokens in (2_000, 50_000)]
    shown = [await world.analysis.call("receipt.show", receipt_id=each["receipt_id"]) for each in answers]
    windows = sum(each["limits"]["window_tokens"] for each in shown)
    assert windows > 100_000
    row = (await usage(world.admin, "agent"))["analysis"]
    assert row["window_fill"] == pytest.approx(sum(each["tokens"] for each in answers) / windows, abs=1e-4)


async def test_callers_see_their_own_usage_and_that_of_agents_below_them(world: World) -> None:
    await prompt(world.analysis)
    await prompt(world.review)
    assert set(await usage(world.analysis, "agent")) == {"analysis"}
    assert set(await usage(world.planner, "agent")) == {"analysis", "review-2"}
    assert set(await usage(world.admin, "agent")) == {"analysis", "review-2"}
    assert set(await usage(world.admin, "agent", agent_id="review-2")) == {"review-2"}
    with refused("PERMISSION_DENIED"):
        await usage(world.analysis, "agent", agent_id="review-2")
    assert await outcome(usage(world.analysis, "agent", agent_id="nobody")) == "PERMISSION_DENIED"
    assert await outcome(usage(world.analysis, "agent", session_id="nowhere")) == "SESSION_NOT_FOUND"
    exported = await world.analysis.call("usage.export", form="json")
    assert (exported["rows"], '"agent":"analysis"' in exported["content"]) == (1, True)


@pytest.mark.req("WX-05")
async def test_sessions_of_others_in_which_an_agent_below_works_are_not_named(world: World) -> None:
    """The planner is no member of a session of the admin's, in which its sub-agent works."""
    await world.admin.create_session("merger-talks", members=["analysis"])
    for session_id in (SESSION, "merger-talks"):
        await prompt(world.analysis.in_session(session_id))
    for caller in (world.planner, world.analysis, world.admin):
        shown = [
            await caller.call("usage.report", by="session"),
            await caller.call("usage.export", form="json"),
            await caller.call("receipt.savings", by="session", agent_id="analysis"),
            await caller.call("receipt.list", agent_id="analysis"),
        ]
        named = ["merger-talks" in str(each) for each in shown]
        assert named == [caller is not world.planner] * 4
    rows = await usage(world.planner, "session")
    assert {name: row["calls"] for name, row in rows.items()} == {SESSION: 1, "(other)": 1}
    savings = (await world.planner.call("receipt.savings", by="session", agent_id="analysis"))["rows"]
    assert {row["group"]: row["calls"] for row in savings} == {SESSION: 1, "(other)": 1}
    assert len((await world.planner.call("receipt.list", agent_id="analysis"))["receipts"]) == 1


async def test_agents_above_the_clearance_of_an_admin_are_left_out(world: World) -> None:
    await prompt(world.analysis)
    await prompt(world.review)
    await roll_up(world)
    hidden = UsageQuery("agent", max_clearance=0)
    found = await world.app.database.read(Scope(world.tenant), lambda tx: UsageStore(tx).totals(hidden))
    above = {each["agent_id"] for each in (await world.admin.call("agent.list"))["agents"] if each["clearance"] > 0}
    assert {each.group for each in found.groups} == {"analysis", "review-2"} - above


@pytest.mark.both_databases
async def test_a_deleted_session_leaves_its_sums_without_its_name(world: World) -> None:
    await prompt(world.analysis)
    await roll_up(world)
    await prompt(world.analysis)
    before = (await usage(world.admin, "tenant"))[""]
    await world.admin.call("session.delete", session_id=SESSION, force=True)
    await roll_up(world)
    assert (await usage(world.admin, "tenant"))[""] == before
    assert {name: row["calls"] for name, row in (await usage(world.admin, "session")).items()} == {"(deleted)": 2}


async def test_usage_is_exported_as_csv_with_a_header_once(world: World) -> None:
    await prompt(world.analysis)
    await roll_up(world)
    await prompt(world.review)
    page = await world.admin.call("usage.export")
    rows = list(csv.DictReader(page["content"].splitlines()))
    assert [(row["start"], row["agent"], row["calls"]) for row in rows] == [
        ("2026-02-20T00:00:00Z", "analysis", "1"),
        ("2026-02-20T00:00:00Z", "review-2", "1"),
    ]
    assert "next_cursor" not in page or page["next_cursor"] is None


@pytest.mark.req("CE-T", part="dashboards")
async def test_a_free_plan_has_the_basic_report_of_a_week(world: World) -> None:
    await prompt(world.analysis)
    await world.app.tenants.set_plan(world.tenant, "free")
    assert set(await usage(world.admin, "agent")) == {"analysis"}
    for by, filters in (("model", {}), ("agent", {"since": "2026-01-01"})):
        assert await outcome(usage(world.admin, by, **filters)) == "QUOTA_EXCEEDED"
    assert await outcome(world.admin.call("usage.export")) == "QUOTA_EXCEEDED"


async def test_prometheus_has_usage_with_bounded_labels(world: World) -> None:
    await report(world.analysis, await prompt(world.analysis))
    await prompt(world.analysis, model="secret-of-a-caller")
    await roll_up(world)
    lines = world.app.metrics.exposition().decode()
    assert 'weftline_model_calls_total{kind="assembly",model="claude-sonnet-4' in lines
    assert 'weftline_model_calls_total{kind="assembly",model="other"} 1.0' in lines
    assert "secret-of-a-caller" not in lines


async def test_counters_of_prometheus_only_grow(world: World) -> None:
    """A report below the estimate, of another model, corrects the usage report and lowers no counter."""
    answer = await prompt(world.analysis)
    await roll_up(world)
    before = _counters(world)
    usage_below = {"input_tokens": 1, "output_tokens": 1}
    await report(world.analysis, answer, usage=usage_below, model=OTHER_MODEL)
    await roll_up(world)
    after = _counters(world)
    assert before
    assert {name: after[name] for name in before if after[name] < before[name]} == {}
    assert after['weftline_model_tokens_total{kind="assembly",model="gpt-5-*",tokens="input"}'] == 1


def _counters(world: World) -> dict[str, float]:
    lines = world.app.metrics.exposition().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line.startswith("weftline_model_"))
    return {name: float(value) for name, value in pairs if "_created" not in name}


async def test_what_is_past_the_retention_of_the_plan_is_removed(world: World) -> None:
    await prompt(world.analysis)
    await roll_up(world)
    world.clock.advance(days=20)
    await prompt(world.analysis)
    await roll_up(world)
    await world.app.scheduler.drain(PRUNE_USAGE)
    assert (await usage(world.admin, "tenant"))[""]["calls"] == 2
    assert len(await usage(world.admin, "minute")) == 1
    await world.app.tenants.set_plan(world.tenant, "free")
    world.clock.advance(days=1)
    await world.app.scheduler.drain(PRUNE_USAGE)
    assert len(await usage(world.admin, "agent", since="2026-03-10")) == 1


@pytest.mark.both_databases
@pytest.mark.req("CE-M")
async def test_sums_are_exact_with_writers_and_roll_ups_at_once_and_kills_between(world: World) -> None:
    """Entries are added and rolled up concurrently, and roll-ups die before their commit."""
    rng = random.Random(20)
    database, scope, now = world.app.database, Scope(world.tenant), to_micros(world.clock.now())
    added: list[NewUsageEntry] = []

    async def write(writer: int) -> None:
        for number in range(8):
            key = UsageKey("assembly", f"agent{writer % 3}", SESSION, "", MODEL)
            sums = UsageSums(calls=1, total_tokens=rng.randrange(1_000), cost_nanos=rng.randrange(10**12))
            entry = NewUsageEntry("call", f"c{writer}-{number}", now - rng.randrange(10**11), key, sums)
            await database.write(scope, lambda tx, entry=entry: UsageStore(tx).add(entry))  # type: ignore[misc]
            added.append(entry)

    async def roll_up_or_die(transaction: Transaction) -> None:
        await UsageStore(transaction).roll_up(rng.randrange(1, 6))
        if rng.random() < 0.4:
            raise asyncio.CancelledError

    async def roll_up_often() -> None:
        for _ in range(10):
            await asyncio.gather(database.write(scope, roll_up_or_die), return_exceptions=True)

    await asyncio.gather(*(write(writer) for writer in range(4)), roll_up_often(), roll_up_often())
    for _ in range(2):
        for by, name in (("tenant", lambda _: ""), ("agent", lambda each: each.key.agent_id)):
            found = await database.read(scope, lambda tx, by=by: UsageStore(tx).totals(UsageQuery(by)))  # type: ignore[misc]
            expected: dict[str, UsageSums] = {}
            for each in added:
                expected[name(each)] = expected.get(name(each), UsageSums()).plus(each.sums)
            assert {each.group: each.sums for each in found.groups} == expected
        await roll_up(world)


@pytest.mark.both_databases
async def test_steps_of_others_have_no_name_in_the_usage_of_an_agent(world: World) -> None:
    chief = await world.admin.create_agent("chief", kind="human", permissions=EVERY, clearance=4)
    tools = ["assemble_context"]
    await chief.call("step.define", name="merger-with-initech", tools=tools, shared_with="tree")
    await world.planner.call("step.define", name="planning", tools=tools)
    await world.admin.call("step.define", name="common", tools=tools, shared_with="tenant")
    hidden = (await chief.with_token("chief", step="merger-with-initech", requested_permissions=EVERY)).in_session(
        SESSION
    )
    await prompt(hidden, agent_id="planner")
    for step in ("planning", "common"):
        await prompt((await world.planner.with_token("planner", "planning", step=step)).in_session(SESSION))
    for _ in range(2):
        assert set(await usage(world.planner, "step")) == {"planning", "common", "(other)"}
        exported = (await world.planner.call("usage.export"))["content"]
        assert ("planning" in exported, "initech" in exported) == (True, False)
        assert set(await usage(world.admin, "step")) == {"planning", "common", "merger-with-initech"}
        await roll_up(world)


async def test_steps_of_agents_below_have_names(world: World) -> None:
    lead = await world.admin.create_agent("lead", kind="human", clearance=3)
    worker = await world.admin.create_agent("worker", parent_id="lead", clearance=2)
    session = (await worker.call("session.create", purpose="work"))["session_id"]
    await worker.call("step.define", name="working", tools=["assemble_context"])
    await prompt((await worker.with_token("worker", step="working")).in_session(session))
    assert set(await usage(lead, "step")) == {"working"}
