"""Acknowledged writes survive a killed process."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import support.board_writer_process

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [pytest.mark.both_databases, pytest.mark.req("SC-08")]
PATIENCE = 60


async def start_writer(world: World, session: str, writes: int | None = None) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(support.board_writer_process.__file__)),
        world.url,
        world.planner.credential,
        session,
        *([] if writes is None else [str(writes)]),
        stdout=asyncio.subprocess.PIPE,
    )


async def session_that_forgets_nothing(world: World) -> Caller:
    return await world.planner.create_session("long", keep_versions=1_000_000)


async def expect_whole(world: World, board: Caller, acknowledged: list[tuple[str, int, str]]) -> int:
    """Check the board against what writers were told, and return how many writes it holds."""
    held: dict[str, list[str]] = {}
    for key in await board.keys():
        versions = (await board.history(key))["versions"]
        assert [version["version"] for version in versions] == list(range(1, len(versions) + 1))
        held[key] = [version["value"] for version in versions]
        assert await board.value(key) == held[key][-1]
    for key, version, value in acknowledged:
        assert held[key][version - 1] == value
    assert max(Counter(value for values in held.values() for value in values).values()) == 1
    seqs = [row[0] for row in await world.rows("SELECT seq FROM events WHERE tenant = $1 ORDER BY seq", world.tenant)]
    assert seqs == list(range(1, await world.last_event() + 1))
    assert (await world.admin.in_session(board.session).inspect())["history_intact"]
    return sum(map(len, held.values()))


def parsed(output: bytes) -> list[tuple[str, int, str]]:
    lines = [line.split() for line in output.decode().splitlines()]
    return [(key, int(version), value) for key, version, value in lines]


async def test_every_acknowledged_write_survives_a_killed_process(world: World) -> None:
    board = await session_that_forgets_nothing(world)
    process = await start_writer(world, "long")
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        output = b"".join([await process.stdout.readline() for _ in range(300)])
        process.send_signal(signal.SIGKILL)
        output += await process.stdout.read()
        await process.wait()
    acknowledged = parsed(output)
    assert len(acknowledged) >= 300
    await world.close_app(world.app)
    world.app = await world.another_app()
    world.admin, board = world.admin.at(world.app), board.at(world.app)
    # On PostgreSQL, the dead client's last transaction may still be ending; a write waits for its lock.
    await board.write("k0", "alive again")
    assert await expect_whole(world, board, acknowledged) >= len(acknowledged)


async def test_two_processes_writing_to_one_database_lose_nothing(world: World) -> None:
    board = await session_that_forgets_nothing(world)
    writers = [await start_writer(world, "long", 150) for _ in range(2)]
    async with asyncio.timeout(PATIENCE):
        outputs, own = await asyncio.gather(
            asyncio.gather(*(writer.communicate() for writer in writers)),
            asyncio.gather(*(board.write(f"k{n % 6}", f"own-{n}") for n in range(60))),
        )
    assert [writer.returncode for writer in writers] == [0, 0]
    acknowledged = [write for output, _ in outputs for write in parsed(output)]
    acknowledged += [(answer["key"], answer["version"], f"own-{n}") for n, answer in enumerate(own)]
    assert len(acknowledged) == 360
    assert await expect_whole(world, board, acknowledged) == 360


async def test_closing_right_after_a_write_ends(world: World) -> None:
    for _ in range(3):
        app = await world.another_app()
        await world.planner.at(app).write("goal")
        async with asyncio.timeout(PATIENCE):
            await world.close_app(app)


async def test_a_caller_that_stops_waiting_leaves_the_board_whole(world: World) -> None:
    board = await session_that_forgets_nothing(world)
    writing = [asyncio.create_task(board.write(f"k{n % 6}", f"own-{n}")) for n in range(60)]
    await asyncio.sleep(0.01)
    for task in writing[::2]:
        task.cancel()
    done = await asyncio.gather(*writing, return_exceptions=True)
    acknowledged = [(a["key"], a["version"], f"own-{n}") for n, a in enumerate(done) if isinstance(a, dict)]
    assert len(acknowledged) >= 30
    await expect_whole(world, board, acknowledged)
