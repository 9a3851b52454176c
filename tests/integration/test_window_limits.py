"""A window has no more events and bytes than the plan allows, whichever way they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from support.bundles import exported, imported, resealed
from support.windows import contents, create, ingest, message, show
from support.world import SESSION, refused
from weftline.exchange.transfer.bundle_format import BundleWindow
from weftline.windows import window_writer

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.both_databases
REFUSED = "QUOTA_EXCEEDED"
LIMITS = [{"window_events": 4}, {"window_bytes": 9_000}]
TEXT = "the ferry to Voss leaves at noon. " * 60


async def limit(world: World, tenant: str | None = None, **limits: int) -> None:
    await world.app.tenants.set_plan(tenant or world.tenant, "pro", **limits)


def said(*names: str, **what: Any) -> list[dict[str, Any]]:
    return [message(name, TEXT, **what) for name in names]


async def restore_from(caller: Caller, agent_id: str, into: str) -> Any:
    request = {"session_id": SESSION, "label": f"of-{agent_id}", "from_agent_id": agent_id, "agent_id": into}
    return await caller.call("window.restore", **request)


async def tables(world: World, tenant: str) -> list[int]:
    """Return how many rows of sessions, windows, lines and values a tenant has."""
    return [
        (await world.rows(f"SELECT COUNT(*) FROM {table} WHERE tenant = $1", tenant))[0][0]
        for table in ("sessions", "windows", "lines", "commits", "changes", "blobs")
    ]


@pytest.mark.parametrize("limits", LIMITS)
async def test_a_restore_from_another_window_respects_the_limits(world: World, limits: dict[str, int]) -> None:
    await ingest(world.analysis, *said("a", "b", "c"))
    await ingest(world.review, *said("x", "y"))
    await world.planner.call("window.checkpoint", session_id=SESSION, label="of-analysis", agent_id="analysis")
    await limit(world, **limits)
    before = await show(world.review), await contents(world.review), await tables(world, world.tenant)
    with refused(REFUSED):
        await restore_from(world.planner, "analysis", "review-2")
    assert (await show(world.review), await contents(world.review), await tables(world, world.tenant)) == before


async def test_restores_add_up(world: World) -> None:
    """What several restores bring counts, although each replaces what the one before brought."""
    await create(world.review)
    for agent_id, caller in (("analysis", world.analysis), ("planner", world.planner)):
        await ingest(caller, *said(f"{agent_id}-1", f"{agent_id}-2"))
        await world.planner.call("window.checkpoint", session_id=SESSION, label=f"of-{agent_id}", agent_id=agent_id)
    await limit(world, window_events=3)
    await restore_from(world.planner, "analysis", "review-2")
    with refused(REFUSED) as caught:
        await restore_from(world.planner, "planner", "review-2")
    assert caught.value.context["used_window_events"] == 2
    # The same again brings nothing new.
    await restore_from(world.planner, "analysis", "review-2")


async def test_an_own_checkpoint_is_restored_in_a_full_window(world: World) -> None:
    await ingest(world.planner, *said("a", "b"))
    await world.planner.call("window.checkpoint", session_id=SESSION, label="full")
    await world.planner.call("history.rollback", context_id=f"window:{SESSION}:planner", target_version="0")
    await limit(world, window_events=2, window_bytes=4_500)
    await world.planner.call("window.restore", session_id=SESSION, label="full")
    assert len(await contents(world.planner)) == 2


@pytest.mark.parametrize("limits", LIMITS)
async def test_a_refresh_respects_the_limits(world: World, limits: dict[str, int]) -> None:
    await create(world.planner)
    await ingest(world.analysis, *said("x", "y"))
    await ingest(world.planner, *said("a", "b", "c", category="CONTEXT"))
    await limit(world, **limits)
    with refused(REFUSED):
        await world.analysis.call("window.refresh", session_id=SESSION)
    assert len(await contents(world.analysis)) == 2


@pytest.mark.parametrize("limits", LIMITS)
async def test_an_import_respects_the_limits(world: World, limits: dict[str, int]) -> None:
    await ingest(world.planner, *said("a", "b", "c", "d", "e"))
    bundle = await exported(world.admin, policy="full")
    await world.stranger.create_agent("planner", agent_type="planning", clearance=3)
    await limit(world, world.other_tenant, **limits)
    before = await tables(world, world.other_tenant)
    for dry_run in (True, False):
        with refused(REFUSED):
            await imported(world.stranger, bundle, dry_run=dry_run)
    assert await tables(world, world.other_tenant) == before
    await limit(world, world.other_tenant, window_events=5)
    assert (await imported(world.stranger, bundle)).windows == 1
    with refused(REFUSED):
        await ingest(world.stranger, message("f"), agent_id="planner")


async def test_an_imported_event_is_no_longer_than_an_ingested_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ingest(world.planner, message("long", "the swing bridge opens. " * 400))
    bundle = await exported(world.admin, policy="full")
    await world.stranger.create_agent("planner", agent_type="planning", clearance=3)
    monkeypatch.setattr(window_writer, "MAX_CONTENT_BYTES", 5_000)
    before = await tables(world, world.other_tenant)
    with refused("CONTENT_TOO_LARGE"):
        await imported(world.stranger, bundle)
    assert await tables(world, world.other_tenant) == before


async def test_a_bundle_does_not_say_how_many_events_it_has(world: World) -> None:
    await ingest(world.planner, *said("a", "b", "c", "d", "e"))
    bundle = await exported(world.admin, policy="full")

    def lower(entry: Any) -> Any:
        return structs.replace(entry, last_number=0) if isinstance(entry, BundleWindow) else entry

    await world.stranger.create_agent("planner", agent_type="planning", clearance=3)
    await limit(world, world.other_tenant, window_events=4)
    with refused(REFUSED):
        await imported(world.stranger, resealed(bundle, lower))


async def test_what_rollbacks_wrote_again_counts_once_in_an_import(world: World) -> None:
    line = f"window:{SESSION}:planner"
    await ingest(world.planner, message("first"))
    await ingest(world.planner, *said("a", "b", "c"))
    for version in (1, 2, 1, 2, 1, 2):
        await world.admin.call("history.rollback", context_id=line, target_version=version)
    bundle = await exported(world.admin, policy="full")
    await world.stranger.create_agent("planner", agent_type="planning", clearance=3)
    await limit(world, world.other_tenant, window_bytes=9_000)
    assert (await imported(world.stranger, bundle)).windows == 1
