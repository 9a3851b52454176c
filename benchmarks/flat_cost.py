"""What list_keys, read and write cost as the tenant, the board and the history grow: it should stay the same.

The small and the large installation hold the same measured sessions; the large one also holds filler, made by copying
a measured session's rows in SQL.
"""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING

import apsw
import asyncpg
import psutil

from benchmarks.harness import SECOND_IN_MICROS, Row, compare, cpu_seconds
from benchmarks.postgres import postgres_database, postgres_server
from benchmarks.servers import TENANT, call, folder, open_app, prepare, weft_server
from benchmarks.wire import Connection, request, run_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from benchmarks.servers import Served
    from weft.app.app import App

    Calls = Callable[[App, int], Awaitable[object]]

_SESSIONS = [f"s{number}" for number in range(10)]
_KEYS = 10
_MOST = 1.3
_GROWN = "grown"
_NUMBERS = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $1)"
_SQLITE_HASH = "CAST(printf('%032d', n) AS BLOB)"
_POSTGRES_HASH = "convert_to(lpad(n::text, 32, '0'), 'UTF8')"

_BLOBS = """
{numbers} INSERT INTO blobs (tenant, hash, content)
SELECT b.tenant, {hash}, b.content FROM numbers, blobs b
JOIN entries e ON e.tenant = b.tenant AND e.blob_hash = b.hash AND e.session_id = 's0' AND e.key = 'key_0'
"""
# One session of one key for each number.
_FILLER = (
    _BLOBS,
    """
    {numbers} INSERT INTO sessions
        (tenant, session_id, purpose, metadata, config, created_by, created_at, updated_at)
    SELECT tenant, 'filler_' || n, purpose, metadata, config, created_by, created_at + n, updated_at + n
    FROM numbers, sessions WHERE session_id = 's0'
    """,
    """
    {numbers} INSERT INTO lines (tenant, line_id, seq, head, weight)
    SELECT tenant, 'board:filler_' || n, 1, head, weight FROM numbers, lines WHERE line_id = 'board:s0'
    """,
    """
    {numbers} INSERT INTO commits (tenant, line_id, seq, hash, author, principal_id, committed_at, reason)
    SELECT tenant, 'board:filler_' || n, 1, hash, author, principal_id, committed_at, reason
    FROM numbers, commits WHERE line_id = 'board:s0' AND seq = 1
    """,
    """
    {numbers} INSERT INTO changes (tenant, line_id, key, seq, life, version, act, blob_hash, meta)
    SELECT tenant, 'board:filler_' || n, key, 1, life, version, act, {hash}, meta
    FROM numbers, changes WHERE line_id = 'board:s0' AND seq = 1
    """,
    """
    {numbers} INSERT INTO entries
        (tenant, session_id, key, life, version, blob_hash, tokens, written_by, written_at)
    SELECT tenant, 'filler_' || n, key, life, version, {hash}, tokens, written_by, written_at
    FROM numbers, entries WHERE session_id = 's0' AND key = 'key_0'
    """,
    """
    {numbers} INSERT INTO events (tenant, seq, session_id, type, subject, actor, at, data)
    SELECT e.tenant, t.event_seq + n, 'filler_' || n, e.type, e.subject, e.actor, e.at, e.data
    FROM numbers, events e, tenants t
    WHERE t.tenant = e.tenant AND e.session_id = 's0' AND e.type = 'board.written' AND e.subject = 'key_0'
    """,
    "UPDATE tenants SET event_seq = event_seq + $1",
)
_COMMITS_OF_GROWN = """
{numbers} INSERT INTO commits (tenant, line_id, seq, hash, author, principal_id, committed_at, reason)
SELECT k.tenant, k.line_id, {last} + n, k.hash, k.author, k.principal_id, k.committed_at, k.reason
FROM numbers, commits k WHERE k.line_id = 'board:grown' AND k.seq = 1
"""
_HEAD_OF_GROWN = "UPDATE lines SET seq = seq + $1 WHERE line_id = 'board:grown'"
# A board of so many more entries.
_WIDE = (
    _BLOBS,
    _COMMITS_OF_GROWN,
    """
    {numbers} INSERT INTO changes (tenant, line_id, key, seq, life, version, act, blob_hash, meta)
    SELECT tenant, line_id, 'wide_' || n, {last} + n, 1, 1, act, {hash}, meta
    FROM numbers, changes WHERE line_id = 'board:grown' AND seq = 1
    """,
    """
    {numbers} INSERT INTO entries
        (tenant, session_id, key, life, version, blob_hash, tokens, written_by, written_at)
    SELECT tenant, session_id, 'wide_' || n, 1, 1, {hash}, tokens, written_by, written_at
    FROM numbers, entries WHERE session_id = 'grown' AND key = 'key_0'
    """,
    _HEAD_OF_GROWN,
)
# A board on which one key was written so many more times; values that history no longer keeps are pruned.
_LONG = (
    _COMMITS_OF_GROWN,
    """
    {numbers} INSERT INTO changes (tenant, line_id, key, seq, life, version, act, blob_hash, pruned, meta)
    SELECT tenant, line_id, key, {last} + n, 1, 1 + n, act, blob_hash, CASE WHEN n < $1 - 100 THEN 1 ELSE 0 END, meta
    FROM numbers, changes WHERE line_id = 'board:grown' AND seq = 1
    """,
    "UPDATE entries SET version = version + $1 WHERE session_id = 'grown' AND key = 'key_0'",
    _HEAD_OF_GROWN,
)


