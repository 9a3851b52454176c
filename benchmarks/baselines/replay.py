"""Replays the rows that Weftline wrote with the database driver alone: the minimum cost of durable writes."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

if TYPE_CHECKING:
    from pathlib import Path

    import asyncpg

_GROUP = 64
_CALLERS = 64

# Writes after an event, one row per write, in the order of the events.
_RECORD = """
SELECT e.tenant, e.seq, e.session_id, e.type, e.subject, e.actor, e.at, e.participants, e.readable_by, e.data,
       c.line_id, c.seq, c.incarnation, c.version, c.act, c.blob_hash, c.meta,
       k.hash, k.author, k.principal_id, k.committed_at, k.reason, k.step, b.content
FROM events e
JOIN changes c ON c.tenant = e.tenant AND c.line_id = 'board:' || e.session_id AND c.key = e.subject
              AND c.version = {version}
JOIN commits k ON k.tenant = c.tenant AND k.line_id = c.line_id AND k.seq = c.seq
JOIN blobs b ON b.tenant = c.tenant AND b.hash = c.blob_hash
WHERE e.type = 'board.written' AND e.seq > $1 ORDER BY e.seq
"""
_SQLITE_VERSION = "json_extract(e.data, '$.version')"
_POSTGRES_VERSION = "(e.data::json ->> 'version')::bigint"

STATEMENTS = (
    "INSERT INTO blobs (tenant, hash, content) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
    """
    INSERT INTO entries (tenant, session_id, key, incarnation, version, blob_hash, tokens, written_by, written_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (tenant, session_id, key) DO UPDATE SET
        incarnation = excluded.incarnation, version = excluded.version, blob_hash = excluded.blob_hash,
        tokens = excluded.tokens,
        written_by = excluded.written_by, written_at = excluded.written_at
    """,
    """
    INSERT INTO commits (tenant, line_id, seq, hash, author, principal_id, committed_at, reason, step)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    """,
    """
    INSERT INTO changes (tenant, line_id, key, seq, incarnation, version, act, blob_hash, meta)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    """,
    "UPDATE lines SET seq = $1, head = $2, weight = $3 WHERE tenant = $4 AND line_id = $5",
    "UPDATE tenants SET event_seq = event_seq + 1 WHERE tenant = $1",
    """
    INSERT INTO events (tenant, seq, session_id, type, subject, actor, at, participants, readable_by, data)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
    """,
)


class Recorded(NamedTuple):
    """One recorded write."""

    tenant: str
    event_seq: int
    session_id: str
    type: str
    key: str
    actor: str
    at: int
    participants: str | None
    readable_by: str | None
    data: str
    line_id: str
    seq: int
    incarnation: int
    version: int
    act: str
    blob_hash: bytes
    meta: str
    hash: bytes
    author: str
    principal_id: str
    committed_at: int
    reason: str
    step: str | None
    content: bytes

    def values(self) -> tuple[tuple[Any, ...], ...]:
        """Return the values of each statement of one write."""
        tokens = json.loads(self.data)["value_size_tokens"]
        return (
            (self.tenant, self.blob_hash, self.content),
            (
                *(self.tenant, self.session_id, self.key, self.incarnation, self.version, self.blob_hash),
                *(tokens, self.author, self.committed_at),
            ),
            (
                *(self.tenant, self.line_id, self.seq, self.hash, self.author, self.principal_id),
                *(self.committed_at, self.reason, self.step),
            ),
            (
                *(self.tenant, self.line_id, self.key, self.seq, self.incarnation, self.version),
                *(self.act, self.blob_hash, self.meta),
            ),
            (self.seq, self.hash, tokens * self.seq, self.tenant, self.line_id),
            (self.tenant,),
            (
                *(self.tenant, self.event_seq, self.session_id, self.type, self.key, self.actor, self.at),
                *(self.participants, self.readable_by, self.data),
            ),
        )


Writes = list[tuple[tuple[Any, ...], ...]]


def recorded_in_sqlite(path: Path, after: int) -> Writes:
    connection = apsw.Connection(str(path))
    try:
        rows = connection.execute(_RECORD.format(version=_SQLITE_VERSION), (after,)).fetchall()
        return [Recorded(*row).values() for row in rows]
    finally:
        connection.close()


async def recorded_in_postgres(connection: asyncpg.Connection, after: int) -> Writes:
    rows = await connection.fetch(_RECORD.format(version=_POSTGRES_VERSION), after)
    return [Recorded(*row).values() for row in rows]


def last_event_in_sqlite(path: Path) -> int:
    connection = apsw.Connection(str(path))
    try:
        return int(connection.execute("SELECT MAX(event_seq) FROM tenants").fetchall()[0][0])
    finally:
        connection.close()


def replay_on_sqlite(path: Path, writes: Writes) -> float:
    """Replay all writes in one thread, in group commits; return the seconds."""
    connection = apsw.Connection(str(path), statementcachesize=256)
    # The pragmas of Weftline.
    for name, value in {
        "journal_mode": "WAL",
        "synchronous": "FULL",
        "wal_autocheckpoint": 4_000,
        "cache_size": -32 * 1024,
        "foreign_keys": 1,
    }.items():
        connection.pragma(name, value)
    execute = connection.cursor().execute
    started = time.perf_counter()
    for first in range(0, len(writes), _GROUP):
        execute("BEGIN IMMEDIATE")
        for write in writes[first : first + _GROUP]:
            for statement, values in zip(STATEMENTS, write, strict=True):
                execute(statement, values).fetchall()
        execute("COMMIT")
    seconds = time.perf_counter() - started
    connection.close()
    return seconds


async def replay_on_postgres(pool: asyncpg.Pool, writes: Writes) -> float:
    """Replay all writes with as many callers as Weftline had, one transaction each; return the seconds."""
    queue = list(reversed(writes))

    async def call() -> None:
        while queue:
            write = queue.pop()
            async with pool.acquire() as connection, connection.transaction():
                for statement, values in zip(STATEMENTS, write, strict=True):
                    await connection.execute(statement, *values)

    started = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(_CALLERS)))
    return time.perf_counter() - started
