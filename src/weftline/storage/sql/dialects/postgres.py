"""PostgreSQL through asyncpg: a connection pool, and row-level security that holds even if a query omits the tenant.

Every transaction runs as the role ``weftline_app``, which owns nothing and sees only the tenant in ``weftline.tenant``,
set for that transaction. Work across tenants runs as ``weftline_system``.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import asyncpg

from weftline.insight.metrics import SystemInfo
from weftline.kernel.errors import DiskFull, InternalError, InvalidInput, PoolNotInitialized, SystemUnavailable
from weftline.kernel.fair_queue import FairSlots
from weftline.storage.sql.database import SYSTEM, AccessChanged, SnapshotRows
from weftline.storage.sql.dialects.heavy_reads import (
    MAX_STEPS,
    STATEMENT_STEPS,
    UNLIMITED_STEPS,
    HeavyReads,
    TooManySteps,
)
from weftline.storage.sql.tenants import Connections, StorageUsage, database_figures
from weftline.storage.sql.vectors import (
    PgVectors,
    add_partitions,
    drop_unused_indexes,
    lacks_partition,
    lacks_pgvector,
    register_vector_codec,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from weftline.insight.metrics import DatabaseMetrics
    from weftline.kernel.events import NewEvent
    from weftline.kernel.transaction import Row, Transaction, Value
    from weftline.storage.sql.database import Scope

T = TypeVar("T")

DIALECT = {
    "for_update": "FOR UPDATE",
    "for_update_unless_locked": "FOR UPDATE SKIP LOCKED",
    "for_share": "FOR SHARE",
    "columns": (
        "(SELECT relname AS table_name, attname AS column_name"
        " FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid"
        " WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')"
        " AND NOT relispartition AND NOT attisdropped) AS schema_columns"
    ),
    "blob": "BYTEA",
    "bigint": "BIGINT",
    "table": "",
    "rows_table": "",
    "rows_table_by_tenant": "PARTITION BY LIST (tenant)",
    "real": "DOUBLE PRECISION",
    "vector": "HALFVEC",
    # column {among} $1 {end_among}: the column is one of the numbers in a JSON array.
    "among": "= ANY(translate(",
    "end_among": ", '[]', '{}')::bigint[])",
    # The same for strings.
    "among_texts": "= ANY(ARRAY(SELECT jsonb_array_elements_text(",
    "end_among_texts": "::jsonb)))",
    # SQL for SQLite only becomes a comment here.
    "sqlite_only": "/*",
    "end_sqlite_only": "*/",
    "postgres_only": "",
    "end_postgres_only": "",
}

# Sets up row-level security. Runs at every start, so that no new table with a tenant is missed; tables that have it
# are skipped, because ALTER TABLE waits for every transaction on the table.
_SECURE = """
DO $$
DECLARE name text;
BEGIN
  -- Roles are global to the server: another database on it may have created them, possibly concurrently.
  FOREACH name IN ARRAY ARRAY['weftline_app', 'weftline_system'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
      BEGIN EXECUTE format('CREATE ROLE %I NOLOGIN', name);
      EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END;
    END IF;
    IF NOT pg_has_role(current_user, name, 'MEMBER') THEN
      EXECUTE format('GRANT %I TO %I', name, current_user);
    END IF;
  END LOOP;
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO weftline_app, weftline_system', current_schema());
  FOR name IN SELECT table_name FROM information_schema.columns
              WHERE table_schema = current_schema() AND column_name = 'tenant' AND table_name NOT IN (
                SELECT tablename FROM pg_policies
                WHERE schemaname = current_schema() AND policyname = 'whole_installation') LOOP
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO weftline_app, weftline_system', name);
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format('CREATE POLICY one_tenant ON %I TO weftline_app USING (tenant = current_setting(''weftline.tenant'',
    true))'
                   || ' WITH CHECK (tenant = current_setting(''weftline.tenant'', true))', name);
    EXECUTE format('CREATE POLICY whole_installation ON %I TO weftline_system USING (true) WITH CHECK (true)', name);
  END LOOP;