def run(*, quick: bool) -> list[Row]:
    rounds, calls, filler = (2, 20, 200) if quick else (5, 400, 100_000)
    return [
        *run_async(_on_sqlite(rounds, calls, filler)),
        *run_async(_growing_board(rounds, calls // 2, 100 if quick else 10_000, 100 if quick else 20_000)),
        *run_async(_on_postgres(rounds, calls // 2, 200 if quick else 20_000)),
    ]


async def _on_sqlite(rounds: int, calls: int, filler: int) -> list[Row]:
    with folder() as data:
        keys = {}
        for name in ("small", "large"):
            (data / name).mkdir()
            keys[name] = await _fill_boards(str(data / name / "weft.db"), _SESSIONS)
        _grow_sqlite(str(data / "large" / "weft.db"), _FILLER, filler)
        small, large = [await open_app(str(data / name / "weft.db")) for name in ("small", "large")]
        rows = []
        for name, operation in (("list_keys", _list_keys), ("read", _read), ("write", _write)):
            costs = [_process_cost(app, operation, calls) for app in (large, small)]
            result = await _compare_warm(rounds, *costs)
            rows.append(
                result.row(f"flat_cost.sqlite.{name}", "us CPU/call", _with(len(_SESSIONS), "sessions"), at_most=_MOST)
            )
        # One key written beyond the versions that history keeps, so that old values are dropped as new ones come.
        costs = [_process_cost(app, _rewrite, max(calls // 4, 1)) for app in (large, small)]
        result = await _compare_warm(rounds, *costs)
        against = _with(len(_SESSIONS), "sessions")
        rows.append(result.row("flat_cost.sqlite.rewrite", "us CPU/call", against, at_most=_MOST))
        for app in (small, large):
            await app.close()
        with weft_server(data / "small") as small_server, weft_server(data / "large") as large_server:
            for name, path in (("list_keys", "context"), ("read", "context/key_0")):
                costs = [
                    await _rest_cost(server, keys[which], path, calls)
                    for which, server in (("large", large_server), ("small", small_server))
                ]
                result = await _compare_warm(rounds, *costs)
                rows.append(
                    result.row(
                        f"flat_cost.rest.{name}", "us CPU/call", _with(len(_SESSIONS), "sessions"), at_most=_MOST
                    )
                )
        return rows


async def _growing_board(rounds: int, calls: int, entries: int, commits: int) -> list[Row]:
    rows = []
    for name, statements, size in (("wide_board", _WIDE, entries), ("long_history", _LONG, commits)):
        with folder() as data:
            small_url, large_url = str(data / "small.db"), str(data / "large.db")
            for url in (small_url, large_url):
                await _fill_boards(url, [*_SESSIONS, _GROWN])
            _grow_sqlite(large_url, statements, size)
            small, large = await open_app(small_url), await open_app(large_url)
            costs = [_process_cost(app, _write_to_grown, calls) for app in (large, small)]
            result = await _compare_warm(rounds, *costs)
            rows.append(result.row(f"flat_cost.{name}.write", "us CPU/call", _with(_KEYS, "of them"), at_most=_MOST))
            await small.close()
            await large.close()
    return rows


async def _on_postgres(rounds: int, calls: int, filler: int) -> list[Row]:
    with postgres_server() as server:
        small_url, large_url = await postgres_database(server, "small"), await postgres_database(server, "large")
        for url in (small_url, large_url):
            await _fill_boards(url, _SESSIONS)
        connection = await asyncpg.connect(large_url)
        for statement in _FILLER:
            await connection.execute(_rendered(statement, _POSTGRES_HASH).replace("$1", str(filler)))
        await connection.execute("ANALYZE")
        await connection.close()
        small, large = await open_app(small_url), await open_app(large_url)
        rows = []
        for name, operation in (("list_keys", _list_keys), ("read", _read), ("write", _write)):
            costs = [
                _backend_cost(app, operation, calls, database) for app, database in ((large, "large"), (small, "small"))
            ]
            result = await _compare_warm(rounds, *costs)
            rows.append(
                result.row(
                    f"flat_cost.postgres.{name}", "us CPU/call", _with(len(_SESSIONS), "sessions"), at_most=_MOST
                )
            )
        await small.close()
        await large.close()
        return rows


def _with(number: int, things: str) -> str:
    return f"with {number} {things}"


async def _compare_warm(rounds: int, ours: Callable[[], Awaitable[float]], theirs: Callable[[], Awaitable[float]]):  # noqa: ANN202
    await ours()
    await theirs()
    return await compare(rounds, ours, theirs)


async def _fill_boards(url: str, sessions: Sequence[str]) -> str:
    """Make sessions with a few keys on each board; return a key to call with."""
    token = await prepare(url, sessions)
    app = await open_app(url)
    for session_id in sessions:
        for number in range(_KEYS):
            value = f"{session_id} {number} " + "what was found so far " * 8
            await call(app, "board.write", session_id=session_id, key=f"key_{number}", value=value)
    await app.close()
    return token


def _rendered(statement: str, hashed: str) -> str:
    last = f"(SELECT seq FROM lines WHERE line_id = 'board:{_GROWN}' AND tenant = '{TENANT}')"
    return statement.format(numbers=_NUMBERS, hash=hashed, last=last)


def _grow_sqlite(path: str, statements: Sequence[str], size: int) -> None:
    connection = apsw.Connection(path)
    connection.pragma("journal_mode", "WAL")
    connection.pragma("cache_size", -256 * 1024)
    with connection:
        for statement in statements:
            connection.execute(_rendered(statement, _SQLITE_HASH), (size,))
    connection.pragma("wal_checkpoint", "TRUNCATE")
    connection.close()


async def _list_keys(app: App, turn: int) -> None:
    await call(app, "board.list_keys", session_id=_SESSIONS[turn % len(_SESSIONS)])


async def _read(app: App, turn: int) -> None:
    await call(app, "board.read", session_id=_SESSIONS[turn % len(_SESSIONS)], key=f"key_{turn // 10 % _KEYS}")


async def _write(app: App, turn: int) -> None:
    session_id, key = _SESSIONS[turn % len(_SESSIONS)], f"key_{turn // 10 % _KEYS}"
    await call(app, "board.write", session_id=session_id, key=key, value=f"{turn} " + "what was found so far " * 8)


async def _rewrite(app: App, turn: int) -> None:
    await call(app, "board.write", session_id="s0", key="key_0", value=f"{turn} " + "what was found so far " * 8)


async def _write_to_grown(app: App, turn: int) -> None:
    await call(app, "board.write", session_id=_GROWN, key="key_0", value=f"{turn} " + "what was found so far " * 8)


def _process_cost(app: App, operation: Calls, calls: int) -> Callable[[], Awaitable[float]]:
    turns = count()

    async def measure() -> float:
        before = time.process_time()
        for _ in range(calls):
            await operation(app, next(turns))
        return (time.process_time() - before) / calls * SECOND_IN_MICROS

    return measure


def _backend_cost(app: App, operation: Calls, calls: int, database: str) -> Callable[[], Awaitable[float]]:
    """Measure what PostgreSQL's own processes spend on a database, which is where growth would show."""
    turns = count()

    def spent() -> float:
        backends = [
            process.pid
            for process in psutil.process_iter(["name", "cmdline"])
            if process.info["name"] == "postgres" and f" {database} " in " ".join(process.info["cmdline"] or [])
        ]
        if not backends:
            raise RuntimeError(f"no backend serves the database {database}")
        return cpu_seconds(*backends)

    async def measure() -> float:
        before = spent()
        for _ in range(calls):
            await operation(app, next(turns))
        return (spent() - before) / calls * SECOND_IN_MICROS

    return measure


async def _rest_cost(server: Served, token: str, path: str, calls: int) -> Callable[[], Awaitable[float]]:
    connection = await Connection.open(server.port)
    requests = [
        request("GET", f"/v1/sessions/{_SESSIONS[turn % len(_SESSIONS)]}/{path}", token) for turn in range(calls)
    ]

    async def measure() -> float:
        before = cpu_seconds(server.pid)
        for prepared in requests:
            await connection.ask(prepared)
        return (cpu_seconds(server.pid) - before) / calls * SECOND_IN_MICROS

    return measure
