"""Usage reports agree with receipts and with what providers report, and one caller cannot blur those of others."""

from __future__ import annotations

import csv
import secrets
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.assemblies import assemble, receipt
from support.full_run import examples
from support.scripted_provider import FORMS, Answer, scripted_provider
from support.world import SESSION, outcome
from weftline.jobs.figures import ROLL_UP
from weftline.kernel.clock import to_micros
from weftline.models.language_models import wire_forms
from weftline.models.metering import CALL_KINDS, MAX_KEYS, NewUsageEntry, UsageKey, UsageSums, max_rows
from weftline.models.sql import UsageStore
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from support.scripted_provider import ScriptedProvider
    from support.world import Caller, World
    from weftline.models.language_models.answer_usage import Usage

PATHS = {form: path for path, form in FORMS.items()}
MODELS: dict[Any, str] = {"openai_chat": "gpt-5-mini", "anthropic": "claude-sonnet-4-5"}
UNPRICED = "a-model-of-our-own"
SAVINGS = ("naive_baseline_tokens", "document_tokens", "engine_assembled_tokens", "cached_tokens")
REPORTED = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["analysis", "review"]),
        st.sampled_from([*MODELS.values(), UNPRICED, None]),
        st.integers(0, 60),
        st.sampled_from([None, 3_000]),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


async def usage(caller: Caller, by: str, **filters: Any) -> dict[str, Any]:
    found = await caller.call("usage.report", by=by, **filters)
    return {row["group"]: row for row in found["rows"]}


async def roll_up(world: World) -> None:
    await world.app.scheduler.drain(ROLL_UP)


@pytest.mark.both_databases
@pytest.mark.req("CE-F54")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(16), deadline=None)
@given(calls=CALLS)
async def test_savings_of_the_report_are_those_of_the_receipts(
    world: World, calls: list[tuple[str, str | None, int, int | None, bool]]
) -> None:
    session = f"s{secrets.token_hex(6)}"
    await world.planner.create_session(session, members=["*"])
    receipts: list[Any] = []
    for number, (agent, model, words, budget, rolled_up) in enumerate(calls):
        caller: Caller = getattr(world, agent).in_session(session)
        event = {"event_id": f"e{number}", "role": "user", "content": "The price cache is short. " * (words + 1)}
        await caller.call("context.ingest", session_id=session, events=[event])
        answer = await assemble(caller, model=model, token_budget=budget, fresh=number % 2 == 0)
        receipts.append(await receipt(caller, answer))
        if rolled_up:
            await roll_up(world)
    for by, name in (("session", "session_id"), ("agent", "agent_id"), ("model", "model")):
        rows = await usage(world.admin, by, session_id=session)
        assert rows.keys() == {each.get(name) or "" for each in receipts}
        for group, row in rows.items():
            saved = [each["savings"] for each in receipts if (each.get(name) or "") == group]
            assert row["calls"] == len(saved)
            assert {figure: row[figure] for figure in SAVINGS} == {
                figure: sum(each[figure] for each in saved) for figure in SAVINGS
            }
            naive, sent = row["naive_baseline_tokens"], row["engine_assembled_tokens"]
            assert row["savings_ratio"] == pytest.approx(1 - sent / naive, abs=1e-4)
            costs = [each["cost"] for each in saved if each.get("cost") is not None]
            assert row["unpriced_calls"] == len(saved) - len(costs)
            assert row["expected_cost"] == (pytest.approx(sum(costs), abs=1e-8) if costs else None)


async def _call_model(provider: ScriptedProvider, caller: Caller, form: Any, number: int) -> tuple[Any, Any]:
    """Assemble a prompt, send it to the provider, and report what it says; return the prompt and the metrics."""
    event = {
        "event_id": f"{form}{number}",
        "role": "user",
        "content": f"Step {number}. " + "The rule is strict. " * 700,
    }
    await caller.call("context.ingest", session_id=SESSION, events=[event])
    prompt = await assemble(caller, f"Step {number}.", model=MODELS[form], form=form)
    async with httpx2.AsyncClient(base_url=provider.url) as client:
        answered = await client.post(PATHS[form], content=wire_forms.encode_body(prompt["body"]))
    assert answered.status_code == 200, answered.text
    where = {"session_id": SESSION, "receipt_id": prompt["receipt_id"]}
    return prompt, await caller.call("context.emit_metrics", **where, usage=answered.json()["usage"], latency_ms=250)


