"""Whoever dies while what is said is put on its shelves, nothing stands there twice and nothing is missing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_history_crashes import Crash, Fuse, Fused

import support.follower
from support.hooks import until
from support.shelved import expect_whole, scripted, standing
from support.world import SESSION
from weft.kernel.errors import WeftError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.world import World

pytestmark = [pytest.mark.req("CE-F52"), pytest.mark.req("CE-F38")]
PATIENCE = 60
MORE_THAN_A_LEASE = 61


async def lived_in(world: World) -> None:
    for number in range(3):
        await world.planner.say(f"message {number}")
        await world.planner.write("goal", f"goal {number}")
        await world.planner.remember("tea", f"tea {number}")
    await world.planner.remember("cups", "two", session_id=SESSION)


EXPECTED = {
    "sessions": {"s1:1": ["message 0"], "s1:2": ["message 1"], "s1:3": ["message 2"], "s1:key/goal": ["goal 2"]},
    "memory": {"planner:/tea": ["tea 2"], "planner:s1/cups": ["two"]},
}


async def shelves(world: World) -> dict[str, dict[str, list[str]]]:
    return {shelf: await standing(world, shelf) for shelf in EXPECTED}


class Death(Fuse):
    """Blows at one statement, and at every one behind it: whoever is dead does not try again."""

    def burn(self, *, done: bool) -> None:
        super().burn(done=done)
        if self.run > self.at:
            raise Crash


async def crashed(world: World, patch: pytest.MonkeyPatch, at: int) -> bool:
    """Follow, and die at one statement of all that write; tell whether it came that far."""
    database, fuse = world.app.database, Death(at, after=at % 2 == 0)
    write = database.write
    with patch.context() as patched:
        patched.setattr(database, "write", lambda scope, work: write(scope, lambda tx: work(Fused(tx, fuse))))
        try:
            await world.app.following.follow(world.tenant)
        except (Crash, WeftError):
            assert fuse.run >= at, "it failed, but not because of the fuse"
            return True
    return False


async def test_a_crash_at_any_statement_leaves_no_duplicate_and_no_hole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(world)
    await world.planner.write("goal", "what stood there before")
    await world.followed()
    await lived_in(world)
    before, blown = await shelves(world), 0
    while await crashed(world, monkeypatch, blown + 1):
        blown += 1
        # All of a round or nothing of it: and no other process has it in hand for longer than its lease.
        assert await shelves(world) in (before, EXPECTED), f"statement {blown} left something"
        await expect_whole(world)
        world.clock.advance(seconds=MORE_THAN_A_LEASE)
    assert blown > 15
    await world.followed()
    assert await shelves(world) == EXPECTED
    await expect_whole(world)


@asynccontextmanager
async def follower(world: World, ahead_seconds: int = 0) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a process that follows, and kill it at the end of the block."""
    tests = Path(support.follower.__file__).parents[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(support.follower.__file__)),
        world.url,
        str(ahead_seconds),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(tests)},
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


@pytest.mark.parametrize("chunks", [1, 40, 150])
async def test_a_killed_process_leaves_no_duplicate_and_no_hole(world: World, chunks: int) -> None:
    for number in range(250):
        await world.planner.say(f"message {number}")

    async def reached() -> bool:
        return len(await standing(world)) >= chunks

    async def all_there() -> bool:
        return len(await standing(world)) == 250

    async with follower(world) as first:
        await until(reached)
        first.send_signal(signal.SIGKILL)
        await first.wait()
    await expect_whole(world)
    async with follower(world, MORE_THAN_A_LEASE), follower(world, MORE_THAN_A_LEASE):
        await until(all_there)
    assert await standing(world) == {f"s1:{number + 1}": [f"message {number}"] for number in range(250)}
    await expect_whole(world)
