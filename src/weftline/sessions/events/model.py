"""Event filters, and the ports of the event log and of the live feed."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, Protocol

from weftline.kernel.identity import ANYONE, PRINCIPAL
from weftline.records.event_classes import event_class_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.events import Event, StoredEvent
    from weftline.kernel.identity import Actor


# Sent to every subscriber of a session, whatever its filter.
SESSION_END_EVENTS = frozenset({"session.archived", "session.deleted"})


MEMBERS_CHANGED = "session.members_changed"
# These change who may see earlier events.
AUDIENCE_CHANGES = frozenset({"message.visibility_changed", MEMBERS_CHANGED, "domain.updated"})


# The subject of these is a snapshot's label, which may look like a key.
_SNAPSHOT_EVENTS = frozenset({"board.snapshot", "board.restored", "branch.snapshot", "branch.restored"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """Conditions on events; all given ones must match. Times are microseconds, ``until`` is exclusive.

    ``upto`` is the last sequence number to read. ``items=False`` skips events of keys and messages, which are most.
    """

    session_id: str | None = None
    actor: str | None = None
    subject: str | None = None
    turn_id: str | None = None
    task_id: str | None = None
    tool_call_id: str | None = None
    trace_id: str | None = None
    native_id: str | None = None
    since: int | None = None
    until: int | None = None
    upto: int | None = None
    items: bool = True


@dataclass(frozen=True, slots=True)
class EventFilter:
    """A subscriber's filter: one session or all visible ones, board keys and event types by pattern.

    A type pattern matches the event's type or its Agent Context class. ``personal`` selects the events that only the
    subscriber may see, ``addressed`` the messages that are addressed to it.
    """

    session_id: str | None = None
    keys: tuple[str, ...] = ANYONE
    types: tuple[str, ...] = ANYONE
    personal: bool = False
    addressed: bool = False

    def covers(self, recorded: StoredEvent, actor: Actor) -> bool:
        """Whether the event matches the filter and is visible to the subscriber."""
        return self._is_visible(recorded, actor) and self._wants(recorded.event)

    def _is_visible(self, recorded: StoredEvent, actor: Actor) -> bool:
        if recorded.event.session_id in actor.terminated_sessions:
            return False
        if actor.bound_session is not None and _session_of(recorded.event) not in (None, actor.bound_session):
            return False
        if self.addressed and recorded.event.data.get("recipient_id") != actor.principal_id:
            return False
        if self.personal and recorded.readable_by != (f"{PRINCIPAL}{actor.principal_id}",):
            return False
        if recorded.participants != ANYONE and not actor.is_admin and not actor.matches(recorded.participants):
            return False
        return recorded.readable_by == ANYONE or actor.matches(recorded.readable_by)

    def _wants(self, event: Event) -> bool:
        if self.session_id is not None and event.session_id != self.session_id:
            return False
        if event.type in SESSION_END_EVENTS:
            return True
        if not self.wants_type(event):
            return False
        return self.keys == ANYONE or (is_about_a_key(event) and self.wants_key(event.subject))

    def wants_type(self, event: Event) -> bool:
        return self.types == ANYONE or _matches(event.type, self.types) or _matches(event_class_of(event), self.types)

    def wants_key(self, key: str) -> bool:
        return self.keys == ANYONE or _matches(key, self.keys)


def _session_of(event: Event) -> str | None:
    """Return the session that an event belongs to, or is about."""
    return event.session_id or event.data.get("session_id")


def _matches(name: str | None, patterns: tuple[str, ...]) -> bool:
    return name is not None and any(fnmatchcase(name, pattern) for pattern in patterns)


def is_about_a_key(event: Event) -> bool:
    """Tell whether the subject of an event is a key of a board or of a branch of it."""
    return event.type.startswith(("board.", "branch.")) and event.type not in _SNAPSHOT_EVENTS


class EventPage(NamedTuple):
    """Matching events; all events up to ``reached`` have been considered.

    ``pruned_through``: events after the position that was asked for, up to this one, are past retention and deleted.
    """

    recorded: Sequence[StoredEvent]
    reached: int
    pruned_through: int | None = None

    @property
    def events(self) -> list[Event]:
        return [recorded.event for recorded in self.recorded]


class Feed(Protocol):
    """Live events: the log is read again on each wake-up."""

    async def next(self, actor: Actor, interest: EventFilter, after: int | None, wait_seconds: float) -> EventPage:
        """Return events after ``after`` (None: from now on), waiting for the first one if there is none."""
        ...

    async def source(self, tenant: str) -> str:
        """Return the CloudEvents source of a tenant's log."""
        ...