END $$;
CREATE OR REPLACE FUNCTION weftline_enter(entering text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('role', 'weftline_app', true);
  PERFORM set_config('weftline.tenant', entering, true);
  RETURN (SELECT access_epoch FROM tenants WHERE tenant = entering);
END $$;
GRANT EXECUTE ON FUNCTION weftline_enter(text) TO weftline_app, weftline_system;
"""

# CREATE POLICY waits for every transaction on the table, so it runs only where a policy is missing.
_UNGUARDED = """
SELECT to_regprocedure('weftline_enter(text)') IS NULL OR EXISTS (
    SELECT FROM information_schema.columns tenant_column
    JOIN pg_class ON pg_class.oid = format('%I.%I', table_schema, table_name)::regclass
    WHERE table_schema = current_schema() AND column_name = 'tenant' AND NOT (
        relrowsecurity AND relforcerowsecurity
        AND 2 = (SELECT count(*) FROM pg_policies WHERE schemaname = table_schema AND tablename = table_name)))
"""

_CHANNEL = "weftline_events"
_SCHEMA_LOCK = 0x77656674
_ATTEMPTS = 5
_POOL_SIZE = 16
# Writes may hold this part of the connections, so that reads find one while writes wait for each other's locks.
_WRITING = 0.75
# Connections that one tenant may hold at the same time; its principals one less each.
_SHARE = 0.75
_MAX_WAIT_SECONDS = 60.0
_MAX_WAITING = 10_000
_CONNECT_SECONDS = 10.0
_MISSED_WAKE_POLL_SECONDS = 1.0
_WAKE_EVERY_SECONDS = 0.005
_LOST_RACES = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
_UNREACHABLE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    # Raised by asyncpg when the server's last message arrived while the connection was idle.
    asyncpg.InternalClientError,
    asyncpg.CannotConnectNowError,
    # The server stops, or has become a standby.
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
    # A database that accepts no connections now.
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    OSError,
    TimeoutError,
)


class PostgresTransaction:
    """Statements inside one open transaction."""

    __slots__ = ("_connection", "_steps_left", "_usage", "access_changed", "named_types", "published", "tenant")

    def __init__(
        self,
        connection: Any,  # noqa: ANN401 - asyncpg's proxies are untyped
        tenant: str,
        usage: StorageUsage,
        max_steps: int = UNLIMITED_STEPS,
    ) -> None:
        self._connection = connection
        self._usage = usage
        self._steps_left = max_steps
        self.tenant = tenant
        self.published: list[NewEvent] = []
        self.named_types: set[str] = set()
        self.access_changed = False

    async def one(self, sql: str, *values: Value) -> Row | None:
        self._usage.statements += 1
        self._step(STATEMENT_STEPS)
        return await self._connection.fetchrow(_rendered(sql), *values)

    async def all(self, sql: str, *values: Value) -> Sequence[Row]:
        self._usage.statements += 1
        rows: Sequence[Row] = await self._connection.fetch(_rendered(sql), *values)
        self._step(STATEMENT_STEPS + len(rows))
        return rows

    async def run(self, sql: str, *values: Value) -> None:
        self._usage.statements += 1
        await self._connection.execute(_rendered(sql), *values)

    async def changed(self, sql: str, *values: Value) -> int:
        self._usage.statements += 1
        # The command tag, such as "INSERT 0 1" or "UPDATE 3".
        done: str = await self._connection.execute(_rendered(sql), *values)
        return int(done.rpartition(" ")[2])

    async def many(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        if rows:
            self._usage.statements += len(rows)
            await self._connection.executemany(_rendered(sql), rows)

    async def yield_to_loop(self) -> None:
        await asyncio.sleep(0)

    def _step(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise TooManySteps


class PostgresSnapshot(PostgresTransaction):
    """A transaction that only reads. What it has looked up before, it does not look up again."""

    __slots__ = ("_rows",)

    def __init__(self, *parts: Any) -> None:  # noqa: ANN401 - those of the base
        super().__init__(*parts)
        self._rows = SnapshotRows()

    async def one(self, sql: str, *values: Value) -> Row | None:
        return await self._rows.one(super().one, sql, values)


@cache
def _rendered(sql: str) -> str:
    return sql.format_map(DIALECT)


def _fair_slots(total: int) -> FairSlots:
    return FairSlots(total, share=_SHARE, max_wait_seconds=_MAX_WAIT_SECONDS, max_waiting=_MAX_WAITING)


class PostgresDatabase:
    """One PostgreSQL database, shared by any number of Weftline processes.

    With a direct address, the other one may lead to a pooler in transaction mode. There no statement has a name, as
    the next transaction may be on another server connection; what outlives a transaction uses the direct address.
    """

    def __init__(self, url: str, direct_url: str = "") -> None:
        self._url = url
        self._direct_url = direct_url or url
        # For each connection; 100 is asyncpg's default.
        self._named_statements = 0 if direct_url else 100
        self._pool: Any = None
        self._listeners: set[asyncio.Queue[set[str]]] = set()
        self._to_announce: set[str] = set()
        self._announcer: asyncio.Task[None] | None = None
        self._usage = StorageUsage()
        self._opened = self._in_use = 0
        self._knows_vectors = True
        self._slots = _fair_slots(_POOL_SIZE)
        self._write_slots = _fair_slots(int(_POOL_SIZE * _WRITING))
        self._heavy_reads: HeavyReads[_HeavyReader] = HeavyReads(lambda: _HeavyReader(url, self._named_statements))

    async def open(self) -> None:
        async with _translated(self._usage):
            self._pool = await asyncpg.create_pool(
                self._url,
                min_size=1,
                max_size=_POOL_SIZE,
                init=self._make_ready,
                reset=_nothing_to_reset,
                timeout=_CONNECT_SECONDS,
                statement_cache_size=self._named_statements,
            )

    async def close(self) -> None:
        if self._announcer is not None:
            await self._announcer
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await asyncio.to_thread(self._heavy_reads.close)
            await pool.close()

    async def read(self, scope: Scope, work: Callable[[Transaction], Awaitable[T]], *, heavy: bool = False) -> T:
        if self._pool is None:
            raise PoolNotInitialized
        if not heavy:
            try:
                return await self._read(scope, work)
            except TooManySteps:
                pass
        return await self._heavy_reads.run(scope, lambda reader, usage: reader.read(scope, work, usage))

    async def _read(self, scope: Scope, work: Callable[[Transaction], Awaitable[T]]) -> T:
        async with _translated(self._usage), self._acquired(scope) as connection:
            # Background work paces itself, and may not expect to run in a thread.
            max_steps = MAX_STEPS if scope.principal else UNLIMITED_STEPS
            async with _entered(connection, scope, self._usage, max_steps=max_steps) as transaction:
                return await work(transaction)

    async def write(self, scope: Scope, work: Callable[[Transaction], Awaitable[T]]) -> T:
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                async with (
                    _translated(self._usage),
                    self._acquired(scope, writes=True) as connection,
                    _entered(connection, scope, self._usage, readonly=False) as transaction,
                ):
                    result = await work(transaction)
            except _LOST_RACES as error:
                if not attempts_left:
                    raise SystemUnavailable("Too many concurrent changes of the same data.") from error
            except asyncpg.CheckViolationError as error:
                if scope.tenant is None or not attempts_left or not lacks_partition(error):
                    raise
                await self.prepare_vectors([scope.tenant])
            else:
                if transaction.published or transaction.access_changed:
                    # Changed access ends streams at once.
                    self._announce(transaction.tenant)
                return result
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def exclusively(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        async with self._owned() as connection:
            result = await work(PostgresTransaction(connection, "", self._usage))
        if not self._knows_vectors:
            # Connections opened before the extension existed lack its types.
            await self._connections().expire_connections()
            self._knows_vectors = True
        return result

    async def prepare_vectors(self, tenants: Iterable[str]) -> None:
        async with self._owned() as connection:
            await add_partitions(connection, tenants)

    async def wakes(self) -> AsyncIterator[set[str]]:
        """Yield tenants announced by any process, and periodically an empty set in case a NOTIFY was lost."""
        mailbox: asyncio.Queue[set[str]] = asyncio.Queue()
        self._listeners.add(mailbox)
        listening = asyncio.create_task(self._listen(mailbox))
        try:
            while True:
                try:
                    # Not wait_for, which in Python 3.11 can swallow the cancellation that ends this loop.
                    async with asyncio.timeout(_MISSED_WAKE_POLL_SECONDS):
                        announced = await mailbox.get()
                except TimeoutError:
                    announced = set()
                yield announced
        finally:
            self._listeners.discard(mailbox)
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening

    def query_totals(self) -> tuple[int, float]:
        usage = self._usage + self._heavy_reads.usage
        return usage.transactions, usage.seconds

    def figures(self) -> DatabaseMetrics:
        pool = self._pool
        info = SystemInfo(
            pool_initialized=pool is not None,
            database_url=_place(self._url),
            min_pool_size=1,
            max_pool_size=_POOL_SIZE,
            connection_timeout=_CONNECT_SECONDS,
        )
        # The pool does not count a connection that was lost while in use.
        open_now = max(pool.get_size() if pool is not None else 0, self._in_use)
        heavy = self._heavy_reads
        connections = Connections(self._opened + heavy.opened, open_now + heavy.open, self._in_use + heavy.in_use)
        return database_figures(self._usage + heavy.usage, connections, info)

    @asynccontextmanager
    async def _acquired(self, scope: Scope = SYSTEM, *, writes: bool = False) -> AsyncIterator[Any]:
        """Acquire a connection for the principal of a scope, measuring the wait and the time it was held."""
        asked = time.perf_counter()
        flow = (scope.tenant or "", scope.principal)
        async with (
            self._write_slots.hold(*flow) if writes else contextlib.nullcontext(),
            self._slots.hold(*flow),
            self._connections().acquire() as connection,
        ):
            started = time.perf_counter()
            self._in_use += 1
            self._usage.waited(started - asked)
            self._usage.began(self._in_use)
            try:
                yield connection
            except asyncpg.ReadOnlySQLTransactionError:
                # After a failover, open connections still lead to the server that is now a standby.
                await self._connections().expire_connections()
                raise
            finally:
                self._in_use -= 1
                self._usage.ended(time.perf_counter() - started)

    def vector_search(self, tenant: str, collection: str, model: str) -> PgVectors:
        return PgVectors(self, tenant, collection, model)

    async def tidy_vectors(self, tenant: str) -> None:
        await drop_unused_indexes(self, tenant)

    @asynccontextmanager
    async def owning(self) -> AsyncIterator[Any]:
        """Acquire a connection of the schema owner outside a transaction, for statements that cannot run in one."""
        async with _translated(self._usage):
            if self._direct_url == self._url:
                async with self._acquired() as connection:
                    yield connection
                return
            connection = await asyncpg.connect(self._direct_url, timeout=_CONNECT_SECONDS)
            try:
                yield connection
            finally:
                await connection.close()

    @asynccontextmanager
    async def _owned(self) -> AsyncIterator[Any]:
        """Open a transaction that may change the schema, under a global lock; secure every table before commit."""
        async with _translated(self._usage), self._acquired() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _SCHEMA_LOCK)
            yield connection
            if await connection.fetchval(_UNGUARDED):
                await connection.execute(_SECURE)

    def _connections(self) -> Any:  # noqa: ANN401 - asyncpg's pool is untyped
        if self._pool is None:
            raise PoolNotInitialized
        return self._pool

    async def _make_ready(self, connection: Any) -> None:  # noqa: ANN401 - asyncpg's own type is private
        self._opened += 1
        self._knows_vectors &= await register_vector_codec(connection)

    def _announce(self, tenant: str) -> None:
        for mailbox in self._listeners:
            mailbox.put_nowait({tenant})
        self._to_announce.add(tenant)
        if self._announcer is None or self._announcer.done():
            self._announcer = asyncio.create_task(self._announce_elsewhere())

    async def _announce_elsewhere(self) -> None:
        # NOTIFY inside the writing transactions would serialise their commits on one lock. The events table is the
        # source of truth and wake-ups may be late, so they are batched and sent outside those transactions.
        while self._to_announce and self._pool is not None:
            tenants, self._to_announce = self._to_announce, set()
            with contextlib.suppress(*_UNREACHABLE):
                async with self._acquired() as connection:
                    self._usage.statements += 1
                    await connection.execute(
                        "SELECT pg_notify($1, tenant) FROM unnest($2::text[]) AS tenant", _CHANNEL, list(tenants)
                    )
            await asyncio.sleep(_WAKE_EVERY_SECONDS)

    async def _listen(self, mailbox: asyncio.Queue[set[str]]) -> None:
        while True:
            with contextlib.suppress(*_UNREACHABLE):
                connection = await asyncpg.connect(self._direct_url, timeout=_CONNECT_SECONDS)
                self._opened += 1
                lost = asyncio.Event()
                connection.add_termination_listener(lambda _, lost=lost: lost.set())
                try:
                    await connection.add_listener(_CHANNEL, lambda *heard: mailbox.put_nowait({str(heard[3])}))
                    await lost.wait()
                finally:
                    await connection.close()
            await asyncio.sleep(_MISSED_WAKE_POLL_SECONDS)


class _HeavyReader:
    """The connection of one thread of heavy reads, with an event loop of its own."""

    def __init__(self, url: str, named_statements: int) -> None:
        self._loop = asyncio.new_event_loop()
        try:
            self._connection = self._loop.run_until_complete(_connected(url, named_statements))
        except BaseException:
            self._loop.close()
            raise

    def is_open(self) -> bool:
        return not self._connection.is_closed()

    def close(self) -> None:
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()

    def read(self, scope: Scope, work: Callable[[Transaction], Awaitable[T]], usage: StorageUsage) -> T:
        return self._loop.run_until_complete(self._read(scope, work, usage))

    async def _read(self, scope: Scope, work: Callable[[Transaction], Awaitable[T]], usage: StorageUsage) -> T:
        started = time.perf_counter()
        try:
            async with _translated(usage), _entered(self._connection, scope, usage) as transaction:
                return await work(transaction)
        finally:
            usage.ended(time.perf_counter() - started)


async def _connected(url: str, named_statements: int) -> Any:  # noqa: ANN401 - asyncpg's own type is private
    async with _translated(StorageUsage()):
        connection = await asyncpg.connect(url, timeout=_CONNECT_SECONDS, statement_cache_size=named_statements)
        await register_vector_codec(connection)
        return connection


@asynccontextmanager
async def _entered(
    connection: Any,  # noqa: ANN401 - asyncpg's own type is private
    scope: Scope,
    usage: StorageUsage,
    *,
    readonly: bool = True,
    max_steps: int = UNLIMITED_STEPS,
) -> AsyncIterator[PostgresTransaction]:
    """Open a transaction in a scope."""
    isolation = "repeatable_read" if readonly else "read_committed"
    async with connection.transaction(isolation=isolation, readonly=readonly):
        usage.statements += 1
        if scope.tenant is None:
            await connection.execute("SET LOCAL ROLE weftline_system")
        else:
            epoch = await connection.fetchval("SELECT weftline_enter($1)", scope.tenant)
            if scope.epoch is not None and epoch != scope.epoch:
                raise AccessChanged
        transaction = PostgresSnapshot if readonly else PostgresTransaction
        yield transaction(connection, scope.tenant or "", usage, max_steps)


async def _nothing_to_reset(_connection: Any) -> None:  # noqa: ANN401 - asyncpg's own type is private
    """Skip asyncpg's reset: role and tenant are set for one transaction only, so nothing carries over."""


def _place(url: str) -> str:
    """Return the host and database of an address, without credentials or socket paths."""
    parts = urlsplit(url)
    return "/".join(filter(None, (parts.hostname, unquote(parts.path).strip("/")))) or parts.scheme


@asynccontextmanager
async def _translated(usage: StorageUsage) -> AsyncIterator[None]:
    """Translate asyncpg's exceptions to ours, and count connection failures."""
    try:
        yield
    except (asyncpg.DiskFullError, asyncpg.OutOfMemoryError) as error:
        raise DiskFull from error
    except asyncpg.DataCorruptedError as error:
        raise InternalError("PostgreSQL reports damaged data; restore it from a backup.") from error
    except (asyncpg.UndefinedFileError, asyncpg.FeatureNotSupportedError, asyncpg.UndefinedObjectError) as error:
        if not lacks_pgvector(error):
            raise
        raise SystemUnavailable(
            "This PostgreSQL server lacks the pgvector extension.",
            hint="Install pgvector 0.8 or newer on the server, then start Weftline again.",
        ) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise SystemUnavailable(
            "This PostgreSQL login lacks the privileges to set up Weftline.",
            hint="Grant it CREATEROLE and CREATE on the schema, or have an administrator create the roles "
            "weftline_app and weftline_system and grant them to it.",
        ) from error
    except (asyncpg.DataError, UnicodeEncodeError) as error:
        raise InvalidInput("A value cannot be stored as it was sent.") from error
    except _UNREACHABLE as error:
        usage.unreachable += 1
        raise SystemUnavailable(f"PostgreSQL is unreachable ({type(error).__name__}).") from error
