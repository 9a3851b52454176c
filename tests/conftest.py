"""Fixtures for all tests: a database of each kind, a clock that tests move, and a tenant with agents."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import shutil
import sqlite3
from contextlib import closing
from functools import cache
from typing import TYPE_CHECKING

import asyncpg
import hypothesis
import pytest

from support.cached_classifier import read_each_text_once
from support.cached_model import CachedModel
from support.database_choice import KINDS, choose_database
from support.databases import (
    EmptiedDatabase,
    PoolCache,
    connect_without_fsync,
    new_postgres_database,
    new_sqlite_database,
    postgres_server,
)
from support.forked_python import share_tls_context
from support.full_run import examples
from support.pgvector import LACKING, USABLE, search_in_replicas_if_unusable
from support.world import Residents, World, settle
from weftline.app.app import App
from weftline.settings import Settings
from weftline.testing.clock import FrozenClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path


# Timings depend on what else the machine does, so no test fails by them.
hypothesis.settings.register_profile(
    "weftline",
    max_examples=examples(hypothesis.settings.default.max_examples),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("weftline")
search_in_replicas_if_unusable()
share_tls_context()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end what these results do not show."""
    if not USABLE:
        terminalreporter.write_line(LACKING, yellow=True, bold=True)


def pytest_xdist_auto_num_workers() -> int:
    """Use more workers than cores: many tests wait for a process that they have started."""
    return max(2, (os.cpu_count() or 1) * 3 // 2)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    choose_database(metafunc)


def pytest_collection() -> None:
    """Collect no garbage while tests are collected: nearly everything stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage less often, and never go through what was collected as tests: a server does so too."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def _no_fsync() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("weftline.storage.sql.dialects.sqlite._connect", connect_without_fsync)
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Load the embedding model once, and read each text once: an App forgets both, and every test has its own."""
    base = tmp_path_factory.getbasetemp()
    # A worker's folder is inside that of the run.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "vectors"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("weftline.providers.embedders.factory.load_minilm", cache(lambda: CachedModel(folder)))
        read_each_text_once(patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def _tools_by_meaning() -> Iterator[None]:
    """Let a search for tools wait until they are embedded: what it finds must not depend on how busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("weftline.app.tools.catalogue._WAIT_SECONDS", 600.0)
        yield


@pytest.fixture(autouse=True)
def _log_level() -> None:
    """Undo the log level that a command run in this process has set."""
    logging.getLogger("weftline").setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
async def _kept_pools() -> AsyncIterator[None]:
    """Let databases on the tests' event loop reuse connections to PostgreSQL."""
    pools = PoolCache(asyncio.get_running_loop())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncpg, "create_pool", pools.create)
        yield
    await pools.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Return the URL of the PostgreSQL server that all workers share."""
    with postgres_server() as address:
        yield address


@pytest.fixture(scope="session")
def postgres_url(postgres: str) -> str:
    """Return the URL of this worker's database."""
    name = f"weftline_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_{secrets.token_hex(3)}"
    return asyncio.run(new_postgres_database(postgres, name))


@pytest.fixture(scope="session")
def emptied(postgres_url: str, _kept_pools: None) -> Iterator[EmptiedDatabase]:
    database = EmptiedDatabase(postgres_url)
    yield database
    database.close()


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory, _no_fsync: None) -> Path:
    """Return a SQLite file with the schema: copying it is faster than migrating another."""
    path = tmp_path_factory.mktemp("empty") / "weftline.db"
    asyncio.run(new_sqlite_database(path))
    return path


@pytest.fixture(params=KINDS)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database; support.database_choice decides which tests run on both kinds."""
    if request.param == "postgres":
        emptied: EmptiedDatabase = request.getfixturevalue("emptied")
        emptied.empty()
        return emptied.url
    return str(shutil.copy(request.getfixturevalue("empty_file"), tmp_path / "weftline.db"))


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    # Sessions are indexed on demand only, see World.index_sessions. Held calls are answered at once.
    return Settings(
        database_url=database_url,
        data_dir=str(tmp_path),
        rate_limits="off",
        session_indexing="off",
        search_wait_ms=0,
        approval_wait_seconds=0,
    )


@pytest.fixture(scope="session")
def settled_file(empty_file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Residents]:
    """Return a SQLite file with the tenants of a world: copying them is faster than creating them for each test."""
    folder = tmp_path_factory.mktemp("settled")
    source, target = folder / "source.db", folder / "weftline.db"
    shutil.copy(empty_file, source)

    def copy() -> None:
        with closing(sqlite3.connect(source)) as settled, closing(sqlite3.connect(target)) as copied:
            settled.backup(copied)

    return target, asyncio.run(_settled(str(source), copy))


@pytest.fixture(scope="session")
def settled_postgres(emptied: EmptiedDatabase) -> Residents:
    """Keep the rows of the tenants of a world in PostgreSQL."""
    emptied.empty()
    residents = asyncio.run(_settled(emptied.url, lambda: None))
    emptied.keep()
    emptied.empty()
    return residents


async def _settled(url: str, copy: Callable[[], None]) -> Residents:
    """Create the tenants of a world in an empty database, and copy it before anything else is written."""
    app = App(Settings(database_url=url, rate_limits="off"), clock=FrozenClock())
    await app.open(background=False)
    residents = await settle(app)
    copy()
    await app.close()
    return residents


@pytest.fixture
def residents(
    request: pytest.FixtureRequest, database_url: str, clock: FrozenClock, settings: Settings
) -> Residents | None:
    """Let the tenants of a world be in the database; None if time or secrets differ, so that a test creates them."""
    if clock.now() != FrozenClock().now() or settings.signing_secret:
        return None
    if database_url.startswith("postgresql:"):
        found: Residents = request.getfixturevalue("settled_postgres")
        request.getfixturevalue("emptied").fill()
        return found
    path, found = request.getfixturevalue("settled_file")
    shutil.copy(path, database_url)
    return found


@pytest.fixture
async def world(
    database_url: str, clock: FrozenClock, settings: Settings, residents: Residents | None
) -> AsyncIterator[World]:
    world = World(database_url, clock, settings)
    await world.open(residents)
    try:
        yield world
    finally:
        await world.close()
