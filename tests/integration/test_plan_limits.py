"""Every limit of the plans as one table: what fits passes, what exceeds is refused, also by many callers at once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from support.knowledge import QuickEmbedder, domain, embed_quickly, put
from support.world import SESSION, outcome, refused
from weft.capabilities.plans.model import ALLOWANCES, PLANS, Plan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from support.world import Caller, World

pytestmark = pytest.mark.req("CE-T", part="one table of limits by plan")

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


def report(by: str, days: int) -> Callable[[World, Plan], Awaitable[Any]]:
    def call(world: World, plan: Plan) -> Awaitable[Any]:
        del plan
        since = (world.clock.now() - timedelta(days=days)).isoformat()
        return world.admin.call("usage.report", by=by, since=since)

    return call


async def recommendations(world: World, plan: Plan) -> None:
    del world
    ALLOWANCES[plan].check_insight("recommendations")


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
    "alerts about efficiency": Row(alerts("efficiency.low"), LARGEST),
    "alerts about budgets": Row(alerts("budget.near"), ALL),
    "recommendations": Row(recommendations, LARGEST),
}


@pytest.mark.parametrize("plan", PLANS)
async def test_each_plan_allows_what_the_table_says(world: World, plan: Plan) -> None:
    await world.planner.write("goal", "tea at four")
    await world.planner.write("goal", "tea at five")
    await world.admin.call("team.create", team="research")
    await world.planner.call("window.create", session_id=SESSION)
    await world.app.tenants.set_plan(world.tenant, plan)
    found = {name: await outcome(row.call(world, plan)) for name, row in TABLE.items()}
    # Allowed: this model is the one in use.
    found = {name: "ok" if code == "MODEL_IN_USE" else code for name, code in found.items()}
    assert found == {name: "ok" if plan in row.allowed_by else REFUSED for name, row in TABLE.items()}


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
    assert caught.value.context == {"plan": "free", "limit_domains": 2}
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


async def test_a_nearly_used_quota_has_an_alert(world: World) -> None:
    async def states() -> list[tuple[str, str]]:
        query = "SELECT about, state FROM alerts WHERE tenant = $1 ORDER BY alert_id"
        return [(row[0], row[1]) for row in await world.rows(query, world.tenant)]

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
