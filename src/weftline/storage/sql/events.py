"""The outbox and the event log in SQL: the same table, written with the change and read by subscribers."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from weftline.access.model import decode_audience, decode_patterns, encode_patterns
from weftline.access.sql import note_named_types
from weftline.history.line_kinds import line_of
from weftline.history.lines import LineStore
from weftline.history.model import line_name
from weftline.kernel.clock import from_micros, to_micros
from weftline.kernel.correlation import NO_CORRELATION, Correlation
from weftline.kernel.events import Event, EventType, NewEvent, Origin, StoredEvent
from weftline.kernel.identity import ANYONE, SYSTEM_ID, named_types, principal_of
from weftline.kernel.transaction import SqlStore, batches, placeholders
from weftline.sessions.events.model import is_about_a_key
from weftline.state.board.board_view import KeyVersion, later_key_acls
from weftline.state.board.model import intersect_acls

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.kernel.clock import Clock
    from weftline.kernel.transaction import Row, Transaction, Value
    from weftline.sessions.events.model import EventQuery

# An event of a session is for the session's members of now; its own copy counts outside sessions, and for the deletion
# of a session. The members of a session that is gone are nobody. A star before them: keys of the session had ACLs.
_EVENT = """
SELECT seq, type, session_id, subject, actor, at, data,
       CASE WHEN session_id IS NULL OR (type = 'session.deleted' AND origin IS NULL) THEN participants
            ELSE COALESCE((SELECT CASE s.key_acls WHEN 0 THEN s.audience ELSE '*' || s.audience END FROM sessions s
                           WHERE s.tenant = events.tenant AND s.session_id = events.session_id), '[]') END,
       readable_by,
       turn_id, task_id, tool_call_id, runtime, origin, principal_id
FROM events
"""
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
# Mark before the members of a session, and their column.
_KEY_ACLS, _PARTICIPANTS = "*", 7
_TAKE_NUMBERS = "UPDATE tenants SET event_seq = event_seq + $1 WHERE tenant = $2"
_NUMBERED = f"{_EVENT} WHERE tenant = $1 AND seq IN ({placeholders(2)})"
# Columns with an index that ends with seq, the most selective first.
_INDEXED = ("turn_id", "task_id", "tool_call_id", "trace_id", "native_id", "subject", "session_id", "actor")
_LAST = 2**62
_KEY_EVENTS = [
    f"'{kind}.{done}'" for kind in ("board", "branch", "memory") for done in ("written", "deleted", "expired")
]
_ITEM_EVENTS = ", ".join([*_KEY_EVENTS, "'message.added'", "'message.visibility_changed'"])


def _search(index: str | None) -> str:
    """Return the statement for a search by one index; the other filters apply to its rows.

    An OR in the other filters keeps query planners from choosing another index.
    """
    others = [column for column in _INDEXED if column != index]
    first = 4 if index is None else 5
    by_index = "" if index is None else f"AND {index} = $2"
    span = (f"${first - 2}", f"${first - 1}")
    filters = [f"(CAST(${place} AS TEXT) IS NULL OR {column} = ${place})" for place, column in enumerate(others, first)]
    at = first + len(others)
    return f"""
    {_EVENT} WHERE tenant = $1 {by_index} AND seq > {span[0]} AND seq <= {span[1]} AND {" AND ".join(filters)}
      AND (CAST(${at} AS {{bigint}}) IS NULL OR at >= ${at})
      AND (CAST(${at + 1} AS {{bigint}}) IS NULL OR at < ${at + 1})
      AND (CAST(${at + 2} AS {{bigint}}) = 1 OR type NOT IN ({_ITEM_EVENTS}))
    ORDER BY seq LIMIT ${at + 3}
    """


_SEARCHES = {index: _search(index) for index in (*_INDEXED, None)}
_encode = msgspec.json.Encoder().encode
_data = msgspec.json.Decoder(dict[str, Any])
_runtime = msgspec.json.Decoder(Correlation)
_origin = msgspec.json.Decoder(Origin)
_READDRESS = """
UPDATE events SET readable_by = $1
WHERE tenant = $2 AND session_id = $3 AND subject = $4 AND type = $5
"""
_READDRESS_FAMILY = """
UPDATE events SET participants = $1, readable_by = $2
WHERE tenant = $3 AND session_id IS NULL AND type LIKE $4
  AND (subject = $5 OR SUBSTR(subject, 1, $6) = $7)