@pytest.mark.both_databases
@pytest.mark.req("CE-M")
@pytest.mark.parametrize("form", sorted(MODELS))
async def test_the_usage_that_a_provider_reports_is_what_the_report_says(world: World, form: Any) -> None:
    answers = [Answer(output_tokens=5 + number) for number in range(3)]
    async with scripted_provider(*answers, now=lambda: 0.0) as provider:
        made = [await _call_model(provider, world.analysis, form, number) for number in range(3)]
        usages: list[Usage] = [call.usage for call in provider.calls if call.usage is not None]
    assert sum(each.cache_read_tokens for each in usages) > 0
    for _ in range(2):
        row = (await usage(world.admin, "agent"))["analysis"]
        assert {name: row[name] for name in REPORTED} == {
            name: sum(getattr(each, name) for each in usages) for name in REPORTED
        }
        assert row["total_tokens"] == row["input_tokens"] + row["output_tokens"]
        assert (row["calls"], row["reported_calls"], row["unpriced_calls"], row["provider_ms"]) == (3, 3, 0, 250)
        assert row["cost"] == row["reported_cost"] == pytest.approx(sum(each["cost"] for _, each in made), abs=1e-8)
        # What was expected stays what it was: the report shows both.
        assert row["engine_assembled_tokens"] == sum(prompt["tokens"] for prompt, _ in made)
        await roll_up(world)
    exported = (await world.admin.call("usage.export"))["content"]
    (line,) = csv.DictReader(exported.splitlines())
    assert (line["agent"], line["session"], line["model"]) == ("analysis", SESSION, MODELS[form])
    assert {name: int(line[name]) for name in REPORTED} == {name: row[name] for name in REPORTED}


@pytest.mark.req("CE-M")
async def test_usage_that_differs_from_the_estimate_is_shown_as_such(world: World) -> None:
    prompt = await assemble(world.analysis, model=MODELS["anthropic"])
    reported = {"prompt_tokens": 2 * prompt["tokens"], "completion_tokens": 10}
    where = {"session_id": SESSION, "receipt_id": prompt["receipt_id"], "usage": reported}
    metrics = await world.analysis.call("context.emit_metrics", **where)
    assert (metrics["estimated_tokens"], metrics["deviation"]) == (prompt["tokens"], 1.0)
    row = (await usage(world.admin, "agent"))["analysis"]
    assert (row["engine_assembled_tokens"], row["input_tokens"]) == (prompt["tokens"], 2 * prompt["tokens"])
    assert row["cost"] == pytest.approx(metrics["cost"])
    assert row["cost"] > row["expected_cost"]


@pytest.mark.req("CE-M")
async def test_a_model_without_a_price_says_so(world: World) -> None:
    for model in (UNPRICED, MODELS["anthropic"]):
        prompt = await assemble(world.analysis, model=model)
        where = {"session_id": SESSION, "receipt_id": prompt["receipt_id"]}
        await world.analysis.call("context.emit_metrics", **where, usage={"input_tokens": 500, "output_tokens": 5})
    rows = await usage(world.admin, "model")
    assert (rows[UNPRICED]["cost"], rows[UNPRICED]["reported_cost"], rows[UNPRICED]["unpriced_calls"]) == (
        None,
        None,
        1,
    )
    whole = (await usage(world.admin, "tenant"))[""]
    assert (whole["cost"], whole["unpriced_calls"]) == (rows[MODELS["anthropic"]]["cost"], 1)


async def _add(world: World, *keys: UsageKey) -> None:
    at = to_micros(world.clock.now())
    entries = [
        NewUsageEntry("call", f"c{number}", at, key, UsageSums(calls=1, total_tokens=1))
        for number, key in enumerate(keys)
    ]
    for start in range(0, len(entries), 500):
        batch = entries[start : start + 500]
        await world.app.database.write(Scope(world.tenant), lambda tx, batch=batch: UsageStore(tx).add(*batch))  # type: ignore[misc]
    await roll_up(world)


