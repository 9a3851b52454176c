"""Settings of compaction: by window, agent, ancestors, teams and tenant, and what the plan allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.teams import create_team, remove_member
from support.windows import create, show
from support.world import SESSION, refused
from weftline.access.sql import AccessStore
from weftline.history.lines import LineStore
from weftline.state.agent_context import definitions
from weftline.state.agent_context.settings import CompactionSettings, ResolvedCompaction
from weftline.storage.sql.database import Scope
from weftline.windows.agent_settings import compaction_settings

if TYPE_CHECKING:
    from support.world import World

pytestmark = pytest.mark.req("CE-F7")


async def define(world: World, agent_id: str, **compaction: Any) -> None:
    await world.admin.call("agent.define", agent_id=agent_id, config={"compaction": compaction})


async def define_layer(world: World, layer: str, **compaction: Any) -> Any:
    return await world.admin.call("layer.define", layer=layer, compaction=compaction)


async def resolved(world: World, agent_id: str = "analysis") -> ResolvedCompaction:
    return await world.app.database.read(
        Scope(world.tenant), lambda tx: compaction_settings(agent_id, LineStore(tx), AccessStore(tx))
    )


def test_settings_are_completed_field_by_field() -> None:
    near, far = CompactionSettings(threshold=0.5, auto=False), CompactionSettings(threshold=0.9, keep_recent=7)
    assert near.over(far) == CompactionSettings(threshold=0.5, auto=False, keep_recent=7)
    assert ResolvedCompaction.of(CompactionSettings()) == ResolvedCompaction()


async def test_each_field_comes_from_the_agent_its_ancestors_its_teams_or_the_tenant(world: World) -> None:
    await create_team(world.admin, "research", "analysis")
    await create_team(world.admin, "writers", "analysis")
    await define_layer(world, "tenant", threshold=0.9, keep_recent=50, target=0.2, review=True)
    assert await resolved(world) == ResolvedCompaction(threshold=0.9, keep_recent=50, target=0.2, review=True)
    await define_layer(world, "team:writers", keep_recent=30, target=0.5)
    await define_layer(world, "team:research", keep_recent=25)
    await define(world, "planner", strategy="key_facts", threshold=0.7)
    await define(world, "analysis", threshold=0.6, review=False)
    assert await resolved(world) == ResolvedCompaction(
        strategy="key_facts", threshold=0.6, keep_recent=25, target=0.5, review=False
    )
    await remove_member(world.admin, "analysis", "research")
    assert (await resolved(world)).keep_recent == 30
    assert (await resolved(world, "review-2")).target == 0.2


async def test_a_change_holds_from_the_next_call(world: World) -> None:
    await create(world.analysis)
    for threshold in (0.5, 0.6):
        await define_layer(world, "tenant", threshold=threshold)
        assert (await show(world.analysis))["compaction_threshold"] == threshold
        await define(world, "planner", threshold=threshold / 2)
        assert (await show(world.analysis))["compaction_threshold"] == threshold / 2
        await define(world, "planner")
        assert (await show(world.analysis))["compaction_threshold"] == threshold
    await world.analysis.call("window.update", session_id=SESSION, compaction_threshold=0.7)
    assert (await show(world.analysis))["compaction_threshold"] == 0.7


async def test_an_empty_object_removes_the_settings_of_a_layer(world: World) -> None:
    await define_layer(world, "tenant", threshold=0.5)
    assert (await define_layer(world, "tenant"))["changed"] == ["compaction"]
    assert await resolved(world) == ResolvedCompaction()


@pytest.mark.parametrize(
    "wrong",
    [
        {"strategy": "rolling"},
        {"threshold": 0},
        {"keep_recent": 0},
        {"target": 2},
        {"review": "maybe"},
        {"treshold": 1},
    ],
)
async def test_settings_that_would_be_ignored_are_refused(world: World, wrong: dict[str, Any]) -> None:
    with refused("INVALID_INPUT_FORMAT") as refusal:
        await define(world, "analysis", **wrong)
    if "strategy" in wrong:
        assert "sliding_window" in refusal.value.message
    if "treshold" in wrong:
        assert "use only strategy, threshold, keep_recent" in refusal.value.message
    with refused("INVALID_INPUT_FORMAT"):
        await define_layer(world, "tenant", **wrong)


async def test_settings_of_another_form_in_a_restored_version_are_ignored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "check_config", lambda _: None)
    config = {"model_max_tokens": 5_000, "compaction": {"threshold": "a lot"}}
    await world.admin.call("agent.define", agent_id="analysis", config=config)
    assert await resolved(world) == ResolvedCompaction()
    assert (await create(world.analysis))["model_tokens"] == 5_000
