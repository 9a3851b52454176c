"""Board writes per second on PostgreSQL in one process, against asyncpg alone writing the same rows.

Each round starts with two equal databases. Both sides have 64 callers, 16 connections and one transaction per write.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg

from benchmarks.baselines.replay import recorded_in_postgres, replay_on_postgres
from benchmarks.harness import Row, compared
from benchmarks.inprocess_write import CALLERS, write_all
from benchmarks.postgres import postgres_database, postgres_server
from benchmarks.servers import prepare
from weftline.open import Weftline

if TYPE_CHECKING:
    from collections.abc import Sequence

_CONNECTIONS = 16
_RAW = "raw asyncpg"


def run(*, quick: bool) -> list[Row]:
    return asyncio.run(_run(rounds=1 if quick else 3, calls=2 if quick else 25))


async def _run(rounds: int, calls: int) -> list[Row]:
    sessions = [f"s{number}" for number in range(CALLERS)]
    rows = []
    with postgres_server() as server:
        for name, used in (("64_sessions", sessions), ("one_session", sessions[:1] * CALLERS)):
            pairs = [await _round(server, f"{name}_{number}", used, calls) for number in range(rounds)]
            rows.append(compared(pairs).rate_row(f"postgres_write.{name}", "writes/s", _RAW))
    return rows


async def _round(server: str, name: str, sessions: Sequence[str], calls: int) -> tuple[float, float]:
    ours, theirs = [await postgres_database(server, f"{name}_{side}") for side in ("ours", "theirs")]
    for url in (ours, theirs):
        await prepare(url, sorted(set(sessions)))
    count = len(sessions) * calls
    connection = await asyncpg.connect(ours)
    before = await connection.fetchval("SELECT MAX(event_seq) FROM tenants")
    async with Weftline.open(ours) as weftline:
        our_seconds = await write_all(weftline, sessions, calls)
    writes = await recorded_in_postgres(connection, before)
    await connection.close()
    if len(writes) != count:
        raise RuntimeError(f"{len(writes)} of {count} writes are on record")
    async with asyncpg.create_pool(theirs, min_size=_CONNECTIONS, max_size=_CONNECTIONS) as pool:
        their_seconds = await replay_on_postgres(pool, writes)
    return count / our_seconds, count / their_seconds