"""


class SqlOutbox:
    """Events as part of the transaction that caused them."""

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
        # As above.
        await self._tx.run(_TAKE_NUMBERS, count, self._tx.tenant)
        return await self.last_seq() - count + 1

    async def republish(self, past: Sequence[StoredEvent]) -> None:
        await self._tx.many(_IMPORT, [self._row_of(recorded) for recorded in past])

    async def last_seq(self) -> int:
        return await SqlEventStore(self._tx).last_seq()

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
        await self._tx.run(_READDRESS, encode_patterns(readable_by), self._tx.tenant, session_id, subject, event_type)

    async def readdress_family(
        self, family: str, subject: str, participants: tuple[str, ...], readable_by: tuple[str, ...]
    ) -> None:
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


_AFTER = _EVENT + "WHERE tenant = $1 AND session_id = $2 AND seq > $3 ORDER BY seq LIMIT $4"


class SqlEventStore(SqlStore):
    """Committed events of one tenant."""

    async def last_seq(self) -> int:
        row = await self._tx.one("SELECT event_seq FROM tenants WHERE tenant = $1", self._tx.tenant)
        return 0 if row is None else int(row[0])

    async def pruned_seq(self) -> int:
        row = await self._tx.one("SELECT pruned_seq FROM tenants WHERE tenant = $1", self._tx.tenant)
        return 0 if row is None else int(row[0])

    async def after(self, seq: int, session_id: str | None, limit: int) -> Sequence[StoredEvent]:
        if session_id is None:
            rows = await self._tx.all(
                _EVENT + "WHERE tenant = $1 AND seq > $2 ORDER BY seq LIMIT $3", self._tx.tenant, seq, limit
            )
        else:
            rows = await self._tx.all(_AFTER, self._tx.tenant, session_id, seq, limit)
        return await self._recorded(rows)

    async def before(self, seq: int, limit: int) -> Sequence[StoredEvent]:
        rows = await self._tx.all(
            _EVENT + "WHERE tenant = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3", self._tx.tenant, seq, limit
        )
        return await self._recorded(rows)

    async def find(self, wanted: EventQuery, after: int, limit: int) -> Sequence[StoredEvent]:
        upto = _LAST if wanted.upto is None else wanted.upto
        if wanted.since is not None or wanted.until is not None:
            first, last = await self._span(wanted.since, wanted.until)
            after, upto = max(after, first - 1), min(upto, last)
        if after >= upto:
            return []
        index = next((column for column in _INDEXED if getattr(wanted, column) is not None), None)
        by_index = () if index is None else (getattr(wanted, index),)
        others = [getattr(wanted, column) for column in _INDEXED if column != index]
        when = (wanted.since, wanted.until)
        rows = await self._tx.all(
            _SEARCHES[index], self._tx.tenant, *by_index, after, upto, *others, *when, int(wanted.items), limit
        )
        return await self._recorded(rows)

    async def _span(self, since: int | None, until: int | None) -> tuple[int, int]:
        """Return the first and the last number in a time range. Imported events are older than their neighbours."""
        row = await self._tx.one(
            "SELECT MIN(seq), MAX(seq) FROM events WHERE tenant = $1 AND at >= $2 AND at < $3",
            self._tx.tenant,
            0 if since is None else since,
            _LAST if until is None else until,
        )
        return (1, 0) if row is None or row[0] is None else (row[0], row[1])

    async def numbered(self, numbers: Sequence[int]) -> Sequence[StoredEvent]:
        found: list[StoredEvent] = []
        for batch in batches(numbers):
            found += await self._recorded(await self._tx.all(_NUMBERED, self._tx.tenant, *batch))
        return sorted(found, key=lambda recorded: recorded.event.seq)

    async def _recorded(self, rows: Sequence[Row]) -> list[StoredEvent]:
        """Return events as they may be read now: those of a key also by the ACLs that it got later."""
        events = [_recorded(row) for row in rows]
        closable = defaultdict[str, list[int]](list)
        for place, row in enumerate(rows):
            if _has_key_acls(row) and is_about_a_key(events[place].event):
                closable[_line_of(events[place].event)].append(place)
        for line_id, places in closable.items():
            versions = [_key_version(events[place].event) for place in places]
            later = await later_key_acls(LineStore(self._tx), line_id, versions)
            for place, acls in zip(places, later, strict=True):
                readers = intersect_acls(events[place].readable_by, *acls)
                events[place] = replace(events[place], readable_by=readers)
        return events

    async def source(self) -> str:
        row = await self._tx.one("SELECT created_at FROM tenants WHERE tenant = $1", self._tx.tenant)
        made = f"{self._tx.tenant} {row[0] if row else 0}"
        return f"urn:weftline:{hashlib.sha256(made.encode()).hexdigest()[:20]}"


def _has_key_acls(row: Row) -> bool:
    """Tell whether keys of the session of an event had ACLs, by the mark before the session's members."""
    participants = row[_PARTICIPANTS]
    return participants is not None and participants.startswith(_KEY_ACLS)


def _line_of(event: Event) -> str:
    """Return the board or branch that an event of a key is about."""
    return line_name(line_of(event.session_id or ""), event.data.get("branch"))


def _key_version(event: Event) -> KeyVersion:
    return KeyVersion(event.subject, event.data.get("incarnation", 1), event.data.get("commit", 0))


def _columns(correlation: Correlation) -> tuple[str | None, str | None, str | None, str | None]:
    """Return the correlation of an event as columns."""
    if correlation is NO_CORRELATION:
        return None, None, None, None
    rest = structs.replace(correlation, turn_id=None, task_id=None, tool_call_id=None)
    runtime = None if rest == NO_CORRELATION else _encode(rest).decode()
    return correlation.turn_id, correlation.task_id, correlation.tool_call_id, runtime


def _correlation(
    turn_id: str | None, task_id: str | None, tool_call_id: str | None, runtime: str | None
) -> Correlation:
    if turn_id is task_id is tool_call_id is runtime is None:
        return NO_CORRELATION
    rest = NO_CORRELATION if runtime is None else _runtime.decode(runtime)
    return structs.replace(rest, turn_id=turn_id, task_id=task_id, tool_call_id=tool_call_id)


def _recorded(row: Row) -> StoredEvent:
    seq, event_type, session_id, subject, actor, at, data, participants, readable_by, *rest = row
    *correlation, origin, principal_id = rest
    event = Event(
        seq=seq,
        type=event_type,
        session_id=session_id,
        subject=subject,
        actor=actor,
        agent_id=principal_of(actor),
        at=from_micros(at),
        data=_data.decode(data),
    )
    return StoredEvent(
        event,
        ANYONE if participants is None else decode_audience(participants.removeprefix(_KEY_ACLS)),
        decode_patterns(readable_by),
        _correlation(*correlation),
        None if origin is None else _origin.decode(origin),
        principal_id,
    )
