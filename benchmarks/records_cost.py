"""CPU that records add to a board write and to a message, against the same code without records.

A write's record is its event, so what is added is what makes events records: what a call is part of, stamped on them,
and the indexes they are found by. The baseline is the same code on a database without those columns and indexes, with
an outbox that writes events as it did before there were records. Both have a log of 100,000 events and are measured in
turn in one process, with 16 callers at once, which leaves a write the least cost of its own; on PostgreSQL its own
processes count too.
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
from weft.app import injection as needs
from weft.kernel.clock import to_micros
from weft.kernel.correlation import NO_CORRELATION, Correlation
from weft.storage.sql.acl_column import encode_patterns
from weft.storage.sql.events import SqlOutbox

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from weft.app.app import App
    from weft.kernel.events import NewEvent

_MOST = 1.25
_CALLERS = 16
_WITHOUT = "without records"
_PART_OF = Correlation(
    turn_id="turn_0192f3a4-7c1e", task_id="task_0192f3a4", trace_id="0af7651916cd43dd8448eb211c80319c", span_id="b7" * 8
)
# Added by 0005_records.sql.
_COLUMNS = ("turn_id", "task_id", "tool_call_id", "runtime", "origin")
_INDEXES = ("turn", "task", "tool_call", "actor", "subject", "time")
_FORGET_RECORDS = (
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


class OutboxBefore(SqlOutbox):
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
    outbox: type[SqlOutbox]
    database: str | None

    def cost(self, operation: str, part_of: Correlation, calls: int) -> Callable[[], Awaitable[float]]:
        """Return a function that measures the CPU of one call in microseconds."""
        arrival = msgspec.structs.replace(ADMIN, correlation=part_of)
        numbers, asked = count(), _ASKED[operation]

        async def caller(own: int) -> None:
            for number in range(own, own + calls):
                await self.app.call(self.app.registry[operation], asked(number), arrival)

        async def measure() -> float:
            begin = next(numbers) * _CALLERS * calls
            with patch.object(needs, "SqlOutbox", self.outbox):
                before = self._spent()
                await asyncio.gather(*(caller(begin + own * calls) for own in range(_CALLERS)))
                return (self._spent() - before) / (_CALLERS * calls) * SECOND_IN_MICROS

        return measure

    def _spent(self) -> float:
        return time.process_time() + (0.0 if self.database is None else backend_seconds(self.database))


_ASKED: dict[str, Callable[[int], dict[str, str]]] = {
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
            for statement in _FORGET_RECORDS:
                connection.execute(statement)
        sides = Side(await open_app(ours), SqlOutbox, None), Side(await open_app(theirs), OutboxBefore, None)
        return await _measured("sqlite", *sides, sizes)


async def _on_postgres(sizes: Sizes) -> list[Row]:
    with postgres_server() as server:
        ours, theirs = [await postgres_database(server, name) for name in ("ours", "theirs")]
        for url in (ours, theirs):
            await prepare(url, _sessions())
            await grow_postgres(url, _GROW, sizes.events)
        connection = await asyncpg.connect(theirs)
        for statement in _FORGET_RECORDS:
            await connection.execute(statement)
        await connection.close()
        sides = Side(await open_app(ours), SqlOutbox, "ours"), Side(await open_app(theirs), OutboxBefore, "theirs")
        return await _measured("postgres", *sides, sizes)


async def _measured(database: str, ours: Side, theirs: Side, sizes: Sizes) -> list[Row]:
    rows = []
    for operation, name in _NAMES.items():
        for part_of, suffix in ((NO_CORRELATION, ""), (_PART_OF, "_in_a_turn")):
            costs = (side.cost(operation, part_of, sizes.calls) for side in (ours, theirs))
            result = await compare_warm(sizes.rounds, *costs)
            named = f"records_cost.{database}.{name}{suffix}"
            rows.append(result.row(named, "us CPU/call", _WITHOUT, at_most=_MOST))
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
