"""Acknowledged writes survive a killed process."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import support.board_writer_process
from support import forked_python

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [pytest.mark.both_databases, pytest.mark.req("SC-08")]
TIMEOUT_SECONDS = 60


async def start_writer(world: World, session: str, writes: int | None = None) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        forked_python.python(),
        str(Path(support.board_writer_process.__file__)),
        world.url,
        world.planner.credential,
        session,
        *([] if writes is None else [str(writes)]),
        stdout=asyncio.subprocess.PIPE,
    )


async def session_with_full_history(world: World) -> Caller:
    return await world.planner.create_session("long", keep_versions=10_000)


async def expect_complete(world: World, board: Caller, acknowledged: list[tuple[str, int, str]]) -> int:
    """Check the board against the acknowledged writes; return how many writes it has."""
    stored: dict[str, list[str]] = {}
    for key in await board.keys():
        versions = (await board.history(key))["versions"]
        assert [version["version"] for version in versions] == list(range(1, len(versions) + 1))
        stored[key] = [version["value"] for version in versions]
        assert await board.value(key) == stored[key][-1]
    for key, version, value in acknowledged:
        assert stored[key][version - 1] == value
    assert max(Counter(value for values in stored.values() for value in values).values()) == 1
    seqs = [row[0] for row in await world.rows("SELECT seq FROM events WHERE tenant = $1 ORDER BY seq", world.tenant)]
    assert seqs == list(range(1, await world.last_event() + 1))
    assert (await world.admin.in_session(board.session).inspect())["history_intact"]
    return sum(map(len, stored.values()))


def parsed(output: bytes) -> list[tuple[str, int, str]]:
    lines = [line.split() for line in output.decode().splitlines()]
    return [(key, int(version), value) for key, version, value in lines]


async def test_every_acknowledged_write_survives_a_killed_process(world: World) -> None:
    board = await session_with_full_history(world)
    process = await start_writer(world, "long")
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT_SECONDS):
        output = b"".join([await process.stdout.readline() for _ in range(300)])
        process.send_signal(signal.SIGKILL)
        output += await process.stdout.read()
        await process.wait()
    acknowledged = parsed(output)
    assert len(acknowledged) >= 300
    await world.close_app(world.app)
    world.app = await world.another_app()
    world.admin, board = world.admin.at(world.app), board.at(world.app)
    # On PostgreSQL the killed client's last transaction may still hold its lock; a write waits for it.
    await board.write("k0", "alive again")
    assert await expect_complete(world, board, acknowledged) >= len(acknowledged)


async def test_two_processes_writing_to_one_database_lose_nothing(world: World) -> None:
    board = await session_with_full_history(world)
    writers = [await start_writer(world, "long", 150) for _ in range(2)]
    async with asyncio.timeout(TIMEOUT_SECONDS):
        outputs, own = await asyncio.gather(
            asyncio.gather(*(writer.communicate() for writer in writers)),
            asyncio.gather(*(board.write(f"k{n % 6}", f"own-{n}") for n in range(60))),
        )
    assert [writer.returncode for writer in writers] == [0, 0]
    acknowledged = [write for output, _ in outputs for write in parsed(output)]
    acknowledged += [(answer["key"], answer["version"], f"own-{n}") for n, answer in enumerate(own)]
    assert len(acknowledged) == 360
    assert await expect_complete(world, board, acknowledged) == 360


async def test_close_right_after_a_write_returns(world: World) -> None:
    for _ in range(3):
        app = await world.another_app()
        await world.planner.at(app).write("goal")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await world.close_app(app)


async def test_cancelled_calls_leave_the_board_consistent(world: World) -> None:
    board = await session_with_full_history(world)
    writing = [asyncio.create_task(board.write(f"k{n % 6}", f"own-{n}")) for n in range(60)]
    await asyncio.sleep(0.01)
    for task in writing[::2]:
        task.cancel()
    done = await asyncio.gather(*writing, return_exceptions=True)
    acknowledged = [(a["key"], a["version"], f"own-{n}") for n, a in enumerate(done) if isinstance(a, dict)]
    assert len(acknowledged) >= 30
    await expect_complete(world, board, acknowledged)
