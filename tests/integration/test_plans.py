"""Limits of a tenant's plan on versions, snapshots, rollback, ranking and models; domains are in test_domains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.bundles import exported, imported
from support.contexts import knowledge_entry, push
from support.world import SESSION, refused

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("CE-T", part="all limits of what exists")

BOARD = f"board:{SESSION}"


@pytest.fixture
async def free(world: World) -> World:
    await world.app.tenants.set_plan(world.tenant, "free")
    return world


async def known_values(caller: Caller, context_id: str, key: str, versions: int) -> list[Any]:
    """Return the value of a key at each version of its line; None if it was pruned."""
    found = []
    for version in range(1, versions + 1):
        answer = await caller.call("history.state", context_id=context_id, version=str(version), key=key)
        found += [entry["value"] for entry in answer["entries"]]
    return found


async def prune(world: World) -> None:
    world.clock.advance(days=2)
    await world.app.pruner.run(world.tenant)


@pytest.mark.parametrize(("plan", "kept"), [("free", 10), ("pro", 15), ("enterprise", 15)])
async def test_a_plan_keeps_its_last_versions_of_each_key(world: World, plan: Any, kept: int) -> None:
    planner = await world.planner.create_session("many", keep_versions=1_000)
    await world.app.tenants.set_plan(world.tenant, plan)
    for number in range(15):
        await planner.write("goal", f"v{number}")
    await prune(world)
    assert [v for v in await known_values(planner, "board:many", "goal", 15) if v] == [
        f"v{number}" for number in range(15 - kept, 15)
    ]
    (log,) = [(await world.admin.call("history.prune_log"))["prunings"]]
    assert [each["rule"] for each in log] == (["board (plan free): 10 versions"] if plan == "free" else [])


async def test_pruning_by_the_plan_keeps_what_snapshots_and_pins_need(world: World) -> None:
    planner = await world.planner.create_session("many", keep_versions=1_000)
    for number in range(30):
        await planner.write("goal", f"v{number}")
        if number in {2, 5}:
            await planner.snapshot(f"mark{number}")
    await push(world.planner, knowledge_entry("fact", "old"))
    await world.planner.call("context.pull", session_id=SESSION)
    for number in range(12):
        version = (await world.planner.call("context.status"))["version"]
        await push(world.planner, knowledge_entry("fact", f"f{number}"), if_version=version)
    await world.app.tenants.set_plan(world.tenant, "free")
    # Lowering the plan loses nothing by itself, and never the current values, snapshots or what a session pinned.
    assert len([v for v in await known_values(planner, "board:many", "goal", 30) if v]) == 30
    await prune(world)
    kept = [v for v in await known_values(planner, "board:many", "goal", 30) if v]
    assert kept == ["v2", "v5", *(f"v{number}" for number in range(20, 30))]
    assert await planner.read_snapshot("mark2") == {"goal": "v2"}
    held = await world.planner.call("context.read", session_id=SESSION, key="fact")
    assert held["entries"][0]["value"] == "old"


async def test_retention_rules_stay_within_the_plan(free: World) -> None:
    rules = await free.planner.call("history.retention")
    assert (rules["plan"], rules["plan_versions"]) == ("free", 10)
    await free.admin.call("history.set_retention", subject="board", versions=10)
    await free.admin.call("history.set_retention", subject="board", days=30)
    for versions in (11, 0):
        with refused("QUOTA_EXCEEDED") as caught:
            await free.admin.call("history.set_retention", subject="board", versions=versions)
        assert caught.value.context == {"plan": "free", "limit_versions": 10, "requested_versions": versions}
    assert (await free.stranger.call("history.retention"))["plan"] == "enterprise"


async def test_a_session_cannot_demand_more_versions_than_the_plan_keeps(free: World) -> None:
    for versions in (11, 1_000):
        with refused("QUOTA_EXCEEDED") as caught:
            await free.planner.create_session("many", keep_versions=versions)
        assert caught.value.context == {"plan": "free", "limit_versions": 10, "requested_versions": versions}
    await free.planner.create_session("few", keep_versions=10)
    await free.planner.create_session("default")
    await free.app.tenants.set_plan(free.tenant, "enterprise")
    await free.planner.create_session("many", keep_versions=1_000)


async def test_a_plan_limits_the_named_snapshots_of_each_agent(free: World) -> None:
    planner = free.planner
    other = await planner.create_session("other")
    await planner.write("goal", "ship")
    await planner.snapshot("one")
    await other.snapshot("two")
    await planner.call("history.snapshot", context_id=BOARD, label="three")
    for call in (
        planner.snapshot("four"),
        planner.call("history.snapshot", context_id="board:other", label="four"),
        planner.call("history.snapshot", context_id="context:planner", label="four"),
    ):
        with refused("QUOTA_EXCEEDED") as caught:
            await call
        assert caught.value.context == {
            "plan": "free",
            "limit_snapshots": 3,
            "used_snapshots": 3,
            "agent_id": "planner",
        }
    # Others have their own, automatic ones do not count, and a deleted one makes room.
    await free.analysis.snapshot("mine")
    assert await planner.snapshots() == ["mine", "one", "three"]
    await planner.call("history.delete_snapshot", context_id=BOARD, label="one")
    await planner.snapshot("four")
    await free.app.tenants.set_plan(free.tenant, "pro")
    await planner.snapshot("five")
    await free.app.tenants.set_plan(free.tenant, "free")
    assert len(await planner.snapshots()) == 4
    with refused("QUOTA_EXCEEDED"):
        await planner.snapshot("six")


async def test_checkpoints_of_windows_count_for_their_agents(free: World) -> None:
    for caller in (free.planner, free.analysis):
        await caller.call("window.create", session_id=SESSION)
    for label in ("one", "two", "three"):
        made = await free.planner.call("window.checkpoint", session_id=SESSION, label=label)
        assert len(made["windows"]) == 2
    with refused("QUOTA_EXCEEDED"):
        await free.planner.call("window.checkpoint", session_id=SESSION, label="four")
    with refused("QUOTA_EXCEEDED"):
        await free.analysis.call("window.checkpoint", session_id=SESSION, label="four", agent_id="analysis")


async def test_imported_snapshots_count_for_the_importer(free: World) -> None:
    for number in range(4):
        await free.stranger.create_session(f"away{number}")
    away = free.stranger.in_session("away0")
    await away.write("goal", "ship")
    for label in ("one", "two", "three", "four"):
        await away.snapshot(label)
    bundle = await exported(away)
    with refused("QUOTA_EXCEEDED"):
        await imported(free.admin, bundle)
    await free.app.tenants.set_plan(free.tenant, "pro")
    await imported(free.admin, bundle)
    assert await free.admin.in_session("away0").snapshots() == ["four", "one", "three", "two"]


async def test_the_free_plan_has_no_rollback(free: World) -> None:
    planner = free.planner
    await planner.write("goal", "ship")
    await planner.snapshot("start")
    await planner.write("goal", "stop")
    await planner.call("window.create", session_id=SESSION)
    await planner.call("window.checkpoint", session_id=SESSION, label="before")
    calls = {
        "history.rollback": {"context_id": BOARD, "target_version": "1"},
        "board.restore_snapshot": {"session_id": SESSION, "label": "start"},
        "window.restore": {"session_id": SESSION, "label": "before"},
    }
    for operation, request in calls.items():
        with refused("QUOTA_EXCEEDED") as caught:
            await planner.call(operation, **request)
        assert caught.value.context == {"plan": "free", "limit_rollback": False}
    assert await planner.value("goal") == "stop"
    # The earlier state can still be read.
    assert await planner.read_snapshot("start") == {"goal": "ship"}
    await free.app.tenants.set_plan(free.tenant, "pro")
    for operation, request in calls.items():
        await planner.call(operation, **request)
    assert await planner.value("goal") == "ship"


async def test_the_free_plan_searches_with_the_default_ranking(free: World) -> None:
    await free.planner.say("Tea is served at four.")
    await free.index_sessions()
    for tuned in ({"min_score": 0.1}, {"recency_weight": 0.9}, {"importance_weight": 0.0}, {"half_life_days": 2.0}):
        with refused("QUOTA_EXCEEDED") as caught:
            await free.planner.call("search.query", query="tea", **tuned)
        assert caught.value.context == {"plan": "free", "limit_tuning": False}
        with refused("QUOTA_EXCEEDED"):
            await free.planner.call("search.get_context", query="tea", **tuned)
    assert await free.planner.call("search.query", query="tea")
    with refused("QUOTA_EXCEEDED"):
        await free.planner.call("context.assemble", session_id=SESSION, task_description="tea", min_score=0.1)
    # The agent's own minimum is not an error, and has no effect.
    await free.admin.call("agent.update", agent_id="planner", min_score=0.99)
    explained = await free.planner.call("search.query", query="tea", explain=True)
    assert explained["min_score"] == 0.7
    await free.app.tenants.set_plan(free.tenant, "pro")
    assert (await free.planner.call("search.query", query="tea", explain=True))["min_score"] == 0.99
    await free.planner.call("search.query", query="tea", min_score=0.1)


@pytest.mark.parametrize("plan", ["free", "pro"])
async def test_only_enterprise_chooses_its_embedding_model(world: World, plan: Any) -> None:
    await world.app.tenants.set_plan(world.tenant, plan)
    model = (await world.admin.call("knowledge.list_models"))["models"][0]["model"]
    with refused("QUOTA_EXCEEDED") as caught:
        await world.admin.call("knowledge.start_model_migration", model=model)
    assert caught.value.context == {"plan": plan, "limit_custom_models": False}
    await world.app.tenants.set_plan(world.tenant, "enterprise")
    with refused("MODEL_IN_USE"):
        await world.admin.call("knowledge.start_model_migration", model=model)
