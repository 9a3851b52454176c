"""What every test can ask for: both databases, a clock that can be moved, and a world of agents."""

from __future__ import annotations

import asyncio
import os
import secrets
from typing import TYPE_CHECKING

import pytest

from support.databases import new_postgres_database, postgres_server
from support.world import World
from weft.settings import Settings
from weft.testing.clock import FrozenClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Return the address of the run's PostgreSQL server."""
    with postgres_server() as address:
        yield address


@pytest.fixture(scope="session")
def postgres_url(postgres: str) -> str:
    """Return the address of this worker's own database; tests in it are kept apart by their tenants."""
    name = f"weft_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_{secrets.token_hex(3)}"
    return asyncio.run(new_postgres_database(postgres, name))


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a migrated database, of both kinds in turn."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return str(tmp_path / "weft.db")


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    # What is said is put on its shelves when a test says so, see World.followed.
    return Settings(database_url=database_url, data=str(tmp_path), rate_limits="off", index_sessions="off")


@pytest.fixture
async def world(database_url: str, clock: FrozenClock, settings: Settings) -> AsyncIterator[World]:
    world = World(database_url, clock, settings)
    await world.open()
    try:
        yield world
    finally:
        await world.close()
