"""The outbox: events are written with the change that caused them, and visible when it commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from weftline.kernel.clock import to_micros
from weftline.kernel.correlation import NO_CORRELATION, Correlation
from weftline.kernel.identity import ANYONE, SYSTEM_ID, named_types
from weftline.kernel.patterns import encode_patterns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.kernel.clock import Clock
    from weftline.kernel.events import EventType, NewEvent, StoredEvent
    from weftline.kernel.transaction import Transaction, Value

# The number is read back by the insert itself: RETURNING costs SQLite five times as much as the update. $2 is the
# number of events that follow in the same batch.
_INSERT = """
INSERT INTO events (tenant, seq, session_id, type, subject, actor, at, participants, readable_by, data,
                    turn_id, task_id, tool_call_id, runtime, origin, principal_id, trace_id, native_id)
SELECT CAST($1 AS TEXT), event_seq - CAST($2 AS {bigint}), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS TEXT),
       CAST($6 AS TEXT), CAST($7 AS {bigint}), CAST($8 AS TEXT), CAST($9 AS TEXT), CAST($10 AS TEXT),
       CAST($11 AS TEXT), CAST($12 AS TEXT), CAST($13 AS TEXT), CAST($14 AS TEXT), CAST($15 AS TEXT),
       CAST($16 AS TEXT), CAST($17 AS TEXT), CAST($18 AS TEXT)
FROM tenants WHERE tenant = $1
"""
_IMPORT = """
INSERT INTO events (tenant, seq, session_id, type, subject, actor, at, participants, readable_by, data,
                    turn_id, task_id, tool_call_id, runtime, origin, trace_id, native_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
"""
_TAKE_NUMBERS = "UPDATE tenants SET event_seq = event_seq + $1 WHERE tenant = $2"
_READDRESS = """
UPDATE events SET readable_by = $1
WHERE tenant = $2 AND session_id = $3 AND subject = $4 AND type = $5
"""
_READDRESS_FAMILY = """
UPDATE events SET participants = $1, readable_by = $2
WHERE tenant = $3 AND session_id IS NULL AND type LIKE $4
  AND (subject = $5 OR SUBSTR(subject, 1, $6) = $7)
"""
_NAME_TYPE = "INSERT INTO named_types (tenant, agent_type, named_by) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
_encode = msgspec.json.Encoder().encode


class Outbox:
    """Publishes events with the transaction."""

    __slots__ = ("_clock", "_correlation", "_principal_id", "_tx")

    def __init__(
        self,
        transaction: Transaction,
        clock: Clock,
        correlation: Correlation = NO_CORRELATION,
        principal_id: str | None = None,
    ) -> None:
        self._tx = transaction
        self._clock = clock
        self._correlation = correlation
        self._principal_id = principal_id

    async def publish(self, *events: NewEvent) -> None:
        """Add events in order; they become visible when the transaction commits."""
        if not events:
            return
        # Taking numbers locks the tenant's counter until commit, so events become visible in the order of their
        # numbers: a reader that has seen one has seen all before it. Operations publish last, to hold it briefly.
        await self._tx.run(_TAKE_NUMBERS, len(events), self._tx.tenant)
        at, correlation = to_micros(self._clock.now()), _columns(self._correlation)
        rows = [
            self._new_row(event, at, correlation, following)
            for event, following in zip(events, reversed(range(len(events))), strict=True)
        ]
        if len(rows) == 1:
            await self._tx.run(_INSERT, *rows[0])
        else:
            await self._tx.many(_INSERT, rows)
        self._tx.published.extend(events)
        await self._note_named_types(events)

    async def _note_named_types(self, events: Iterable[NewEvent]) -> None:
        """Note which agent types the ACLs of the changes name: events carry those of what they are about.

        After numbers were taken, so that no two transactions of a tenant wait for each other here.
        """
        named = self._tx.named_types
        for event in events:
            if event.readable_by != ANYONE:
                named |= named_types(event.readable_by)
        if named:
            await note_named_types(self._tx, named, self._principal_id or SYSTEM_ID)
            named.clear()

    async def reserve(self, count: int) -> int:
        """Reserve ``count`` consecutive sequence numbers and return the first; blocks others until commit."""
        # As above.
        await self._tx.run(_TAKE_NUMBERS, count, self._tx.tenant)
        return await self.last_seq() - count + 1

    async def republish(self, past: Sequence[StoredEvent]) -> None:
        """Append imported events under reserved numbers, with their original times, correlation and origin.

        Subscribers are not notified.
        """
        await self._tx.many(_IMPORT, [self._row_of(recorded) for recorded in past])

    async def last_seq(self) -> int:
        """Return the seq of the latest event, including those published in this transaction."""
        return await last_seq(self._tx)

    def _new_row(
        self, event: NewEvent, at: int, correlation: tuple[str | None, ...], following: int
    ) -> tuple[Value, ...]:
        return (
            self._tx.tenant,
            following,
            event.session_id,
            event.type,
            event.subject,
            event.actor,
            at,
            encode_patterns(event.participants),
            encode_patterns(event.readable_by),
            _encode(event.data).decode(),
            *correlation,
            None,
            self._principal_id,
            self._correlation.trace_id,
            event.native_id or self._correlation.mcp_session_id,
        )

    def _row_of(self, recorded: StoredEvent) -> tuple[Value, ...]:
        event = recorded.event
        return (
            self._tx.tenant,
            event.seq,
            event.session_id,
            event.type,
            event.subject,
            event.actor,
            to_micros(event.at),
            encode_patterns(recorded.participants),
            encode_patterns(recorded.readable_by),
            _encode(event.data).decode(),
            *_columns(recorded.correlation),
            None if recorded.origin is None else _encode(recorded.origin).decode(),
            recorded.correlation.trace_id,
            recorded.correlation.mcp_session_id,
        )

    async def readdress(
        self, event_type: EventType, session_id: str, subject: str, readable_by: tuple[str, ...]
    ) -> None:
        """Change the ACL of published events of one subject."""
        await self._tx.run(_READDRESS, encode_patterns(readable_by), self._tx.tenant, session_id, subject, event_type)

    async def readdress_family(
        self, family: str, subject: str, participants: tuple[str, ...], readable_by: tuple[str, ...]
    ) -> None:
        """Do the same outside sessions, for a subject and its parts, and all types that begin with ``family``."""
        part = f"{subject}/"
        await self._tx.run(
            _READDRESS_FAMILY,
            encode_patterns(participants),
            encode_patterns(readable_by),
            self._tx.tenant,
            f"{family}.%",
            subject,
            len(part),
            part,
        )


async def last_seq(transaction: Transaction) -> int:
    """Return the number of the last event of the tenant; 0 if there is none."""
    row = await transaction.one("SELECT event_seq FROM tenants WHERE tenant = $1", transaction.tenant)
    return 0 if row is None else int(row[0])


async def note_named_types(transaction: Transaction, types: Iterable[str], named_by: str) -> None:
    """Note agent types that an ACL names, and the principal that wrote it."""
    rows = [(transaction.tenant, agent_type, named_by) for agent_type in sorted(types)]
    if rows:
        await transaction.many(_NAME_TYPE, rows)


def _columns(correlation: Correlation) -> tuple[str | None, str | None, str | None, str | None]:
    """Return the correlation of an event as columns."""
    if correlation is NO_CORRELATION:
        return None, None, None, None
    rest = structs.replace(correlation, turn_id=None, task_id=None, tool_call_id=None)
    runtime = None if rest == NO_CORRELATION else _encode(rest).decode()
    return correlation.turn_id, correlation.task_id, correlation.tool_call_id, runtime
