"""The outbox and the event log in SQL: the same table, written with the change and read by subscribers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weft.capabilities.events.model import Recorded
from weft.kernel.clock import from_micros, to_micros
from weft.kernel.events import Event, NewEvent
from weft.storage.sql.patterns import decode_patterns, encode_patterns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.kernel.clock import Clock
    from weft.storage.sql.database import Row, Transaction

_EVENT = "SELECT seq, type, session_id, subject, actor, at, data, participants, readable_by FROM events "
# The number is read back by the insert itself: RETURNING costs SQLite five times as much as the update.
_INSERT = """
INSERT INTO events (tenant, seq, session_id, type, subject, actor, at, participants, readable_by, data)
SELECT CAST($1 AS TEXT), event_seq, CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS TEXT),
       CAST($6 AS {bigint}), CAST($7 AS TEXT), CAST($8 AS TEXT), CAST($9 AS TEXT)
FROM tenants WHERE tenant = $1
"""
_encode = msgspec.json.Encoder().encode
_data = msgspec.json.Decoder(dict[str, Any])


class SqlOutbox:
    """Events as part of the transaction that caused them."""

    __slots__ = ("_clock", "_tx")

    def __init__(self, transaction: Transaction, clock: Clock) -> None:
        self._tx = transaction
        self._clock = clock

    async def publish(self, *events: NewEvent) -> None:
        # Taking a number locks the tenant's counter until commit, so numbers become visible in their own order
        # and a reader that has seen one has seen all before it. Operations publish last, to hold it briefly.
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
                _encode(event.data).decode(),
            )
        self._tx.published.extend(events)

    async def readdress(self, event_type: str, session_id: str, subject: str, readable_by: tuple[str, ...]) -> None:
        await self._tx.run(
            """
            UPDATE events SET readable_by = $1
            WHERE tenant = $2 AND session_id = $3 AND subject = $4 AND type = $5
            """,
            encode_patterns(readable_by),
            self._tx.tenant,
            session_id,
            subject,
            event_type,
        )


class SqlEventStore:
    """Committed events, as rows of one tenant."""

    __slots__ = ("_tx",)

    def __init__(self, transaction: Transaction) -> None:
        self._tx = transaction

    async def last_seq(self) -> int:
        row = await self._tx.one("SELECT event_seq FROM tenants WHERE tenant = $1", self._tx.tenant)
        return 0 if row is None else int(row[0])

    async def after(self, seq: int, session_id: str | None, limit: int) -> Sequence[Recorded]:
        if session_id is None:
            rows = await self._tx.all(
                _EVENT + "WHERE tenant = $1 AND seq > $2 ORDER BY seq LIMIT $3", self._tx.tenant, seq, limit
            )
        else:
            rows = await self._tx.all(
                _EVENT + "WHERE tenant = $1 AND session_id = $2 AND seq > $3 ORDER BY seq LIMIT $4",
                self._tx.tenant,
                session_id,
                seq,
                limit,
            )
        return [_recorded(row) for row in rows]


def _recorded(row: Row) -> Recorded:
    seq, event_type, session_id, subject, actor, at, data, participants, readable_by = row
    event = Event(
        seq=seq,
        type=event_type,
        session_id=session_id,
        subject=subject,
        actor=actor,
        at=from_micros(at),
        data=_data.decode(data),
    )
    return Recorded(event, decode_patterns(participants), decode_patterns(readable_by))
