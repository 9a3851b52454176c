"""Every event reaches its receiver, whoever dies on the way; and none twice where nobody does."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import support.courier
from support.hooks import hook, shown, until
from support.receiver import Receiver, receiver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.world import World
    from weft.settings import Settings

pytestmark = pytest.mark.req("AC-13")
PATIENCE = 60
LEASE_SECONDS = 60
MORE_THAN_A_LEASE = LEASE_SECONDS + 1


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, webhook_private_hosts="127.0.0.1")


@pytest.fixture(autouse=True)
def _sends_nothing_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.app.webhooks._FIRST_LOOK_SECONDS", 3_600.0)


@asynccontextmanager
async def courier(world: World, ahead_seconds: int = 0) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a process that sends, and kill it at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(support.courier.__file__)),
        world.url,
        str(ahead_seconds),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            assert await process.stdout.readline() == b"open\n"
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


async def write(world: World, number: int) -> list[int]:
    """Write so many keys and return the numbers of the events."""
    for each in range(number):
        await world.planner.write(f"k{each % 10}", str(each))
    last = await world.last_event()
    return list(range(last - number + 1, last + 1))


async def settled(world: World, made: Any, delivered: int) -> Any:
    async def look() -> Any:
        seen = await shown(world.admin, made)
        return seen["delivered"] == delivered and seen

    return await until(look)


async def test_each_event_arrives_once_with_several_processes_and_no_failure(world: World) -> None:
    async with receiver() as there, courier(world), courier(world):
        made = [await hook(world.admin, there.url, types=["board.*"]) for _ in range(3)]
        expected = await write(world, 100)
        await there.until(lambda: len(there.calls) >= 300)
        for webhook in made:
            await settled(world, webhook, 100)
            mine = [call.seq for call in there.calls if call.id.startswith(webhook["webhook_id"])]
            assert mine == expected
        assert set(there.times.values()) == {1}


@pytest.mark.parametrize("calls", [1, 30, 120])
async def test_every_event_arrives_although_the_sender_is_killed(world: World, calls: int) -> None:
    async with receiver() as there:
        made = await hook(world.admin, there.url, types=["board.*"])
        expected = await write(world, 250)
        async with courier(world) as first:
            await there.until(lambda: len(there.calls) >= calls)
            first.send_signal(signal.SIGKILL)
            await first.wait()
        # On PostgreSQL the dead client's last transaction may still be ending; a write waits for its lock.
        await world.planner.write("other")
        expected.append(await world.last_event())
        async with courier(world, MORE_THAN_A_LEASE):
            await there.until(lambda: set(there.seqs) == set(expected))
            await until(lambda: nothing_left(world, made))
        # What was sent and not yet settled when it died is sent again, under the same id, and nothing else.
        twice = {delivery for delivery, times in there.times.items() if times > 1}
        assert len(twice) <= 100
        assert set(there.times.values()) <= {1, 2}


async def nothing_left(world: World, made: Any) -> bool:
    seen = await shown(world.admin, made)
    return (seen["pending"], seen["behind"]) == (0, 0)


async def test_a_lease_keeps_others_away_until_it_ends(world: World) -> None:
    async with receiver() as there:
        there.open.clear()
        await hook(world.admin, there.url, types=["board.*"])
        await write(world, 3)
        async with courier(world) as first:
            await there.got(1)
            first.send_signal(signal.SIGKILL)
            await first.wait()
        there.open.set()
        async with receiver() as other, courier(world):
            # Another webhook is served at once; the one that is held is not.
            await hook(world.admin, other.url, types=["board.*"])
            await write(world, 1)
            await other.got(1)
            assert len(there.calls) == 1
        async with courier(world, MORE_THAN_A_LEASE):
            await there.got(5)
        assert there.times[there.calls[0].id] == 2
        assert len(set(there.seqs)) == 4


async def test_a_sender_that_is_asked_to_stop_lets_go_at_once(world: World) -> None:
    async with receiver() as there:
        made = await hook(world.admin, there.url, types=["board.*"])
        expected = await write(world, 150)
        await _interrupted(world, there)
        async with courier(world):
            await there.until(lambda: set(there.seqs) == set(expected))
            await settled(world, made, 150)
        assert sum(times > 1 for times in there.times.values()) <= 1


async def _interrupted(world: World, there: Receiver) -> None:
    async with courier(world) as first:
        await there.got(20)
        first.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE):
            await first.wait()
