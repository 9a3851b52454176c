"""Every limit of the plans as one table: what fits passes, what exceeds is refused, also by many callers at once.

The rows are those of section 11 of the requirements, and limits of this product that bound the work of one call.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest

from support.assemblies import ingest
from support.contexts import knowledge_entry, push
from support.knowledge import QuickEmbedder, domain, embed_quickly, put
from support.processes import outcomes_in_processes
from support.world import SESSION, outcome, refused
from weftline.access.plans import ALLOWANCES, LIMITS, PLANS, Plan
from weftline.kernel.errors import QuotaExceeded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from support.processes import Attempt
    from support.world import Caller, World

pytestmark = pytest.mark.req("CE-T")

REFUSED = "QUOTA_EXCEEDED"


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> QuickEmbedder:
    return embed_quickly(monkeypatch)


class Row(NamedTuple):
    """A limit of a new session, or a switch: the call within and beyond it, and the plans that allow the latter."""

    call: Callable[[World, Plan], Awaitable[Any]]
    allowed_by: frozenset[Plan]


def session_with(field: str, limit: str, above: int) -> Callable[[World, Plan], Awaitable[Any]]:
    """Create a session with a setting at, or above, what the plan allows."""

    def call(world: World, plan: Plan) -> Awaitable[Any]:
        asked = getattr(ALLOWANCES[plan], limit) + above
        others = {"max_value_tokens": 1} if field == "max_total_tokens" else {}
        return world.planner.create_session(f"{field}-{above}".replace("_", "-"), **{field: asked, **others})

    return call


def report(by: str, days: int, name: str = "usage.report") -> Callable[[World, Plan], Awaitable[Any]]:
    def call(world: World, plan: Plan) -> Awaitable[Any]:
        del plan
        since = (world.clock.now() - timedelta(days=days)).isoformat()
        return world.admin.call(name, by=by, since=since)

    return call


def recommendations(world: World, plan: Plan) -> Awaitable[Any]:
    del plan
    return world.planner.call("advise.list")


def alerts(condition: str) -> Callable[[World, Plan], Awaitable[Any]]:
    return lambda world, _: world.admin.call("alerts.list", condition=condition)


def guardrail(layer: str) -> Callable[[World, Plan], Awaitable[Any]]:
    rule = {"name": "no-mail", "prohibited_action": ["mail.*"], "message": "No mail."}
    return lambda world, _: world.admin.call("layer.define", layer=layer, text="Be brief.", guardrails=[rule])


def agent_guardrail(world: World, plan: Plan) -> Awaitable[Any]:
    del plan
    rule = {"name": "no-mail", "prohibited_action": ["mail.*"], "message": "No mail."}
    return world.admin.call("agent.define", agent_id="analysis", role="Analyses", guardrails=[rule])


def rollback(world: World, plan: Plan) -> Awaitable[Any]:
    del plan
    return world.planner.call("history.rollback", context_id=f"board:{SESSION}", target_version="1")


async def rollback_of_a_sub_agent(world: World, plan: Plan) -> None:
    """Roll back with clearance 1: whatever the plan, it takes 3."""
    del plan
    call = world.analysis.call("history.rollback", context_id=f"board:{SESSION}", target_version="1")
    if await outcome(call) != "ok":
        raise QuotaExceeded("refused")


def compaction(strategy: str) -> Callable[[World, Plan], Awaitable[Any]]:
    return lambda world, _: world.planner.call("context.compact", session_id=SESSION, strategy=strategy, wait_seconds=0)


def search(**tuned: Any) -> Callable[[World, Plan], Awaitable[Any]]:
    return lambda world, _: world.planner.call("search.query", query="tea", **tuned)


def retention(world: World, plan: Plan) -> Awaitable[Any]:
    limit = ALLOWANCES[plan].versions
    return world.admin.call("history.set_retention", subject="board", versions=0 if limit is None else limit + 1)


async def other_model(world: World, plan: Plan) -> None:
    del plan
    model = (await world.admin.call("knowledge.list_models"))["models"][0]["model"]
    await world.admin.call("knowledge.start_model_migration", model=model)


ALL, PAID, LARGEST, NONE = frozenset(PLANS), frozenset(PLANS[1:]), frozenset(PLANS[2:]), frozenset[Plan]()
TABLE: dict[str, Row] = {
    "max_keys at the limit": Row(session_with("max_keys", "session_keys", 0), ALL),
    "max_keys above": Row(session_with("max_keys", "session_keys", 1), NONE),
    "max_total_tokens at the limit": Row(session_with("max_total_tokens", "session_tokens", 0), ALL),
    "max_total_tokens above": Row(session_with("max_total_tokens", "session_tokens", 1), NONE),
    "max_value_tokens above": Row(session_with("max_value_tokens", "value_tokens", 1), NONE),
    "keep_versions above": Row(retention, LARGEST),
    "rollback": Row(rollback, PAID),
    "rollback below clearance 3": Row(rollback_of_a_sub_agent, NONE),
    "default search": Row(search(), ALL),
    "tuned search": Row(search(min_score=0.1), PAID),
    "weighted search": Row(search(recency_weight=0.9), PAID),
    "choice of the embedding model": Row(other_model, LARGEST),
    "sliding window": Row(compaction("sliding_window"), ALL),
    "other compaction strategies": Row(compaction("key_facts"), LARGEST),
    "guardrails of the tenant": Row(guardrail("tenant"), LARGEST),
    "guardrails of a team": Row(guardrail("team:research"), PAID),
    "guardrails of an agent": Row(agent_guardrail, PAID),
    "basic usage report": Row(report("agent", 7), ALL),
    "older usage": Row(report("agent", 8), PAID),
    "full usage report": Row(report("model", 1), PAID),
    "basic savings": Row(report("agent", 7, "receipt.savings"), ALL),
    "older savings": Row(report("agent", 8, "receipt.savings"), PAID),
    "savings by session": Row(report("session", 1, "receipt.savings"), PAID),
    "alerts about efficiency": Row(alerts("efficiency.low"), LARGEST),
    "alerts about budgets": Row(alerts("budget.near"), ALL),
    "recommendations": Row(recommendations, LARGEST),
}


async def found_outcomes(world: World, plan: Plan) -> dict[str, str]:
    """Return what each row of the table answers."""
    found = {name: await outcome(row.call(world, plan)) for name, row in TABLE.items()}
    # Allowed: this model is the one in use.
    return {name: "ok" if code == "MODEL_IN_USE" else code for name, code in found.items()}


def expected_outcomes(plan: Plan) -> dict[str, str]:
    return {name: "ok" if plan in row.allowed_by else REFUSED for name, row in TABLE.items()}


async def prepare(world: World) -> None:
    await world.planner.write("goal", "tea at four")
    await world.planner.write("goal", "tea at five")
    await world.admin.call("team.create", team="research")
    await world.planner.call("window.create", session_id=SESSION)


@pytest.mark.parametrize("plan", PLANS)
async def test_each_plan_allows_what_the_table_says(world: World, plan: Plan) -> None:
    await prepare(world)
    await world.app.tenants.set_plan(world.tenant, plan)
    assert await found_outcomes(world, plan) == expected_outcomes(plan)


@pytest.mark.parametrize(("base", "like"), [("free", "enterprise"), ("enterprise", "free"), ("free", "pro")])
async def test_every_limit_can_be_set_for_a_tenant_alone(world: World, base: Plan, like: Plan) -> None:
    """With all limits of another plan, a tenant is allowed exactly what that plan allows."""
    await prepare(world)
    limits = msgspec.to_builtins(ALLOWANCES[like])
    await world.app.tenants.set_plan(world.tenant, base, **{name: limits[name] for name in LIMITS})
    assert await found_outcomes(world, like) == expected_outcomes(like)


class Quotas(NamedTuple):
    """Numbers of section 11; None is unlimited."""

    results: int | None
    versions: int | None
    snapshots: int | None
    domains: int | None
    bytes: int | None


GIBIBYTE = 2**30
NUMBERS: dict[str, Quotas] = {
    "free": Quotas(5, 10, 3, 1, GIBIBYTE),
    "pro": Quotas(20, 100, 50, 10, 50 * GIBIBYTE),
    "enterprise": Quotas(None, None, None, None, None),
    "custom": Quotas(7, 12, 4, 2, 5_000),
}


async def set_plan(world: World, name: str) -> None:
    """Set a plan; custom is pro with other numbers."""
    custom = name == "custom"
    await world.app.tenants.set_plan(
        world.tenant, "pro" if custom else name, **(NUMBERS[name]._asdict() if custom else {})
    )


async def made(make: Callable[[int], Awaitable[Any]], limit: int | None) -> int:
    """Return how many can be made, up to two more than the limit."""
    found = [await outcome(make(number)) for number in range((limit or 55) + 2)]
    assert found == sorted(found, reverse=True)  # ok until the limit, refused from then on
    assert set(found) <= {"ok", REFUSED}
    return found.count("ok")


@pytest.mark.parametrize("plan", NUMBERS)
async def test_each_plan_has_the_snapshots_and_domains_of_the_specification(world: World, plan: str) -> None:
    await set_plan(world, plan)
    limits = NUMBERS[plan]
    assert await made(lambda number: world.planner.snapshot(f"mark-{number}"), limits.snapshots) == (
        limits.snapshots or 57
    )
    assert await made(lambda number: domain(world.admin, f"domain-{number}"), limits.domains) == (limits.domains or 57)


@pytest.mark.parametrize("plan", NUMBERS)
async def test_each_plan_has_the_bytes_of_the_specification(world: World, plan: str) -> None:
    await set_plan(world, plan)
    await domain(world.admin)
    limit = NUMBERS[plan].bytes
    await world.sql("UPDATE domains SET bytes = $1 WHERE tenant = $2", (limit or 2**50) - 10, world.tenant)
    found = [await outcome(put(world.planner, f"{size}.md", "x" * size)) for size in (11, 10, 1)]
    assert found == (["ok"] * 3 if limit is None else [REFUSED, "ok", REFUSED])


@pytest.mark.parametrize("plan", NUMBERS)
async def test_each_plan_has_the_results_and_versions_of_the_specification(world: World, plan: str) -> None:
    many = await world.planner.create_session("many", keep_versions=1_000)
    for number in range(105):
        await many.write("goal", f"version {number}")
    for number in range(25):
        await world.planner.write(f"key{number}", f"Tea is served at {number} o'clock.")
    await world.index_sessions()
    await set_plan(world, plan)
    limits = NUMBERS[plan]
    answer = await world.planner.call("search.query", query="tea", low_confidence=True, top_k=25)
    assert len(answer["results"]) == (limits.results or 25)
    world.clock.advance(days=2)
    await world.app.pruner.run(world.tenant)
    states = [
        (await many.call("history.state", context_id="board:many", version=str(version), key="goal"))["entries"]
        for version in range(1, 106)
    ]
    assert sum(bool(entry["value"]) for entries in states for entry in entries) == (limits.versions or 105)


async def snapshot(caller: Caller, number: int) -> Any:
    return await caller.snapshot(f"mark-{number}")


async def new_domain(caller: Caller, number: int) -> Any:
    return await domain(caller, f"domain-{number}")


async def new_document(caller: Caller, number: int) -> Any:
    return await put(caller, f"note-{number}.md", "x" * 100)


# What a tenant may have several of: the limit in this test, how one more is made, and how many there are then.
COUNTED: dict[str, tuple[dict[str, int], Callable[[Caller, int], Awaitable[Any]]]] = {
    "snapshots": ({"snapshots": 3}, snapshot),
    "domains": ({"domains": 3}, new_domain),
    "bytes": ({"bytes": 350}, new_document),
}


@pytest.mark.both_databases
@pytest.mark.parametrize("quota", COUNTED)
async def test_callers_at_the_same_time_do_not_exceed_a_quota_together(world: World, quota: str) -> None:
    limits, make = COUNTED[quota]
    other = await world.another_app()
    if quota == "bytes":
        await domain(world.admin, "handbook")
    await world.app.tenants.set_plan(world.tenant, "pro", **limits)
    callers = [world.admin, world.admin.at(other)] if quota == "domains" else [world.planner, world.planner.at(other)]
    attempts = (make(callers[number % 2], number) for number in range(10))
    outcomes = await asyncio.gather(*map(outcome, attempts))
    assert sorted(outcomes) == [REFUSED] * 7 + ["ok"] * 3
    # A deleted one makes room again for exactly one.
    if quota == "snapshots":
        first = outcomes.index("ok")
        await world.planner.call("history.delete_snapshot", context_id=f"board:{SESSION}", label=f"mark-{first}")
        again = await asyncio.gather(*(outcome(snapshot(world.planner, number)) for number in (20, 21, 22)))
        assert sorted(again) == [REFUSED] * 2 + ["ok"]


# What each of several processes attempts many times: the limit, and the call with a number.
ATTEMPTS: dict[str, tuple[dict[str, int], Callable[[int], Attempt]]] = {
    "snapshots": (
        {"snapshots": 3},
        lambda number: ("board.snapshot", {"session_id": SESSION, "label": f"mark-{number}"}),
    ),
    "domains": ({"domains": 3}, lambda number: ("knowledge.create_domain", {"domain": f"domain-{number}"})),
    "bytes": (
        {"bytes": 350},
        lambda number: (
            "knowledge.add_document",
            {"domain": "handbook", "document_id": f"note-{number}.md", "text": "x" * 100},
        ),
    ),
    "memory_entries": (
        {"memory_entries": 3},
        lambda number: ("context.push", {"knowledge": [{"key": f"key{number}", "value": "x"}], "owner": "team:crew"}),
    ),
    "window_events": (
        {"window_events": 3},
        lambda number: (
            "context.ingest",
            {"session_id": SESSION, "events": [{"event_id": f"e{number}", "content": "Said."}]},
        ),
    ),
    "session_keys": (
        {"session_keys": 3},
        lambda number: ("board.write", {"session_id": "small", "key": f"key{number}", "value": "x"}),
    ),
}


@pytest.mark.both_databases
@pytest.mark.parametrize("quota", ATTEMPTS)
async def test_processes_at_the_same_time_do_not_exceed_a_quota_together(world: World, quota: str) -> None:
    limits, attempt = ATTEMPTS[quota]
    await domain(world.admin, "handbook") if quota == "bytes" else None
    await world.admin.call("team.create", team="crew")
    await world.admin.call("team.add_member", team="crew", agent_id="planner")
    await world.app.tenants.set_plan(world.tenant, "pro", **limits)
    await world.planner.create_session("small")
    caller = world.admin if quota == "domains" else world.planner
    calls = [[attempt(10 * process + number) for number in range(6)] for process in range(3)]
    outcomes = await outcomes_in_processes(caller, world, calls)
    refusals = {"STORE_FULL"} if quota == "session_keys" else {REFUSED}
    assert outcomes.count("ok") == 3
    assert {*outcomes} == {"ok", *refusals}


@pytest.mark.both_databases
async def test_keys_of_a_board_are_limited_at_the_same_time_too(world: World) -> None:
    await world.app.tenants.set_plan(world.tenant, "free", session_keys=3)
    await world.planner.create_session("small")
    callers = [world.planner.in_session("small"), world.planner.at(await world.another_app()).in_session("small")]
    attempts = (callers[number % 2].write(f"key{number}") for number in range(8))
    outcomes = await asyncio.gather(*map(outcome, attempts))
    assert outcomes.count("ok") == 3
    assert len(await callers[0].keys()) == 3


async def test_custom_limits_replace_those_of_the_plan(world: World) -> None:
    tenants = world.app.tenants
    await tenants.set_plan(world.tenant, "free", domains=2, rollback=True, bytes=None, insight=["alerts"])
    for name in ("one", "two"):
        await domain(world.admin, name)
    with refused(REFUSED) as caught:
        await domain(world.admin, "three")
    assert caught.value.context == {"plan": "free", "limit_domains": 2, "used_domains": 2}
    await world.planner.write("goal", "ship")
    await world.planner.write("goal", "stop")
    assert await outcome(rollback(world, "free")) == "ok"
    shown = await world.admin.call("plan.show")
    assert (shown["plan"], shown["custom"]) == ("free", ["bytes", "domains", "insight", "rollback"])
    assert (shown["limits"]["results"], shown["limits"]["insight"]) == (5, ["alerts"])
    assert shown["quotas"] == {"domains": {"used": 2, "allowed": 2}, "bytes": {"used": 0, "allowed": None}}
    for wrong in ({"gold": 1}, {"domains": -1}, {"domains": "many"}, {"session_keys": None}, {"insight": ["gossip"]}):
        with refused("INVALID_INPUT_FORMAT"):
            await tenants.set_plan(world.tenant, "free", **wrong)
    # Of another tenant nothing changed, and who may not see every domain does not learn how many there are.
    assert (await world.stranger.call("plan.show"))["custom"] == []
    chief = await world.admin.create_agent("chief", permissions=["read", "admin"], clearance=3)
    assert (await chief.call("plan.show"))["quotas"] == {}


async def test_a_refusal_names_the_plan_the_limit_and_what_is_used(world: World) -> None:
    limits = {"domains": 1, "snapshots": 1, "bytes": 100, "memory_entries": 1, "window_events": 1, "report_days": 7}
    await domain(world.admin)
    await put(world.planner, "a.md", "x" * 90)
    await world.planner.snapshot("one")
    await push(world.planner, knowledge_entry("a", "x"))
    await ingest(world.planner, {"content": "Said."})
    await world.app.tenants.set_plan(world.tenant, "pro", **limits)
    refusals = {
        "domains": (domain(world.admin, "two"), {"used_domains": 1}),
        "bytes": (put(world.admin, "b.md", "x" * 90), {"used_bytes": 90}),
        "snapshots": (world.planner.snapshot("two"), {"used_snapshots": 1, "agent_id": "planner"}),
        "memory_entries": (push(world.planner, knowledge_entry("b", "x"), if_version=1), {"used_memory_entries": 1}),
        "window_events": (
            world.planner.call("context.ingest", session_id=SESSION, events=[{"event_id": "e9", "content": "More."}]),
            {"used_window_events": 1},
        ),
        "report_days": (report("agent", 9)(world, "pro"), {"requested_report_days": 9}),
    }
    for limit, (call, used) in refusals.items():
        with refused(REFUSED) as caught:
            await call
        assert caught.value.context == {"plan": "pro", f"limit_{limit}": limits[limit], **used}
        assert "'pro'" in caught.value.message
        assert str(limits[limit]) in caught.value.message
    # Who cannot see every domain does not learn what they use together.
    with refused(REFUSED) as caught:
        await put(world.planner, "b.md", "x" * 90)
    assert caught.value.context == {"plan": "pro", "limit_bytes": 100}


async def test_a_full_memory_has_an_alert_until_entries_are_removed(world: World) -> None:
    await world.app.tenants.set_plan(world.tenant, "free", memory_entries=4, window_events=4)
    await world.admin.call("team.create", team="crew")
    await world.admin.call("team.add_member", team="crew", agent_id="planner")
    entries = [knowledge_entry(key, "x") for key in "abcd"]
    await push(world.planner, *entries)
    await push(world.planner, *entries, owner="team:crew")
    await ingest(world.planner, *({"content": f"Said {number}."} for number in range(4)))
    assert await alert_states(world) == [
        ("agent:planner", "memory_entries", "open"),
        ("team:crew", "memory_entries", "open"),
    ]
    events = (await world.planner.call("events.read", after=0, types=["quota.near"]))["events"]
    # A window ends with its session: there is an event, and nothing to resolve.
    assert [event["subject"] for event in events] == ["memory_entries", "memory_entries", "window_events"]
    for owner in ({}, {"owner": "team:crew"}):
        await world.planner.call("context.push", knowledge=[], remove=[{"key": "a"}], if_version=1, **owner)
    assert [state for *_, state in await alert_states(world)] == ["resolved", "resolved"]


async def test_there_is_a_warning_before_a_quota_is_reached(world: World) -> None:
    await world.app.tenants.set_plan(world.tenant, "free", domains=5, snapshots=5, bytes=1_000)
    for number in range(5):
        await domain(world.admin, f"domain{number}")
        await world.planner.snapshot(f"mark-{number}")
    await put(world.planner, "a.md", "x" * 790, domain="domain0")
    await put(world.planner, "b.md", "x" * 100, domain="domain0")
    await put(world.planner, "c.md", "x" * 100, domain="domain0")
    events = (await world.admin.call("events.read", after=0, types=["quota.near"]))["events"]
    assert [event["subject"] for event in events] == ["domains", "snapshots", "bytes"]
    assert events[0]["data"] == {"limit": "domains", "allowed": 5, "plan": "free", "part": 0.8}
    own = (await world.planner.call("events.read", after=0, types=["quota.near"]))["events"]
    assert [event["subject"] for event in own] == ["snapshots"]


async def alert_states(world: World) -> list[tuple[str, str, str]]:
    query = "SELECT subject, about, state FROM alerts WHERE tenant = $1 ORDER BY alert_id"
    return [(row[0], row[1], row[2]) for row in await world.rows(query, world.tenant)]


async def test_a_nearly_used_quota_has_an_alert(world: World) -> None:
    async def states() -> list[tuple[str, str]]:
        return [(about, state) for _, about, state in await alert_states(world)]

    await world.app.tenants.set_plan(world.tenant, "free", domains=2, snapshots=2, bytes=1_000)
    for name in ("one", "two"):
        await domain(world.admin, name)
        await world.planner.snapshot(name)
    await put(world.planner, "a.md", "x" * 900, domain="one")
    assert await states() == [("domains", "open"), ("snapshots", "open"), ("bytes", "open")]
    await world.planner.call("knowledge.delete_document", domain="one", document_id="a.md")
    await world.planner.call("history.delete_snapshot", context_id=f"board:{SESSION}", label="one")
    await world.admin.call("knowledge.delete_domain", domain="two")
    assert await states() == [("domains", "resolved"), ("snapshots", "resolved"), ("bytes", "resolved")]
