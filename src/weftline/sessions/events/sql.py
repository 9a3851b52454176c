"""The event log: what the outbox wrote, as subscribers read it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from weftline.history.key_acls import KeyVersion, later_key_acls
from weftline.history.line_kinds import line_of
from weftline.history.lines import LineStore
from weftline.history.model import line_name
from weftline.kernel.clock import from_micros
from weftline.kernel.correlation import NO_CORRELATION, Correlation
from weftline.kernel.events import Event, Origin, StoredEvent
from weftline.kernel.identity import ANYONE, principal_of
from weftline.kernel.outbox import last_seq
from weftline.kernel.patterns import decode_audience, decode_patterns, intersect_acls
from weftline.kernel.transaction import SqlStore, batches, placeholders
from weftline.sessions.events.model import is_about_a_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.transaction import Row
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
# Mark before the members of a session, and their column.
_KEY_ACLS, _PARTICIPANTS = "*", 7
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


_AFTER = _EVENT + "WHERE tenant = $1 AND session_id = $2 AND seq > $3 ORDER BY seq LIMIT $4"


class EventStore(SqlStore):
    """The committed events of the transaction's tenant; every subscription reads from here."""

    async def last_seq(self) -> int:
        return await last_seq(self._tx)

    async def pruned_seq(self) -> int:
        """Return the number of the last event that retention deleted, with all before it; 0 if there is none."""
        row = await self._tx.one("SELECT pruned_seq FROM tenants WHERE tenant = $1", self._tx.tenant)
        return 0 if row is None else int(row[0])

    async def after(self, seq: int, session_id: str | None, limit: int) -> Sequence[StoredEvent]:
        """Return events after ``seq`` in order, of one session or of all."""
        if session_id is None:
            rows = await self._tx.all(
                _EVENT + "WHERE tenant = $1 AND seq > $2 ORDER BY seq LIMIT $3", self._tx.tenant, seq, limit
            )
        else:
            rows = await self._tx.all(_AFTER, self._tx.tenant, session_id, seq, limit)
        return await self._recorded(rows)

    async def before(self, seq: int, limit: int) -> Sequence[StoredEvent]:
        """Return events before ``seq``, newest first."""
        rows = await self._tx.all(
            _EVENT + "WHERE tenant = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3", self._tx.tenant, seq, limit
        )
        return await self._recorded(rows)

    async def find(self, wanted: EventQuery, after: int, limit: int) -> Sequence[StoredEvent]:
        """Return matching events after ``after``, in order."""
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
        """Return the events with these sequence numbers that exist, in order."""
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
        """Return the CloudEvents source of the tenant's log: unique across installations."""
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
