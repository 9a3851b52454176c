"""CPU that records add to a board write and to a message, against the same code without records.

The record of a write is its event. Records add correlation columns and indexes to events. The baseline is the same code
on a database without those columns and indexes, with an outbox that does not write them. Both have a log of 100,000
events and are measured in turn in one process, with 16 concurrent callers, where a write itself costs least. On
PostgreSQL the CPU of its processes is included.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

import apsw
import asyncpg
import msgspec

from benchmarks.grown_board import backend_seconds, compare_warm, grow_postgres, grow_sqlite
from benchmarks.harness import SECOND_IN_MICROS, Row
from benchmarks.postgres import postgres_database, postgres_server
from benchmarks.servers import ADMIN, folder, open_app, prepare
from benchmarks.wire import run_async
from weftline.app import wiring
from weftline.kernel.clock import to_micros
from weftline.kernel.correlation import NO_CORRELATION, Correlation
from weftline.kernel.outbox import Outbox
from weftline.kernel.patterns import encode_patterns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from weftline.app.app import App
    from weftline.kernel.events import NewEvent

_MAX_RATIO = 1.25
_CALLERS = 16
_WITHOUT = "without records"
_CORRELATION = Correlation(
    turn_id="turn_0192f3a4-7c1e", task_id="task_0192f3a4", trace_id="0af7651916cd43dd8448eb211c80319c", span_id="b7" * 8
)
# Added by 0005_records.sql.
_COLUMNS = ("turn_id", "task_id", "tool_call_id", "runtime", "origin")
_INDEXES = ("turn", "task", "tool_call", "actor", "subject", "time")
_DROP_RECORDS = (
    *(f"DROP INDEX events_by_{name}" for name in _INDEXES),
    *(f"ALTER TABLE events DROP COLUMN {name}" for name in _COLUMNS),
)
_GROW = (
    """
    {numbers} INSERT INTO events
        (tenant, seq, session_id, type, subject, actor, at, participants, readable_by, data)
    SELECT e.tenant, t.event_seq + n, 's' || (n % 16), 'board.written', 'key_' || (n % 5000), 'subagent:' || (n % 100),
           e.at + n, e.participants, e.readable_by, '{{"version":2,"incarnation":1,"commit":2,"value_size_tokens":50}}'
    FROM numbers, events e JOIN tenants t ON t.tenant = e.tenant WHERE e.seq = 1
    """,
    "UPDATE tenants SET event_seq = event_seq + $1",
)
_INSERT = """
INSERT INTO events (tenant, seq, session_id, type, subject, actor, at, participants, readable_by, data)
SELECT CAST($1 AS TEXT), event_seq, CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS TEXT),
       CAST($6 AS {bigint}), CAST($7 AS TEXT), CAST($8 AS TEXT), CAST($9 AS TEXT)
FROM tenants WHERE tenant = $1
"""


class OutboxWithoutRecords(Outbox):
    """An outbox that writes events without the columns of records."""

    __slots__ = ()

    async def publish(self, *events: NewEvent) -> None:
        at = to_micros(self._clock.now())
        for event in events:
            await self._tx.run("UPDATE tenants SET event_seq = event_seq + 1 WHERE tenant = $1", self._tx.tenant)
            await self._tx.run(
                _INSERT,
                self._tx.tenant,
                event.session_id,
                event.type,
                event.subject,
                event.actor,
                at,
                encode_patterns(event.participants),
                encode_patterns(event.readable_by),
                msgspec.json.encode(event.data).decode(),
            )
        self._tx.published.extend(events)


class Sizes(NamedTuple):
    """Numbers of calls, and the length of the log."""

    rounds: int
    calls: int
    events: int


class Side(NamedTuple):
    """One side of the comparison, and its PostgreSQL database if any."""

    app: App
    outbox: type[Outbox]
    database: str | None

    def cost(self, operation: str, correlation: Correlation, calls: int) -> Callable[[], Awaitable[float]]:
        """Return a function that measures the CPU of one call in microseconds."""
        context = msgspec.structs.replace(ADMIN, correlation=correlation)
        numbers, request_of = count(), _REQUESTS[operation]

        async def caller(first: int) -> None:
            for number in range(first, first + calls):
                await self.app.call(self.app.registry[operation], request_of(number), context)

        async def measure() -> float:
            start = next(numbers) * _CALLERS * calls
            with patch.object(wiring, "Outbox", self.outbox):
                before = self._cpu_seconds()
                await asyncio.gather(*(caller(start + first * calls) for first in range(_CALLERS)))
                return (self._cpu_seconds() - before) / (_CALLERS * calls) * SECOND_IN_MICROS

        return measure

    def _cpu_seconds(self) -> float:
        return time.process_time() + (0.0 if self.database is None else backend_seconds(self.database))


_REQUESTS: dict[str, Callable[[int], dict[str, str]]] = {
    "board.write": lambda number: {
        "session_id": f"s{number % _CALLERS}",
        "key": f"key_{number % 64}",
        "value": f"{number} " + "what was found so far " * 8,
    },
    "message.add": lambda number: {
        "session_id": f"s{number % _CALLERS}",
        "content": f"{number} " + "what was found so far " * 8,
    },
}
_NAMES = {"board.write": "board_write", "message.add": "message"}


def run(*, quick: bool) -> list[Row]:
    sizes = Sizes(rounds=1, calls=4, events=100) if quick else Sizes(rounds=11, calls=30, events=100_000)
    return [*run_async(_on_sqlite(sizes)), *run_async(_on_postgres(sizes))]


async def _on_sqlite(sizes: Sizes) -> list[Row]:
    with folder() as data:
        ours, theirs = str(data / "ours.db"), str(data / "theirs.db")
        for url in (ours, theirs):
            await prepare(url, _sessions())
            grow_sqlite(url, _GROW, sizes.events)
        with _connected(theirs) as connection:
            for statement in _DROP_RECORDS:
                connection.execute(statement)
        sides = Side(await open_app(ours), Outbox, None), Side(await open_app(theirs), OutboxWithoutRecords, None)
        return await _measure("sqlite", *sides, sizes)


async def _on_postgres(sizes: Sizes) -> list[Row]:
    with postgres_server() as server:
        ours, theirs = [await postgres_database(server, name) for name in ("ours", "theirs")]
        for url in (ours, theirs):
            await prepare(url, _sessions())
            await grow_postgres(url, _GROW, sizes.events)
        connection = await asyncpg.connect(theirs)
        for statement in _DROP_RECORDS:
            await connection.execute(statement)
        await connection.close()
        sides = (
            Side(await open_app(ours), Outbox, "ours"),
            Side(await open_app(theirs), OutboxWithoutRecords, "theirs"),
        )
        return await _measure("postgres", *sides, sizes)


async def _measure(database: str, ours: Side, theirs: Side, sizes: Sizes) -> list[Row]:
    rows = []
    for operation, name in _NAMES.items():
        for correlation, suffix in ((NO_CORRELATION, ""), (_CORRELATION, "_in_a_turn")):
            costs = (side.cost(operation, correlation, sizes.calls) for side in (ours, theirs))
            result = await compare_warm(sizes.rounds, *costs)
            row_name = f"records_cost.{database}.{name}{suffix}"
            rows.append(result.row(row_name, "us CPU/call", _WITHOUT, at_most=_MAX_RATIO))
    for side in (ours, theirs):
        await side.app.close()
    return rows


@contextmanager
def _connected(path: str) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(path)
    try:
        yield connection
    finally:
        connection.close()


def _sessions() -> list[str]:
    return [f"s{number}" for number in range(_CALLERS)]
