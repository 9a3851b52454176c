"""What every test can ask for: both databases, a clock that can be moved, and a world of agents."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from typing import TYPE_CHECKING

import pytest

from support.databases import (
    Emptied,
    connect_quickly,
    new_postgres_database,
    new_sqlite_database,
    postgres_server,
)
from support.world import World
from weft.settings import Settings
from weft.testing.clock import FrozenClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture(scope="session", autouse=True)
def _nobody_waits_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("weft.storage.sql.dialects.sqlite._connect", connect_quickly)
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Return the address of the run's PostgreSQL server."""
    with postgres_server() as address:
        yield address


@pytest.fixture(scope="session")
def postgres_url(postgres: str) -> str:
    """Return the address of this worker's own database."""
    name = f"weft_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_{secrets.token_hex(3)}"
    return asyncio.run(new_postgres_database(postgres, name))


@pytest.fixture(scope="session")
def emptied(postgres_url: str) -> Iterator[Emptied]:
    database = Emptied(postgres_url)
    yield database
    database.close()


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory, _nobody_waits_for_the_disk: None) -> Path:
    """Return a file of SQLite with the schema in it: copying it is quicker than making another."""
    path = tmp_path_factory.mktemp("empty") / "weft.db"
    asyncio.run(new_sqlite_database(path))
    return path


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a database with nothing in it, of both kinds in turn."""
    if request.param == "postgres":
        emptied: Emptied = request.getfixturevalue("emptied")
        emptied.empty()
        return emptied.url
    return str(shutil.copy(request.getfixturevalue("empty_file"), tmp_path / "weft.db"))


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    # What is said is put in its collections when a test says so, see World.followed.
    return Settings(database_url=database_url, data_dir=str(tmp_path), rate_limits="off", session_indexing="off")


@pytest.fixture
async def world(database_url: str, clock: FrozenClock, settings: Settings) -> AsyncIterator[World]:
    world = World(database_url, clock, settings)
    await world.open()
    try:
        yield world
    finally:
        await world.close()
