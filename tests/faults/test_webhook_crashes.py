"""Every event reaches its receiver despite crashes, and only once without them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from support.crash_injection import MORE_THAN_A_LEASE
from support.jobs import pause_jobs
from support.processes import process
from support.webhook_process import webhook_process
from support.webhook_receiver import Receiver, receiver
from support.webhooks import hook, wait_until, webhook_state

if TYPE_CHECKING:
    from support.world import World
    from weftline.settings import Settings

pytestmark = [pytest.mark.req("AC-13")]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, webhook_private_hosts="127.0.0.1")


@pytest.fixture(autouse=True)
def _no_delivery_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    pause_jobs(monkeypatch, "webhooks.deliver")


async def write(world: World, number: int) -> list[int]:
    """Write ``number`` entries and return the sequence numbers of their events."""
    for each in range(number):
        await world.planner.write(f"k{each % 10}", str(each))
    last = await world.last_event()
    return list(range(last - number + 1, last + 1))


async def settled(world: World, made: Any, delivered: int) -> Any:
    async def look() -> Any:
        seen = await webhook_state(world.admin, made)
        return seen["delivered"] == delivered and seen

    return await wait_until(look)


async def test_each_event_arrives_once_with_several_processes_and_no_failure(world: World) -> None:
    async with receiver() as endpoint, process(webhook_process, world), process(webhook_process, world):
        made = [await hook(world.admin, endpoint.url, types=["board.*"]) for _ in range(3)]
        expected = await write(world, 100)
        await endpoint.until(lambda: len(endpoint.calls) >= 300)
        for webhook in made:
            await settled(world, webhook, 100)
            mine = [call.seq for call in endpoint.calls if call.id.startswith(webhook["webhook_id"])]
            assert mine == expected
        assert set(endpoint.times.values()) == {1}


@pytest.mark.parametrize("calls", [1, 30, 120])
async def test_every_event_arrives_despite_a_killed_sender(world: World, calls: int) -> None:
    async with receiver() as endpoint:
        made = await hook(world.admin, endpoint.url, types=["board.*"])
        expected = await write(world, 250)
        async with process(webhook_process, world) as first:
            await endpoint.until(lambda: len(endpoint.calls) >= calls)
            await first.kill()
        # On PostgreSQL the killed client's last transaction may still hold its lock; a write waits for it.
        await world.planner.write("other")
        expected.append(await world.last_event())
        async with process(webhook_process, world, MORE_THAN_A_LEASE):
            await endpoint.until(lambda: set(endpoint.seqs) == set(expected))
            await wait_until(lambda: all_delivered(world, made))
        # Only deliveries sent but not settled before the kill are sent again, under the same id.
        twice = {delivery for delivery, times in endpoint.times.items() if times > 1}
        assert len(twice) <= 100
        assert set(endpoint.times.values()) <= {1, 2}


async def all_delivered(world: World, made: Any) -> bool:
    seen = await webhook_state(world.admin, made)
    return (seen["pending"], seen["behind"]) == (0, 0)


async def test_a_webhook_is_leased_by_one_process_until_the_lease_expires(world: World) -> None:
    async with receiver() as endpoint:
        endpoint.open.clear()
        await hook(world.admin, endpoint.url, types=["board.*"])
        await write(world, 3)
        async with process(webhook_process, world) as first:
            await endpoint.wait_for_calls(1)
            await first.kill()
        endpoint.open.set()
        async with receiver() as other, process(webhook_process, world):
            # Another webhook is served at once; the leased one is not.
            await hook(world.admin, other.url, types=["board.*"])
            await write(world, 1)
            await other.wait_for_calls(1)
            assert len(endpoint.calls) == 1
        async with process(webhook_process, world, MORE_THAN_A_LEASE):
            await endpoint.wait_for_calls(5)
        assert endpoint.times[endpoint.calls[0].id] == 2
        assert len(set(endpoint.seqs)) == 4


async def test_a_stopped_sender_releases_its_lease(world: World) -> None:
    async with receiver() as endpoint:
        made = await hook(world.admin, endpoint.url, types=["board.*"])
        expected = await write(world, 150)
        await _stop_midway(world, endpoint)
        async with process(webhook_process, world):
            await endpoint.until(lambda: set(endpoint.seqs) == set(expected))
            await settled(world, made, 150)
        assert sum(times > 1 for times in endpoint.times.values()) <= 1


async def _stop_midway(world: World, endpoint: Receiver) -> None:
    async with process(webhook_process, world) as first:
        await endpoint.wait_for_calls(20)
        await first.stop()
