"""A full disk refuses writes, damages nothing, and recovers when there is space."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
from typing import TYPE_CHECKING

import pytest

from support.world import World, refused
from weftline.kernel.errors import WeftlineError
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.world import Caller
    from weftline.testing.clock import FrozenClock

pytestmark = [pytest.mark.req("SC-08"), pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)]


async def board_with_high_limits(world: World) -> Caller:
    return await world.planner.create_session(
        "big", max_value_tokens=300_000, max_total_tokens=1_000_000, keep_versions=10_000
    )


async def fill(board: Caller) -> list[str]:
    """Write until the disk is full; return the acknowledged values."""
    acknowledged: list[str] = []
    for _ in range(2_000):
        values = [secrets.token_hex(10_000) for _ in range(4)]
        answers = await asyncio.gather(*(board.write("blob", value) for value in values), return_exceptions=True)
        acknowledged += [value for value, answer in zip(values, answers, strict=True) if isinstance(answer, dict)]
        failed = [answer for answer in answers if isinstance(answer, WeftlineError)]
        if failed:
            assert {error.code for error in failed} == {"DISK_FULL"}
            return acknowledged
    raise AssertionError("the disk never filled")


async def expect_intact(world: World, board: Caller, acknowledged: list[str]) -> None:
    history = await board.history("blob")
    assert [version["value"] for version in history["versions"]] == acknowledged
    (problem,) = (await world.rows("PRAGMA integrity_check"))[0]
    assert problem == "ok"


async def test_a_full_database_refuses_writes_and_recovers(world: World) -> None:
    board = await board_with_high_limits(world)
    await board.write("blob", "first")
    writer = world.app.database._writer  # type: ignore[attr-defined]
    writer.pragma("max_page_count", writer.pragma("page_count") + 100)
    acknowledged = ["first", *await fill(board)]
    await expect_intact(world, board, acknowledged)
    writer.pragma("max_page_count", 1_000_000)
    await board.write("blob", "room again")
    await expect_intact(world, board, [*acknowledged, "room again"])
    assert (await world.admin.in_session("big").inspect())["history_intact"]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def test_a_full_disk_refuses_writes_and_recovers(tiny_disk: Path, clock: FrozenClock, database_url: str) -> None:
    url = str(tiny_disk / "weftline.db")
    world = World(url, clock, Settings(database_url=url, rate_limits="off"))
    await world.open()
    try:
        board = await board_with_high_limits(world)
        acknowledged = await fill(board)
        assert acknowledged
        await expect_intact(world, board, acknowledged)
        with refused("DISK_FULL"):
            await board.write("blob", secrets.token_hex(500_000))
        await asyncio.to_thread(subprocess.run, ["mount", "-o", "remount,size=30m", str(tiny_disk)], check=True)
        await board.write("blob", "room again")
        await expect_intact(world, board, [*acknowledged, "room again"])
        assert (await world.admin.in_session("big").inspect())["history_intact"]
    finally:
        await world.close()