@pytest.mark.both_databases
async def test_one_agent_with_many_names_leaves_those_of_others_alone(world: World) -> None:
    """An agent makes up sessions, steps and models; the calls of others keep their names, and rows are bounded."""
    many = 2 * MAX_KEYS["day"]
    await _add(world, *(UsageKey("assembly", "analysis", f"s{n}", f"step{n}", f"model-{n}") for n in range(many)))
    await _add(world, UsageKey("assembly", "review-2", SESSION, "plan", "gpt-5"))
    by_agent = await usage(world.admin, "agent")
    assert {name: row["calls"] for name, row in by_agent.items()} == {"analysis": many, "review-2": 1}
    assert (await usage(world.review, "model"))["gpt-5"]["calls"] == 1
    assert (await usage(world.review, "session"))[SESSION]["calls"] == 1
    for unit, rows in await world.rows(
        "SELECT unit, COUNT(*) FROM usage_rollups WHERE tenant = $1 GROUP BY unit", world.tenant
    ):
        assert rows <= max_rows(unit)


async def test_more_agents_than_an_interval_has_names_for_add_up_as_others(world: World) -> None:
    agents, named = 5 * MAX_KEYS["minute"], max_rows("minute") - len(CALL_KINDS)
    await _add(world, *(UsageKey("assembly", f"agent{n}", f"s{n}", "", "gpt-5") for n in range(agents)))
    now = world.clock.now().isoformat()
    rows = await usage(world.admin, "agent", since=now, until=now, limit=1_000)
    assert sum(row["calls"] for row in rows.values()) == agents
    assert rows["(other)"]["calls"] == agents - named


async def test_late_reports_of_many_days_are_rolled_up_in_small_transactions(world: World) -> None:
    """Each interval costs the reading of its keys, so that a transaction has few of them."""
    now, day = to_micros(world.clock.now()), 86_400_000_000
    key = UsageKey("assembly", "analysis", SESSION, "", "gpt-5")
    entries = [NewUsageEntry("call", f"c{n}", now - n * day, key, UsageSums(calls=1)) for n in range(30)]
    scope, database = Scope(world.tenant), world.app.database
    await database.write(scope, lambda tx: UsageStore(tx).add(*entries))
    sizes = []
    while added := await database.write(scope, lambda tx: UsageStore(tx).roll_up(200)):
        sizes.append(len(added))
    assert (max(sizes), sum(sizes)) == (4, 30)
    assert (await usage(world.admin, "agent"))["analysis"]["calls"] == 30


async def test_the_job_goes_on_until_everything_is_rolled_up(world: World) -> None:
    now, day = to_micros(world.clock.now()), 86_400_000_000
    key = UsageKey("assembly", "analysis", SESSION, "", "gpt-5")
    entries = [NewUsageEntry("call", f"c{n}", now - n * day, key, UsageSums(calls=1)) for n in range(30)]
    await world.app.database.write(Scope(world.tenant), lambda tx: UsageStore(tx).add(*entries))
    await roll_up(world)
    ((last, rolled_up_to),) = await world.rows(
        "SELECT t.usage_seq, c.rolled_up_to FROM tenants t JOIN usage_cursors c ON c.tenant = t.tenant "
        "WHERE t.tenant = $1",
        world.tenant,
    )
    assert last == rolled_up_to == 30


@pytest.mark.both_databases
@pytest.mark.req("CE-M")
async def test_usage_of_a_tenant_is_hidden_from_others(world: World) -> None:
    await assemble(world.analysis, model=MODELS["anthropic"])
    for _ in range(2):
        report = await world.stranger.call("usage.report", by="agent")
        assert (report["rows"], report["total"]["calls"]) == ([], 0)
        assert (await world.stranger.call("usage.export"))["rows"] == 0
        await roll_up(world)
    assert await outcome(usage(world.stranger, "agent", agent_id="analysis")) == "PERMISSION_DENIED"
    assert await outcome(usage(world.stranger, "agent", session_id=SESSION)) == "SESSION_NOT_FOUND"
    # Neither a filter nor a grouping shows the usage of a sibling.
    for by in ("session", "step", "model", "team", "kind", "day", "tenant"):
        assert await usage(world.review, by, model=MODELS["anthropic"]) == {}
