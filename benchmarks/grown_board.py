"""Boards with a long history or many keys, made by copying rows in SQL, and the cost of a call on them."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING

import apsw
import asyncpg
import psutil

from benchmarks.harness import SECOND_IN_MICROS, compare, cpu_seconds
from benchmarks.servers import TENANT, call, open_app, prepare

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from benchmarks.harness import Compared
    from weftline.app.app import App

    Calls = Callable[[App, int], Awaitable[object]]
    Cost = Callable[[], Awaitable[float]]

KEYS = 10
GROWN = "grown"
_NUMBERS = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $1)"
_SQLITE_HASH = "CAST(printf('%032d', n) AS BLOB)"
_POSTGRES_HASH = "convert_to(lpad(n::text, 32, '0'), 'UTF8')"

BLOBS = """
{numbers} INSERT INTO blobs (tenant, hash, content)
SELECT b.tenant, {hash}, b.content FROM numbers, blobs b
JOIN entries e ON e.tenant = b.tenant AND e.blob_hash = b.hash AND e.session_id = 's0' AND e.key = 'key_0'
"""
_COMMITS_OF_GROWN = """
{numbers} INSERT INTO commits (tenant, line_id, seq, hash, author, principal_id, committed_at, reason, weight)
SELECT k.tenant, k.line_id, {last} + n, k.hash, k.author, k.principal_id, k.committed_at, k.reason, k.weight
FROM numbers, commits k WHERE k.line_id = 'board:grown' AND k.seq = 1
"""
_HEAD_OF_GROWN = "UPDATE lines SET seq = seq + $1 WHERE line_id = 'board:grown'"
# Adds entries to a board.
WIDE = (
    BLOBS,
    _COMMITS_OF_GROWN,
    """
    {numbers} INSERT INTO changes (tenant, line_id, key, seq, incarnation, version, act, blob_hash, meta)
    SELECT tenant, line_id, 'wide_' || n, {last} + n, 1, 1, act, {hash}, meta
    FROM numbers, changes WHERE line_id = 'board:grown' AND seq = 1
    """,
    """
    {numbers} INSERT INTO entries
        (tenant, session_id, key, incarnation, version, blob_hash, tokens, written_by, written_at)
    SELECT tenant, session_id, 'wide_' || n, 1, 1, {hash}, tokens, written_by, written_at
    FROM numbers, entries WHERE session_id = 'grown' AND key = 'key_0'
    """,
    _HEAD_OF_GROWN,
)
# Adds versions of one key to a board; values beyond its retention are pruned.
LONG = (
    _COMMITS_OF_GROWN,
    """
    {numbers} INSERT INTO changes (tenant, line_id, key, seq, incarnation, version, act, blob_hash, pruned, meta)
    SELECT tenant, line_id, key, {last} + n, 1, 1 + n, act, blob_hash, CASE WHEN n < $1 - 100 THEN 1 ELSE 0 END, meta
    FROM numbers, changes WHERE line_id = 'board:grown' AND seq = 1
    """,
    "UPDATE entries SET version = version + $1 WHERE session_id = 'grown' AND key = 'key_0'",
    _HEAD_OF_GROWN,
)

# Adds commits that cycle through a hundred keys; only the history is written, for reading old versions.
SPREAD = (
    BLOBS,
    _COMMITS_OF_GROWN,
    """
    {numbers} INSERT INTO changes (tenant, line_id, key, seq, incarnation, version, act, blob_hash, meta)
    SELECT tenant, line_id, 'spread_' || (n % 100), {last} + n, 1, 1 + n / 100, act, {hash}, meta
    FROM numbers, changes WHERE line_id = 'board:grown' AND seq = 1
    """,
    _HEAD_OF_GROWN,
)


async def compare_warm(rounds: int, ours: Cost, theirs: Cost) -> Compared:
    """Compare two boards after a warm-up of both."""
    await ours()
    await theirs()
    return await compare(rounds, ours, theirs)


async def fill_boards(url: str, sessions: Sequence[str]) -> str:
    """Create sessions with a few board keys each; return an API key."""
    token = await prepare(url, sessions)
    app = await open_app(url)
    for session_id in sessions:
        for number in range(KEYS):
            value = f"{session_id} {number} " + "what was found so far " * 8
            await call(app, "board.write", session_id=session_id, key=f"key_{number}", value=value)
    await app.close()
    return token


def _rendered(statement: str, hashed: str) -> str:
    last = f"(SELECT seq FROM lines WHERE line_id = 'board:{GROWN}' AND tenant = '{TENANT}')"
    return statement.format(numbers=_NUMBERS, hash=hashed, last=last)


def grow_sqlite(path: str, statements: Sequence[str], size: int) -> None:
    connection = apsw.Connection(path)
    connection.pragma("journal_mode", "WAL")
    connection.pragma("cache_size", -256 * 1024)
    with connection:
        for statement in statements:
            connection.execute(_rendered(statement, _SQLITE_HASH), (size,))
    connection.pragma("wal_checkpoint", "TRUNCATE")
    connection.close()


async def grow_postgres(url: str, statements: Sequence[str], size: int) -> None:
    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(_rendered(statement, _POSTGRES_HASH).replace("$1", str(size)))
    await connection.execute("ANALYZE")
    await connection.close()


def process_cost(app: App, operation: Calls, calls: int) -> Cost:
    turns = count()

    async def measure() -> float:
        before = time.process_time()
        for _ in range(calls):
            await operation(app, next(turns))
        return (time.process_time() - before) / calls * SECOND_IN_MICROS

    return measure


def backend_cost(app: App, operation: Calls, calls: int, database: str) -> Cost:
    """Measure the CPU of PostgreSQL's processes for a database, where growth would show."""
    turns = count()

    async def measure() -> float:
        before = backend_seconds(database)
        for _ in range(calls):
            await operation(app, next(turns))
        return (backend_seconds(database) - before) / calls * SECOND_IN_MICROS

    return measure


def backend_seconds(database: str) -> float:
    """Return the CPU time of the backends of a database so far."""
    backends = [
        process.pid
        for process in psutil.process_iter(["name", "cmdline"])
        if process.info["name"] == "postgres" and f" {database} " in " ".join(process.info["cmdline"] or [])
    ]
    if not backends:
        raise RuntimeError(f"no backend serves the database {database}")
    return cpu_seconds(*backends)
