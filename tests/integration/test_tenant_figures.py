"""The owner of an installation sees usage and health of every tenant, and none of their content."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from support.assemblies import assemble, ingest
from support.world import SESSION
from weftline.jobs.figures import ROLL_UP
from weftline.kernel.clock import to_micros

if TYPE_CHECKING:
    from support.world import World
    from weftline.app.metrics_snapshot import TenantFigures

pytestmark = [pytest.mark.both_databases, pytest.mark.req("CE-L3")]


async def figures_of(world: World, since: int = 0) -> dict[str, TenantFigures]:
    return {each.tenant: each for each in await world.app.tenants.figures(since)}


async def test_every_tenant_has_the_sums_of_its_own_report(world: World) -> None:
    await ingest(world.analysis, {"content": "Quokkas nap under the banksia. " * 60})
    for _ in range(2):
        await assemble(world.analysis, model="claude-sonnet-4-5")
    for _ in range(2):
        own = (await world.admin.call("usage.report", by="tenant"))["total"]
        found = await figures_of(world)
        home, away = found[world.tenant].usage, found[world.other_tenant].usage
        assert (home.calls, home.total_tokens, home.savings_ratio) == (2, own["total_tokens"], own["savings_ratio"])
        assert home.cost_nanos / 1e9 == pytest.approx(own["cost"])
        assert home.total_tokens > 0 < home.cost_nanos
        assert (away.calls, away.total_tokens) == (0, 0)
        await world.app.scheduler.drain(ROLL_UP)
    world.clock.advance(days=3)
    later = await figures_of(world, since=to_micros(world.clock.now()))
    assert later[world.tenant].usage.calls == 0


async def test_what_needs_attention_is_counted_for_its_tenant_alone(world: World) -> None:
    await world.admin.call("budget.set", subject="tenant", period="day", tokens=1)
    await assemble(world.analysis, model="claude-sonnet-4-5")
    found = await figures_of(world)
    assert found[world.tenant].problems.active_alerts == len((await world.admin.call("alerts.list"))["alerts"]) > 0
    assert found[world.other_tenant].problems == (0, 0, 0)
    assert found[world.tenant].unindexed_events > found[world.other_tenant].unindexed_events


async def test_requests_of_the_last_day_are_counted_by_tenant(world: World) -> None:
    await world.analysis.write("roost")
    await world.app.metrics_snapshot.write_history()
    found = await figures_of(world)
    assert found[world.tenant].last_day.calls > found[world.other_tenant].last_day.calls


async def test_no_content_is_in_the_figures(world: World) -> None:
    secret = "quokka"
    await world.analysis.write(f"{secret}_key", f"{secret} on the board")
    await ingest(world.analysis, {"content": f"A {secret} naps. " * 60})
    await assemble(world.analysis, model=f"{secret}-model")
    await world.admin.create_agent(f"{secret}-agent")
    seen = repr(await figures_of(world)) + msgspec.json.encode(list((await figures_of(world)).values())).decode()
    assert not [name for name in (secret, "analysis", "planner", SESSION) if name in seen]
