"""A database that cannot be used gives a clear error."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from support.world import outcome, refused
from weftline.app.app import App
from weftline.settings import InvalidSetting, Settings
from weftline.storage.sql.database import connect

if TYPE_CHECKING:
    from support.world import World

pytestmark = pytest.mark.both_databases


@pytest.mark.req("MS-10")
async def test_an_unreachable_postgres_is_system_unavailable(tmp_path: Path) -> None:
    app = App(Settings(database_url=f"postgresql://weftline@/weftline?host={tmp_path}"))
    with refused("SYSTEM_UNAVAILABLE") as caught:
        await app.open()
    assert caught.value.severity == "critical"
    await app.close()


async def test_a_file_that_is_no_database_is_reported_as_damaged(tmp_path: Path) -> None:
    (tmp_path / "weftline.db").write_bytes(b"not a database at all " * 1000)
    app = App(Settings(data_dir=str(tmp_path)))
    with refused("INTERNAL_ERROR") as caught:
        await app.open()
    assert "damaged" in caught.value.message
    await app.close()


@pytest.mark.req("MS-10")
async def test_calls_before_open_and_after_close_are_refused(world: World) -> None:
    app = App(world.settings, clock=world.clock)
    with refused("POOL_NOT_INITIALIZED"):
        await world.planner.at(app).list()
    await world.close_app(world.app)
    with refused("POOL_NOT_INITIALIZED"):
        await world.planner.write("goal")


def test_an_unsupported_database_url_is_refused() -> None:
    with pytest.raises(InvalidSetting):
        connect("mysql://somewhere")


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_lost_connections_are_reopened_automatically(world: World) -> None:
    await world.planner.write("goal", "before")
    killer = await asyncpg.connect(world.url)
    await killer.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND datname = current_database()"
    )
    await killer.close()
    async with asyncio.timeout(60):
        while (ended := await outcome(world.planner.read("goal"))) != "ok":
            assert ended == "SYSTEM_UNAVAILABLE"
            await asyncio.sleep(0.05)
    await world.planner.write("goal", "after")
    waiting = asyncio.create_task(world.planner.events(after=await world.last_event(), wait_seconds=30))
    await asyncio.sleep(0.05)
    await world.planner.write("goal", "again")
    async with asyncio.timeout(60):
        assert [event["subject"] for event in (await waiting)["events"]] == ["goal"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_the_database_file_is_readable_by_its_owner_only(world: World) -> None:
    mode = (await asyncio.to_thread(Path(world.url).stat)).st_mode
    assert mode & 0o077 == 0
