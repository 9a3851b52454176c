"""Cost of list_keys, read and write as the tenant grows; it should stay constant.

Both installations have the same measured sessions; the large one also has filler, copied from a session's rows in SQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.grown_board import (
    BLOBS,
    KEYS,
    backend_cost,
    compare_warm,
    fill_boards,
    grow_postgres,
    grow_sqlite,
    process_cost,
)
from benchmarks.harness import SECOND_IN_MICROS, Row, cpu_seconds
from benchmarks.postgres import postgres_database, postgres_server
from benchmarks.servers import call, folder, open_app, weftline_server
from benchmarks.wire import Connection, request, run_async

if TYPE_CHECKING:
    from benchmarks.grown_board import Cost
    from benchmarks.servers import Served
    from weftline.app.app import App

_SESSIONS = [f"s{number}" for number in range(10)]
_MAX_RATIO = 1.3
# One session of one key for each number.
_FILLER = (
    BLOBS,
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
    {numbers} INSERT INTO changes (tenant, line_id, key, seq, incarnation, version, act, blob_hash, meta)
    SELECT tenant, 'board:filler_' || n, key, 1, incarnation, version, act, {hash}, meta
    FROM numbers, changes WHERE line_id = 'board:s0' AND seq = 1
    """,
    """
    {numbers} INSERT INTO entries
        (tenant, session_id, key, incarnation, version, blob_hash, tokens, written_by, written_at)
    SELECT tenant, 'filler_' || n, key, incarnation, version, {hash}, tokens, written_by, written_at
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


def run(*, quick: bool) -> list[Row]:
    rounds, calls, filler = (2, 20, 200) if quick else (5, 400, 100_000)
    return [
        *run_async(_on_sqlite(rounds, calls, filler)),
        *run_async(_on_postgres(rounds, calls // 2, 200 if quick else 20_000)),
    ]


async def _on_sqlite(rounds: int, calls: int, filler: int) -> list[Row]:
    with folder() as data:
        keys = {}
        for name in ("small", "large"):
            (data / name).mkdir()
            keys[name] = await fill_boards(str(data / name / "weftline.db"), _SESSIONS)
        grow_sqlite(str(data / "large" / "weftline.db"), _FILLER, filler)
        small, large = [await open_app(str(data / name / "weftline.db")) for name in ("small", "large")]
        rows = []
        for name, operation in (("list_keys", _list_keys), ("read", _read), ("write", _write)):
            costs = [process_cost(app, operation, calls) for app in (large, small)]
            result = await compare_warm(rounds, *costs)
            rows.append(
                result.row(
                    f"flat_cost.sqlite.{name}", "us CPU/call", _with(len(_SESSIONS), "sessions"), at_most=_MAX_RATIO
                )
            )
        # One key beyond its retained versions, so that each write also prunes an old value.
        costs = [process_cost(app, _rewrite, max(calls // 4, 1)) for app in (large, small)]
        result = await compare_warm(rounds, *costs)
        against = _with(len(_SESSIONS), "sessions")
        rows.append(result.row("flat_cost.sqlite.rewrite", "us CPU/call", against, at_most=_MAX_RATIO))
        for app in (small, large):
            await app.close()
        with weftline_server(data / "small") as small_server, weftline_server(data / "large") as large_server:
            for name, path in (("list_keys", "context"), ("read", "context/key_0")):
                costs = [
                    await _rest_cost(server, keys[which], path, calls)
                    for which, server in (("large", large_server), ("small", small_server))
                ]
                result = await compare_warm(rounds, *costs)
                rows.append(
                    result.row(
                        f"flat_cost.rest.{name}", "us CPU/call", _with(len(_SESSIONS), "sessions"), at_most=_MAX_RATIO
                    )
                )
        return rows


async def _on_postgres(rounds: int, calls: int, filler: int) -> list[Row]:
    with postgres_server() as server:
        small_url, large_url = await postgres_database(server, "small"), await postgres_database(server, "large")
        for url in (small_url, large_url):
            await fill_boards(url, _SESSIONS)
        await grow_postgres(large_url, _FILLER, filler)
        small, large = await open_app(small_url), await open_app(large_url)
        rows = []
        for name, operation in (("list_keys", _list_keys), ("read", _read), ("write", _write)):
            costs = [
                backend_cost(app, operation, calls, database) for app, database in ((large, "large"), (small, "small"))
            ]
            result = await compare_warm(rounds, *costs)
            rows.append(
                result.row(
                    f"flat_cost.postgres.{name}", "us CPU/call", _with(len(_SESSIONS), "sessions"), at_most=_MAX_RATIO
                )
            )
        await small.close()
        await large.close()
        return rows


def _with(number: int, things: str) -> str:
    return f"with {number} {things}"


async def _list_keys(app: App, turn: int) -> None:
    await call(app, "board.list_keys", session_id=_SESSIONS[turn % len(_SESSIONS)])


async def _read(app: App, turn: int) -> None:
    await call(app, "board.read", session_id=_SESSIONS[turn % len(_SESSIONS)], key=f"key_{turn // 10 % KEYS}")


async def _write(app: App, turn: int) -> None:
    session_id, key = _SESSIONS[turn % len(_SESSIONS)], f"key_{turn // 10 % KEYS}"
    await call(app, "board.write", session_id=session_id, key=key, value=f"{turn} " + "what was found so far " * 8)


async def _rewrite(app: App, turn: int) -> None:
    await call(app, "board.write", session_id="s0", key="key_0", value=f"{turn} " + "what was found so far " * 8)


async def _rest_cost(server: Served, token: str, path: str, calls: int) -> Cost:
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
