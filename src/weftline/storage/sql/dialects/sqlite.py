"""SQLite through apsw: WAL, synchronous=FULL, one writer thread with group commit, readers that never block.

Work is written as coroutines so that the same code runs on PostgreSQL. Here nothing in a transaction has to wait, so a
coroutine simply runs to its end: reads on the caller's thread (WAL readers are never blocked), writes on the writer
thread, where all queued writes share one commit and its fsync.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import apsw

from weftline.insight.metrics import SystemInfo
from weftline.kernel.errors import (
    DiskFull,
    InternalError,
    InvalidInput,
    PoolNotInitialized,
    ServerBusy,
    SystemUnavailable,
    WeftlineError,
)
from weftline.kernel.fair_queue import server_busy
from weftline.storage.sql.database import SYSTEM, AccessChanged, SnapshotRows
from weftline.storage.sql.dialects.heavy_reads import (
    MAX_STEPS,
    STATEMENT_STEPS,
    UNLIMITED_STEPS,
    HeavyReads,
    TooManySteps,
)
from weftline.storage.sql.dialects.sqlite_writes import GROUP_LIMIT, MAX_WAIT_SECONDS, WorkClock, WriteJob, WriteQueue
from weftline.storage.sql.tenants import Connections, StorageUsage, database_figures

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence

    from weftline.insight.metrics import DatabaseMetrics
    from weftline.kernel.events import NewEvent
    from weftline.kernel.transaction import Row, Transaction, Value
    from weftline.storage.sql.database import Scope


# Fixed statistics for SQLite's query planner: the tenant column is not selective, every further column is.
#
# Without statistics SQLite assumes that the first column of an index is selective. All of our indexes begin with the
# tenant, so it would scan a whole tenant where another index finds the row directly. Statistics from ANALYZE would
# make plans depend on the data; these are the same everywhere.

_ROWS = 1_000_000
# The primary key of a table without rowids is listed under the table's name.
_INDEXES = """
SELECT t.name, CASE WHEN i.origin = 'pk' AND l.wr THEN t.name ELSE i.name END AS known_as, i.origin, COUNT(*)
FROM sqlite_schema t, pragma_table_list(t.name) l, pragma_index_list(t.name) i, pragma_index_info(i.name) c
WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' AND l.schema = 'main'
GROUP BY t.name, i.name ORDER BY t.name, known_as
"""


class Statistic(NamedTuple):
    """A row of sqlite_stat1: how many rows there are, and how many share each longer prefix of an index."""

    table: str
    name: str
    numbers: str


async def teach_planner(transaction: Transaction) -> bool:
    """Store the statistics; False if they are already stored."""
    wanted = [_statistic(*row) for row in await transaction.all(_INDEXES)]
    if await _known(transaction) == wanted:
        return False
    await transaction.run("ANALYZE")
    await transaction.run("DELETE FROM sqlite_stat1")
    for statistic in wanted:
        await transaction.run("INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES ($1, $2, $3)", *statistic)
    await transaction.run("ANALYZE sqlite_schema")
    return True


async def _known(transaction: Transaction) -> list[Statistic]:
    if await transaction.one("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_stat1'") is None:
        return []
    rows = await transaction.all("SELECT tbl, idx, stat FROM sqlite_stat1 ORDER BY tbl, idx")
    return [Statistic(*row) for row in rows]


def _statistic(table: str, index: str, origin: str, columns: int) -> Statistic:
    sharing = [round(_ROWS ** (1 - place / columns)) for place in range(columns)]
    if origin == "pk":
        # The last column of a unique index selects one row.
        sharing[-1] = 1
    return Statistic(table, index, " ".join(map(str, [_ROWS, *sharing])))


T = TypeVar("T")
# Access epochs by tenant, cached for one transaction.
_Epochs = dict[str, tuple[int] | None]

DIALECT = {
    "for_update": "",
    "for_update_unless_locked": "",
    "for_share": "",
    "columns": (
        "(SELECT t.name AS table_name, c.name AS column_name FROM sqlite_schema t, pragma_table_info(t.name) c"
        " WHERE t.type = 'table') AS schema_columns"
    ),
    "blob": "BLOB",
    "bigint": "INTEGER",
    "table": "STRICT, WITHOUT ROWID",
    # For large rows: above about a kilobyte, each takes whole pages in a table without rowids.
    "rows_table": "STRICT",
    "rows_table_by_tenant": "STRICT",
    "real": "REAL",
    "vector": "BLOB",
    # column {among} $1 {end_among}: the column is one of the numbers in a JSON array.
    "among": "IN (SELECT value FROM json_each(",
    "end_among": "))",
    # The same for strings.
    "among_texts": "IN (SELECT value FROM json_each(",
    "end_among_texts": "))",
    "sqlite_only": "",
    "end_sqlite_only": "",
    # SQL for PostgreSQL only becomes a comment here.
    "postgres_only": "/*",
    "end_postgres_only": "*/",
}

_EPOCH = "SELECT access_epoch FROM tenants WHERE tenant = $1"
_BUSY_MILLISECONDS = 10_000
_CHECKPOINT_PAGES = 4_000
_CACHE_KIBIBYTES = 32 * 1024
_HEAVY_CACHE_KIBIBYTES = 8 * 1024
_FOREIGN_WRITE_POLL_SECONDS = 0.1
# The writer's connection and the reader's; each thread of heavy reads opens one at its first.
_ALWAYS_OPEN = 2


class SqliteTransaction:
    """Statements on one connection; each completes before it returns."""

    __slots__ = ("_cursor", "_steps_left", "_usage", "access_changed", "named_types", "published", "tenant")

    def __init__(self, cursor: apsw.Cursor, tenant: str, usage: StorageUsage, max_steps: int = UNLIMITED_STEPS) -> None:
        self._cursor = cursor
        self._usage = usage
        self._steps_left = max_steps
        self.tenant = tenant
        self.published: list[NewEvent] = []
        self.named_types: set[str] = set()
        self.access_changed = False

    async def one(self, sql: str, *values: Value) -> Row | None:
        self._usage.statements += 1
        self._steps_left -= STATEMENT_STEPS
        if self._steps_left < 0:
            raise TooManySteps
        # All statements of a transaction share this cursor, so the next one closes an unfinished result.
        return self._cursor.execute(_rendered(sql), values).fetchone()

    async def all(self, sql: str, *values: Value) -> Sequence[Row]:
        self._usage.statements += 1
        rows = list(islice(self._cursor.execute(_rendered(sql), values), self._steps_left + 1))
        self._steps_left -= STATEMENT_STEPS + len(rows)
        if self._steps_left < 0:
            raise TooManySteps
        return rows

    async def run(self, sql: str, *values: Value) -> None:
        self._usage.statements += 1
        self._cursor.execute(_rendered(sql), values)

    async def changed(self, sql: str, *values: Value) -> int:
        await self.run(sql, *values)
        return self._cursor.connection.changes()

    async def many(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        if rows:
            self._usage.statements += len(rows)
            self._cursor.executemany(_rendered(sql), rows)

    async def yield_to_loop(self) -> None:
        """Do nothing: long work runs on a separate thread."""


class SqliteSnapshot(SqliteTransaction):
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


class _NeedsSavepoints(Exception):
    """A job failed after it had changed rows; the group must be repeated with a savepoint for each job."""


class SqliteDatabase:
    """One SQLite file. Several processes may share it; SQLite's own locks keep them safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue = WriteQueue()
        self._reader: apsw.Connection | None = None
        self._writer: apsw.Connection | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: set[asyncio.Queue[set[str]]] = set()
        self._announced = 0
        self._reads, self._writes = StorageUsage(), StorageUsage()
        self._opened = self._writing = 0
        self._heavy_reads: HeavyReads[_HeavyReader] = HeavyReads(lambda: _HeavyReader(self._path))

    async def open(self) -> None:
        with _translated():
            _make_private_folder(self._path.parent)
            self._writer = _connect(self._path)
            self._reader = _connect_to_read(self._path)
        self._opened += _ALWAYS_OPEN
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write_forever, name="weftline-writer", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        if self._thread is not None:
            self._queue.close()
            await asyncio.to_thread(self._thread.join)
            await asyncio.to_thread(self._heavy_reads.close)
            self._thread = None
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = None

    async def read(self, scope: Scope, work: Callable[[Transaction], Awaitable[T]], *, heavy: bool = False) -> T:
        if self._reader is None:
            raise PoolNotInitialized
        if not heavy:
            self._reads.began(1 + self._writing + self._heavy_reads.in_use)
            # Background work paces itself, and may not expect to run in a thread.
            max_steps = MAX_STEPS if scope.principal else UNLIMITED_STEPS
            try:
                return _read(self._reader, scope, work, self._reads, max_steps)
            except TooManySteps:
                pass
        return await self._heavy_reads.run(scope, lambda reader, usage: _read(reader.connection, scope, work, usage))

    async def write(self, scope: Scope, work: Callable[[Transaction], Awaitable[T]]) -> T:
        if self._thread is None or self._loop is None:
            raise PoolNotInitialized
        done: asyncio.Future[T] = self._loop.create_future()
        # Shielded: the write happens even if the caller is cancelled, and may be committed already.
        self._queue.put(WriteJob(scope, work, done))
        return await done

    async def exclusively(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        result = await self.write(SYSTEM, work)
        if await self.write(SYSTEM, teach_planner) and self._reader is not None:
            self._reader.close()
            self._reader = _connect_to_read(self._path)
            self._opened += 1
            self._heavy_reads.close_connections()
        return result

    async def prepare_vectors(self, tenants: Iterable[str]) -> None:
        """Do nothing: one table stores the vectors of all tenants."""

    def vector_search(self, tenant: str, collection: str, model: str) -> None:
        """Return None: SQLite only stores vectors."""

    async def tidy_vectors(self, tenant: str) -> None:
        """Do nothing: SQLite has no vector indexes."""

    async def wakes(self) -> AsyncIterator[set[str]]:
        """Yield tenants written by this process, and an empty set when another process wrote to the file."""
        mailbox: asyncio.Queue[set[str]] = asyncio.Queue()
        self._listeners.add(mailbox)
        # A separate task, because a timer per write would cost as much as one of its statements.
        watching = asyncio.create_task(self._watch_foreign_writes(mailbox))
        try:
            while True:
                yield await mailbox.get()
        finally:
            self._listeners.discard(mailbox)
            watching.cancel()

    async def _watch_foreign_writes(self, mailbox: asyncio.Queue[set[str]]) -> None:
        seen, own = self._data_version(), self._announced
        while True:
            await asyncio.sleep(_FOREIGN_WRITE_POLL_SECONDS)
            if own != self._announced:
                # Our own writes change the counter too, so it is meaningful only after an interval without any.
                own = self._announced
                continue
            version = self._data_version()
            if version != seen:
                seen = version
                mailbox.put_nowait(set())

    def query_totals(self) -> tuple[int, float]:
        usage = self._reads + self._writes + self._heavy_reads.usage
        return usage.transactions, usage.seconds

    def figures(self) -> DatabaseMetrics:
        is_open = self._reader is not None
        info = SystemInfo(
            pool_initialized=is_open,
            database_url=self._path.name,
            min_pool_size=_ALWAYS_OPEN,
            max_pool_size=None,
            connection_timeout=_BUSY_MILLISECONDS / 1_000,
        )
        heavy = self._heavy_reads
        open_now = (_ALWAYS_OPEN if is_open else 0) + heavy.open
        connections = Connections(self._opened + heavy.opened, open_now, self._writing + heavy.in_use)
        return database_figures(self._reads + self._writes + heavy.usage, connections, info)

    def _data_version(self) -> int:
        # Counts commits of every other connection, including this process's writer: at worst a spurious wake-up,
        # never a missed one.
        return int(self._reader.pragma("data_version")) if self._reader is not None else 0

    def _write_forever(self) -> None:
        expected = 1
        while (first := self._queue.first(expected)) is not None:
            self._writing = 1
            self._writes.began(1 + self._heavy_reads.in_use)
            group = _commit_together(self._writer, first, self._queue, self._writes)
            expected = len(group)
            self._writing = 0
            self._announce(group)
            # While no write comes, the last ones and what they refer to would stay in memory.
            del first, group

    def _announce(self, group: list[WriteJob]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._answer, group)

    def _answer(self, group: Iterable[WriteJob]) -> None:
        written: set[str] = set()
        for job in group:
            self._queue.settle(job)
            if job.done.cancelled():
                continue
            if job.error is not None:
                job.done.set_exception(job.error)
            else:
                job.done.set_result(job.result)
                if job.scope.tenant is not None:
                    written.add(job.scope.tenant)
        if written:
            self._announced += 1
            for mailbox in self._listeners:
                mailbox.put_nowait(written)


def _make_private_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def _connect(path: Path) -> apsw.Connection:
    connection = apsw.Connection(os.fspath(path), statementcachesize=256)
    connection.set_busy_timeout(_BUSY_MILLISECONDS)
    # Plans must not depend on bound values: otherwise SQLite prepares the statement again at every execution.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.pragma("journal_mode", "WAL")
    # NORMAL may lose the last commits when the machine loses power; an acknowledged write must not be lost.
    connection.pragma("synchronous", "FULL")
    connection.pragma("wal_autocheckpoint", _CHECKPOINT_PAGES)
    connection.pragma("cache_size", -_CACHE_KIBIBYTES)
    connection.pragma("temp_store", "MEMORY")
    connection.pragma("foreign_keys", True)  # noqa: FBT003 - a pragma's value
    path.chmod(0o600)
    return connection


def _connect_to_read(path: Path) -> apsw.Connection:
    connection = _connect(path)
    connection.pragma("query_only", True)  # noqa: FBT003 - a pragma's value
    return connection


class _HeavyReader:
    """The connection of one thread of heavy reads."""

    def __init__(self, path: Path) -> None:
        with _translated():
            self.connection = _connect_to_read(path)
            self.connection.pragma("cache_size", -_HEAVY_CACHE_KIBIBYTES)
        self._is_open = True

    def is_open(self) -> bool:
        return self._is_open

    def close(self) -> None:
        self._is_open = False
        self.connection.close()


def _read(
    connection: apsw.Connection,
    scope: Scope,
    work: Callable[[Transaction], Awaitable[T]],
    usage: StorageUsage,
    max_steps: int = UNLIMITED_STEPS,
) -> T:
    with _measured(usage):
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        try:
            return _run_to_end(cursor, scope, work, {}, usage, max_steps, reads=True)
        finally:
            cursor.execute("ROLLBACK")


def _commit_together(
    connection: apsw.Connection | None, first: WriteJob, waiting: WriteQueue, usage: StorageUsage
) -> list[WriteJob]:
    """Run a job and those that wait, as many as fit in the time of a group, in one transaction; return them.

    A job that fails has nearly always changed nothing yet, so savepoints are used only when one did.
    """
    if connection is None:
        raise PoolNotInitialized
    group = [first]
    cursor = connection.cursor()
    try:
        with _measured(usage):
            try:
                _run_group(cursor, group, waiting, usage)
            except _NeedsSavepoints:
                cursor.execute("ROLLBACK")
                _repeat_group(cursor, group, usage)
    except Exception as error:  # noqa: BLE001 - any error must reach the callers, and the writer must survive
        if connection.in_transaction:
            cursor.execute("ROLLBACK")
        for job in group:
            job.error = job.error or error
    return group


def _run_group(cursor: apsw.Cursor, group: list[WriteJob], waiting: WriteQueue, usage: StorageUsage) -> None:
    """Run the first job, then those that wait until the time of a group is spent; add them to the group."""
    cursor.execute("BEGIN IMMEDIATE")
    epochs: _Epochs = {}
    job: WriteJob | None = group[0]
    now, clock, waited = time.perf_counter(), WorkClock(), 0.0
    while job is not None:
        waiting_seconds = now - job.queued_at
        if waiting_seconds > 0:
            waited += waiting_seconds
        if waiting_seconds > MAX_WAIT_SECONDS and job.scope.principal:
            job.error = server_busy(waiting_seconds)
        else:
            _attempt(cursor, job, epochs, usage)
        _check_disk(cursor)
        waiting.charge(job, clock.lap())
        if waiting.is_time_spent(clock.total) or len(group) == GROUP_LIMIT:
            break
        job = waiting.following()
        if job is not None:
            group.append(job)
    usage.waited(waited, len(group))
    cursor.execute("COMMIT")


def _repeat_group(cursor: apsw.Cursor, group: list[WriteJob], usage: StorageUsage) -> None:
    cursor.execute("BEGIN IMMEDIATE")
    epochs: _Epochs = {}
    for job in group:
        if not isinstance(job.error, ServerBusy):
            job.error = None
            _attempt_behind_savepoint(cursor, job, epochs, usage)
            _check_disk(cursor)
    cursor.execute("COMMIT")


def _check_disk(cursor: apsw.Cursor) -> None:
    # On a full disk SQLite rolls back the whole transaction, including the jobs before this one.
    if not cursor.connection.in_transaction:
        raise DiskFull


def _attempt(cursor: apsw.Cursor, job: WriteJob, epochs: _Epochs, usage: StorageUsage) -> None:
    before = cursor.connection.total_changes()
    try:
        job.result = _run_to_end(cursor, job.scope, job.work, epochs, usage)
    except BaseException as error:
        job.error = _translation(error)
        if cursor.connection.total_changes() != before and cursor.connection.in_transaction:
            raise _NeedsSavepoints from error


def _attempt_behind_savepoint(cursor: apsw.Cursor, job: WriteJob, epochs: _Epochs, usage: StorageUsage) -> None:
    cursor.execute("SAVEPOINT job")
    try:
        job.result = _run_to_end(cursor, job.scope, job.work, epochs, usage)
    except BaseException as error:  # noqa: BLE001 - handed to the caller that waits for this job
        job.error = _translation(error)
        if cursor.connection.in_transaction:
            cursor.execute("ROLLBACK TO job")
    if cursor.connection.in_transaction:
        cursor.execute("RELEASE job")


def _run_to_end(
    cursor: apsw.Cursor,
    scope: Scope,
    work: Callable[[Transaction], Awaitable[T]],
    epochs: _Epochs,
    usage: StorageUsage,
    max_steps: int = UNLIMITED_STEPS,
    *,
    reads: bool = False,
) -> T:
    tenant = scope.tenant or ""
    if scope.epoch is not None:
        if tenant not in epochs:
            usage.statements += 1
            epochs[tenant] = cursor.execute(_EPOCH, (tenant,)).fetchone()
        if epochs[tenant] != (scope.epoch,):
            raise AccessChanged
    transaction = (SqliteSnapshot if reads else SqliteTransaction)(cursor, tenant, usage, max_steps)
    running = work(transaction).__await__()
    try:
        next(running)
    except StopIteration as finished:
        if transaction.access_changed:
            epochs.clear()
        result: T = finished.value
        return result
    raise RuntimeError("a transaction waited for something other than its own statements")


@contextmanager
def _measured(usage: StorageUsage) -> Iterator[None]:
    """Time and count a transaction, and translate apsw's exceptions to ours."""
    started = time.perf_counter()
    try:
        yield
    except (apsw.Error, OSError, UnicodeEncodeError) as error:
        ours = _translation(error)
        if isinstance(ours, SystemUnavailable):
            usage.unreachable += 1
        raise ours from error
    finally:
        usage.ended(time.perf_counter() - started)


@contextmanager
def _translated() -> Iterator[None]:
    """Translate apsw's exceptions to ours outside a transaction."""
    try:
        yield
    except (apsw.Error, OSError, UnicodeEncodeError) as error:
        raise _translation(error) from error


def _translation(error: BaseException) -> BaseException:
    match error:
        case apsw.FullError():
            ours: WeftlineError = DiskFull()
        case UnicodeEncodeError():
            ours = InvalidInput("A value cannot be stored as it was sent.")
        case apsw.CorruptError() | apsw.NotADBError():
            ours = InternalError("The database file is damaged; restore it from a backup with weftline db restore.")
        case apsw.BusyError() | apsw.LockedError() | apsw.IOError() | apsw.CantOpenError() | apsw.ReadOnlyError():
            ours = SystemUnavailable(f"The database cannot be used right now ({type(error).__name__}).")
        case OSError():
            ours = SystemUnavailable(f"The data folder cannot be used: {error.strerror or type(error).__name__}.")
        case _:
            return error
    ours.__cause__ = error
    return ours
