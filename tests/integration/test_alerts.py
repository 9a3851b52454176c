"""Alerts: opened and resolved in the background, one of each condition, a digest for many agents, who sees them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.alerts import add_calls, alert_events, by_system, called, evaluate, listed, states
from support.assemblies import assemble
from support.world import refused
from weftline.app.dispatch import CallContext
from weftline.insight.alerts.model import DIGEST_CLEAR, DIGEST_FROM
from weftline.jobs.figures import PRUNE_ALERTS
from weftline.kernel.events import TENANT_SUBJECT, agent_subject, team_subject

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.req("CE-F15"),
    pytest.mark.req("CE-F46"),
    pytest.mark.req("CE-U6"),
]
LOW = {"count": 20, "fill": 0.3, "useful": 0.005}
FULL = {"count": 3, "fill": 0.9, "useful": 0.005}
GOOD = {"count": 20, "fill": 0.3, "useful": 0.6}
OVERLOAD, INEFFICIENT = "context.overload", "efficiency.low"


async def alert_id(caller: Caller, **filters: Any) -> str:
    (alert,) = (await caller.call("alerts.list", **filters))["alerts"]
    return alert["alert_id"]


@pytest.mark.req("CE-F15")
async def test_an_agent_that_fills_its_window_and_uses_two_percent_is_overloaded(world: World) -> None:
    await called(world, "analysis", count=3, fill=0.9, useful=0.02)
    assert await listed(world.admin) == [(OVERLOAD, "agent:analysis", "open")]
    await called(world, "review", count=20, fill=0.3, useful=0.02)
    assert await listed(world.admin) == [(OVERLOAD, "agent:analysis", "open")]
    await called(world, "analysis", count=20, fill=0.9, useful=0.15)
    assert await listed(world.admin) == []


async def test_an_alert_is_opened_once_and_resolved_when_its_condition_has_ended(world: World) -> None:
    await called(world, "analysis", **FULL)
    assert await listed(world.admin) == [(OVERLOAD, "agent:analysis", "open")]
    await called(world, "analysis", **FULL)
    await called(world, "analysis", count=5, fill=0.75, useful=0.005)
    assert await listed(world.admin) == [(OVERLOAD, "agent:analysis", "open")]
    (alert,) = (await world.admin.call("alerts.list"))["alerts"]
    assert alert["message"].startswith("Agent analysis fills 90% of its window and used 0.5% of")
    assert alert["data"]["receipt_id"].startswith("r_")
    await called(world, "analysis", **GOOD)
    assert await listed(world.admin) == []
    (alert,) = (await world.admin.call("alerts.list", state="resolved"))["alerts"]
    assert "resolved_by" not in alert
    assert await alert_events(world.admin) == [
        ("alert.opened", OVERLOAD, "agent:analysis"),
        ("alert.resolved", OVERLOAD, "agent:analysis"),
    ]


async def test_prompts_of_an_agent_become_an_alert(world: World) -> None:
    await world.admin.call("layer.define", layer="tenant", alerts={"calls": 3, "efficiency": 1, "window_fill": 0.001})
    await world.planner.write("goal", "Ship the importer. " * 200)
    for number in range(3):
        await world.planner.call(
            "context.ingest",
            session_id=world.planner.session,
            events=[{"event_id": f"e{number}", "content": "The weather was mild and nobody said much. " * 40}],
        )
        await assemble(world.planner, "Which database do we use?")
        await evaluate(world)
        assert len(await listed(world.admin)) == (2 if number == 2 else 0)
    (alert, _) = (await world.admin.call("alerts.list"))["alerts"]
    assert alert["data"]["calls"] == alert["data"]["estimated_calls"] == 3
    assert await world.planner.call("receipt.show", receipt_id=alert["data"]["receipt_id"])


async def test_low_efficiency_is_an_alert_after_enough_calls(world: World) -> None:
    await called(world, "analysis", **{**LOW, "count": 19})
    assert await listed(world.admin) == []
    await called(world, "analysis", **{**LOW, "count": 1})
    assert await listed(world.admin) == [(INEFFICIENT, "agent:analysis", "open")]
    # Between both thresholds, it stays.
    await called(world, "analysis", count=20, fill=0.3, useful=0.011)
    assert await listed(world.admin) == [(INEFFICIENT, "agent:analysis", "open")]
    await called(world, "analysis", **GOOD)
    assert await listed(world.admin) == []


async def test_figures_of_an_active_alert_are_updated_once_a_minute(world: World) -> None:
    await called(world, "analysis", **LOW)
    await called(world, "analysis", **{**LOW, "useful": 0.008})
    (alert,) = (await world.admin.call("alerts.list"))["alerts"]
    assert alert["data"]["efficiency"] == 0.005
    world.clock.advance(seconds=61)
    await called(world, "analysis", **{**LOW, "useful": 0.008})
    (later,) = (await world.admin.call("alerts.list"))["alerts"]
    assert later["data"]["efficiency"] == 0.008
    assert later["seen_at"] > alert["seen_at"]
    assert len(await alert_events(world.admin)) == 1


async def test_an_alert_is_acknowledged_and_resolved_by_someone(world: World) -> None:
    await called(world, "analysis", **LOW)
    wanted = await alert_id(world.admin)
    acknowledged = await world.planner.call("alerts.acknowledge", alert_id=wanted)
    assert (acknowledged["state"], acknowledged["acknowledged_by"]) == ("acknowledged", "orchestrator:planner")
    assert await world.admin.call("alerts.acknowledge", alert_id=wanted) == acknowledged
    resolved = await world.admin.call("alerts.resolve", alert_id=wanted)
    assert (resolved["state"], resolved["resolved_by"]) == ("resolved", "human:admin")
    assert await world.planner.call("alerts.resolve", alert_id=wanted) == resolved
    with refused("ALERT_RESOLVED"):
        await world.admin.call("alerts.acknowledge", alert_id=wanted)
    assert [kind for kind, _, _ in await alert_events(world.admin)] == [
        "alert.opened",
        "alert.acknowledged",
        "alert.resolved",
    ]
    actions = [row["action"] for row in await world.admin.audit(limit=200)]
    assert {"alerts.acknowledge", "alerts.resolve"} <= {*actions}


async def test_only_later_calls_open_a_resolved_alert_again(world: World) -> None:
    await called(world, "analysis", **LOW)
    await world.admin.call("alerts.resolve", alert_id=await alert_id(world.admin))
    await called(world, "analysis", **{**LOW, "count": 19})
    assert await listed(world.admin) == []
    await called(world, "analysis", **{**LOW, "count": 1})
    assert await listed(world.admin, state="all") == [
        (INEFFICIENT, "agent:analysis", "open"),
        (INEFFICIENT, "agent:analysis", "resolved"),
    ]


async def test_two_decisions_at_once_are_one(world: World) -> None:
    await called(world, "analysis", **LOW)
    wanted = await alert_id(world.admin)
    await asyncio.gather(*(world.admin.call("alerts.resolve", alert_id=wanted) for _ in range(4)))
    assert [kind for kind, _, _ in await alert_events(world.admin)] == ["alert.opened", "alert.resolved"]


async def test_alerts_are_seen_by_the_agent_those_above_it_and_admins(world: World) -> None:
    secret = await world.admin.create_agent("secret", kind="human", clearance=5)
    top = await world.admin.create_agent("top", parent_id="planner", clearance=4)
    human = await world.admin.create_agent("hana", kind="human", clearance=5, permissions=["read", "write"])
    await called(world, "analysis", "top", **LOW)
    both = {(INEFFICIENT, "agent:analysis", "open"), (INEFFICIENT, "agent:top", "open")}
    assert {*await listed(world.admin)} == both
    assert await listed(world.analysis) == [(INEFFICIENT, "agent:analysis", "open")]
    assert await listed(top) == [(INEFFICIENT, "agent:top", "open")]
    # The planner has a lower clearance than the agent below it.
    assert await listed(world.planner) == [(INEFFICIENT, "agent:analysis", "open")]
    for nobody in (world.review, world.stranger, secret, human):
        assert await listed(nobody) == []
    hidden = await alert_id(world.admin, agent_id="top")
    for caller in (world.planner, world.review, world.analysis, world.stranger, human):
        for operation in ("alerts.acknowledge", "alerts.resolve"):
            with refused("ALERT_NOT_FOUND"):
                await caller.call(operation, alert_id=hidden)
    with refused("PERMISSION_DENIED"):
        await top.call("alerts.resolve", alert_id=hidden)
    opened = ("alert.opened", INEFFICIENT, "agent:analysis")
    assert await alert_events(world.planner) == [opened]
    assert await alert_events(human) == []


async def test_an_admin_sees_alerts_up_to_its_clearance(world: World) -> None:
    low = await world.admin.create_agent("low", kind="human", clearance=2, permissions=["read", "write", "admin"])
    await called(world, "planner", "analysis", **LOW)
    assert await listed(low) == [(INEFFICIENT, "agent:analysis", "open")]
    assert [subject for _, _, subject in await alert_events(low)] == ["agent:analysis"]
    with refused("ALERT_NOT_FOUND"):
        await low.call("alerts.resolve", alert_id=await alert_id(world.admin, agent_id="planner"))


async def test_settings_are_inherited(world: World) -> None:
    await world.admin.call("layer.define", layer="tenant", alerts={"calls": 3, "efficiency": 0.5})
    await world.admin.call("agent.define", agent_id="planner", config={"alerts": {"enabled": False}})
    await world.admin.call("agent.define", agent_id="review-2", config={"alerts": {"enabled": True, "calls": 4}})
    await called(world, "planner", "analysis", "review-2", count=3, fill=0.3, useful=0.4)
    assert await listed(world.admin) == []
    await called(world, "review-2", count=1, fill=0.3, useful=0.4)
    assert await listed(world.admin) == [(INEFFICIENT, "agent:review-2", "open")]
    await world.admin.call("layer.define", layer="tenant", alerts={})
    await called(world, "review-2", count=1, fill=0.3, useful=0.4)
    assert await listed(world.admin) == []


@pytest.mark.parametrize("wrong", [{"window_fill": 2}, {"calls": 0}, {"calls": 1_000}, {"threshold": 0.5}])
async def test_settings_that_would_be_ignored_are_refused(world: World, wrong: dict[str, Any]) -> None:
    with refused("INVALID_INPUT_FORMAT"):
        await world.admin.call("agent.define", agent_id="analysis", config={"alerts": wrong})
    with refused("INVALID_INPUT_FORMAT"):
        await world.admin.call("layer.define", layer="tenant", alerts=wrong)


async def test_a_plan_without_alerts_watches_nothing_and_still_warns_of_its_limits(world: World) -> None:
    await world.app.tenants.set_plan(world.tenant, "pro")
    await called(world, "analysis", **LOW)
    await by_system(world, lambda alerts: alerts.raise_("quota.near", TENANT_SUBJECT, {"used": 9}, about="domains"))
    assert await listed(world.admin) == [("quota.near", "tenant", "open")]
    with refused("QUOTA_EXCEEDED"):
        await world.admin.call("alerts.list", condition=INEFFICIENT)
    await world.app.tenants.set_plan(world.tenant, "enterprise")
    await called(world, "analysis", **{**LOW, "count": 1})
    assert len(await listed(world.admin)) == 2


async def test_other_slices_raise_and_clear_alerts(world: World) -> None:
    legal = team_subject("legal")
    for about in ("daily", "daily", "monthly"):
        await by_system(
            world, lambda alerts, about=about: alerts.raise_("budget.near", legal, {"part": 0.8}, about=about)
        )
    assert await listed(world.admin) == [("budget.near", "team:legal", "open")] * 2
    assert await listed(world.planner) == []
    assert await by_system(world, lambda alerts: alerts.clear("budget.near", legal, about="daily"))
    assert not await by_system(world, lambda alerts: alerts.clear("budget.near", legal, about="daily"))
    assert (await world.admin.call("alerts.list"))["alerts"][0]["about"] == "monthly"
    assert [kind for kind, _, _ in await alert_events(world.admin)] == ["alert.opened"] * 2 + ["alert.resolved"]
    assert await alert_events(world.planner) == []


async def test_many_agents_are_in_one_digest(world: World) -> None:
    agents = [f"a{number:03}" for number in range(60)]
    for agent_id in agents:
        await world.admin.create_agent(agent_id)
    await called(world, *agents, **LOW)
    events = await alert_events(world.admin)
    assert len(events) == DIGEST_FROM + 1
    assert events[-1] == ("alert.opened", INEFFICIENT, "tenant")
    seen = (await world.admin.call("alerts.list", limit=200))["alerts"]
    assert len(seen) == DIGEST_FROM + 1
    (digest,) = [alert for alert in seen if alert.get("digest")]
    assert digest["message"] == "60 agents use little of what is in their prompts."
    inside = (await world.admin.call("alerts.list", digest_id=digest["alert_id"], limit=200))["alerts"]
    assert len(inside) == 40
    # More calls are no more news.
    await called(world, *agents, **LOW)
    assert len(await alert_events(world.admin)) == DIGEST_FROM + 1
    await called(world, *agents[:-DIGEST_CLEAR], **GOOD)
    assert [alert["subject"] for alert in (await world.admin.call("alerts.list"))["alerts"]] == [
        f"agent:{agent_id}" for agent_id in reversed(agents[-DIGEST_CLEAR:])
    ]
    events = (await alert_events(world.admin))[DIGEST_FROM + 1 :]
    assert len(events) == DIGEST_FROM + 1 + DIGEST_CLEAR
    assert events[DIGEST_FROM] == ("alert.resolved", INEFFICIENT, "tenant")


async def test_a_digest_is_resolved_with_its_alerts(world: World) -> None:
    agents = [f"a{number:03}" for number in range(DIGEST_FROM + 5)]
    own = [await world.admin.create_agent(agent_id) for agent_id in agents]
    await called(world, *agents, **LOW)
    # An agent in the digest sees its own alert, without an event.
    assert await listed(own[-1]) == [(INEFFICIENT, f"agent:{agents[-1]}", "open")]
    assert await alert_events(own[-1]) == []
    (digest,) = [each for each in (await world.admin.call("alerts.list"))["alerts"] if each.get("digest")]
    await world.admin.call("alerts.acknowledge", alert_id=digest["alert_id"])
    await world.admin.call("alerts.resolve", alert_id=digest["alert_id"])
    assert states(await listed(own[-1], state="all")) == ["resolved"]
    assert len(await listed(world.admin)) == DIGEST_FROM


async def test_an_agent_resolves_no_digest_with_an_alert_about_itself(world: World) -> None:
    agents = [f"a{number:03}" for number in range(DIGEST_FROM + 2)]
    *_, first, last = [
        await world.admin.create_agent(agent_id, permissions=["read", "write", "admin"]) for agent_id in agents
    ]
    other = await world.admin.create_agent("keeper", permissions=["read", "write", "admin"])
    await called(world, *agents, **LOW)
    (digest,) = [each for each in (await world.admin.call("alerts.list"))["alerts"] if each.get("digest")]
    for caller, operation in ((first, "alerts.resolve"), (last, "alerts.acknowledge")):
        with refused("PERMISSION_DENIED"):
            await caller.call(operation, alert_id=digest["alert_id"])
    await other.call("alerts.resolve", alert_id=digest["alert_id"])
    assert len(await listed(world.admin)) == DIGEST_FROM


async def test_a_killed_evaluation_is_repeated_and_changes_nothing_twice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_calls(world, "analysis", **LOW)
    real = type(world.app.alerts)._apply

    async def fail(*values: Any) -> None:
        await real(*values)
        raise RuntimeError("killed before the commit")

    with monkeypatch.context() as patched:
        patched.setattr(type(world.app.alerts), "_apply", fail)
        with pytest.raises(RuntimeError):
            await world.app.alerts.evaluate(await only_work(world))
    assert await listed(world.admin) == []
    await evaluate(world)
    other = await world.another_app()
    await other.scheduler.drain("alerts.evaluate")
    assert len(await alert_events(world.admin)) == 1


async def only_work(world: World) -> Any:
    (work,) = [each for each in await world.app.alerts.due(None) if each.tenant == world.tenant]  # type: ignore[arg-type]
    return work


async def test_alerts_of_silent_agents_are_resolved_and_old_ones_deleted(world: World) -> None:
    await called(world, "analysis", **LOW)
    await by_system(world, lambda alerts: alerts.raise_("budget.near", agent_subject("analysis"), {}))
    world.clock.advance(days=8)
    await world.app.scheduler.drain(PRUNE_ALERTS)
    assert await listed(world.admin) == [("budget.near", "agent:analysis", "open")]
    assert len(await listed(world.admin, state="resolved")) == 1
    world.clock.advance(days=91)
    await world.app.scheduler.drain(PRUNE_ALERTS)
    assert await listed(world.admin, state="resolved") == []


async def test_pages_follow_each_other(world: World) -> None:
    await called(world, "analysis", "planner", "review-2", **LOW)
    first = await world.admin.call("alerts.list", limit=2)
    rest = await world.admin.call("alerts.list", limit=2, cursor=first["next_cursor"])
    assert len(first["alerts"]) == 2
    assert len(rest["alerts"]) == 1
    assert "next_cursor" not in rest
    with refused("INVALID_INPUT_FORMAT"):
        await world.admin.call("alerts.list", cursor="approval_1")


async def test_a_bound_connection_has_no_alerts(world: World) -> None:
    context = CallContext(world.analysis.credential, session_id="s1")
    with refused("BOUND_TO_SESSION"):
        await world.app.call(world.app.registry["alerts.list"], {}, context)
