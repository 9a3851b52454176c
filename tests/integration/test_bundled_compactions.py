"""Whatever is exported of a compaction, its sources are in the same bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.bundles import exported, imported, items, records
from support.compaction_runs import compact, long_window, say
from support.world import SESSION

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("AC-09")

TYPES = ("context_compaction", "context_summary")


async def compacted_twice(caller: Caller) -> None:
    await long_window(caller, 60)
    for first in (60, 120):
        assert (await compact(caller, wait_seconds=30))["state"] == "applied"
        await say(caller, 60, first)
    assert (await compact(caller, wait_seconds=30))["state"] == "applied"


def named(bundle: bytes) -> set[str]:
    found = [record for kind in TYPES for record in records(bundle, kind).values()]
    return {ref for record in found for ref in record["source_item_refs"]}


@pytest.mark.parametrize(
    "fields",
    [{}, {"history": False}, {"scope": "handoff", "recipient": "review-2"}],
    ids=["whole", "current", "handoff"],
)
async def test_the_sources_of_every_compaction_of_a_session_are_in_its_bundle(
    world: World, fields: dict[str, Any]
) -> None:
    await compacted_twice(world.analysis)
    found = dict[str, set[str]]()
    for caller, policy in ((world.analysis, {}), (world.planner, {}), (world.admin, {"policy": "full"})):
        bundle = await exported(caller, **policy, **fields)
        assert named(bundle) <= items(bundle).keys(), len(named(bundle) - items(bundle).keys())
        found[str(policy)] = named(bundle)
    assert all(len(each) > 43 for each in found.values()), {k: len(v) for k, v in found.items()}


async def test_sources_that_were_removed_since_are_in_a_bundle_without_history(world: World) -> None:
    await long_window(world.analysis, 4)
    await world.analysis.call("window.checkpoint", session_id=SESSION, label="early")
    await say(world.analysis, 80, 4)
    assert (await compact(world.analysis, wait_seconds=30))["state"] == "applied"
    await world.analysis.call("window.restore", session_id=SESSION, label="early")
    bundle = await exported(world.analysis, history=False)
    assert len(named(bundle)) > 43
    assert named(bundle) <= items(bundle).keys()


async def test_an_imported_compaction_names_nothing_that_is_absent(world: World) -> None:
    await compacted_twice(world.analysis)
    await world.stranger.create_agent("analysis")
    await imported(world.stranger, await exported(world.admin, policy="full"))
    # Who may not open a window, because its agent is no member any more, gets no compaction of it either.
    assert named(await exported(world.stranger, policy="full")) == set()
    await world.stranger.admit("analysis")
    again = await exported(world.stranger, policy="full")
    assert len(named(again)) > 43
    assert named(again) <= items(again).keys()
