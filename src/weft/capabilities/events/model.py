"""Which events a caller is told of."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, Protocol

from weft.capabilities.records.event_classes import class_of
from weft.kernel.identity import ANYONE, PRINCIPAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.kernel.events import Event, StoredEvent
    from weft.kernel.identity import Actor


# Whatever part of a session one follows, its end is news.
ENDINGS = frozenset({"session.archived", "session.deleted"})


# With these, who may be told of earlier events is another question than before.
READDRESSING = frozenset({"message.visibility_changed", "domain.updated"})


# What these are about is a snapshot's label, which may read like a key.
_ABOUT_LABELS = frozenset({"board.snapshot", "board.restored", "branch.snapshot", "branch.restored"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """Which events to look up: all that match everything that is said here. Times are microseconds, ``until`` not in.

    ``upto`` is the last number to look at. Without ``items`` what happens to keys and messages, which is most of what
    happens, is left out.
    """

    session_id: str | None = None
    actor: str | None = None
    subject: str | None = None
    turn_id: str | None = None
    task_id: str | None = None
    tool_call_id: str | None = None
    since: int | None = None
    until: int | None = None
    upto: int | None = None
    items: bool = True


@dataclass(frozen=True, slots=True)
class Interest:
    """What a subscriber wants to hear of: one session or all it takes part in, board keys and types by pattern.

    A type is the event's own or its class in Agent Context. ``personal`` leaves out everything that anybody else is
    told as well.
    """

    session_id: str | None = None
    keys: tuple[str, ...] = ANYONE
    types: tuple[str, ...] = ANYONE
    personal: bool = False

    def covers(self, recorded: StoredEvent, actor: Actor) -> bool:
        """Tell whether the subscriber asked for this event and may be told of it."""
        return self._may_be_told(recorded, actor) and self._wants(recorded.event)

    def _may_be_told(self, recorded: StoredEvent, actor: Actor) -> bool:
        if self.personal and recorded.readable_by != (f"{PRINCIPAL}{actor.principal_id}",):
            return False
        if recorded.participants != ANYONE and not actor.is_admin and not actor.matches(recorded.participants):
            return False
        return recorded.readable_by == ANYONE or actor.matches(recorded.readable_by)

    def _wants(self, event: Event) -> bool:
        if self.session_id is not None and event.session_id != self.session_id:
            return False
        if event.type in ENDINGS:
            return True
        if not self.wants_type(event):
            return False
        return self.keys == ANYONE or (_is_about_a_key(event) and self.wants_key(event.subject))

    def wants_type(self, event: Event) -> bool:
        return self.types == ANYONE or _matches(event.type, self.types) or _matches(class_of(event), self.types)

    def wants_key(self, key: str) -> bool:
        return self.keys == ANYONE or _matches(key, self.keys)


def _matches(name: str | None, patterns: tuple[str, ...]) -> bool:
    return name is not None and any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_about_a_key(event: Event) -> bool:
    return event.type.startswith(("board.", "branch.")) and event.type not in _ABOUT_LABELS


class EventPage(NamedTuple):
    """Events of interest, and how far the reading got: nothing up to ``reached`` is missing."""

    recorded: Sequence[StoredEvent]
    reached: int

    @property
    def events(self) -> list[Event]:
        return [recorded.event for recorded in self.recorded]


class EventStore(Protocol):
    """The committed events of the transaction's tenant: the truth that every subscription reads from."""

    async def last_seq(self) -> int: ...

    async def after(self, seq: int, session_id: str | None, limit: int) -> Sequence[StoredEvent]:
        """Return events behind ``seq`` in order, of one session or of all."""
        ...

    async def before(self, seq: int, limit: int) -> Sequence[StoredEvent]:
        """Return events ahead of ``seq``, the latest first."""
        ...

    async def find(self, wanted: EventQuery, after: int, limit: int) -> Sequence[StoredEvent]:
        """Return what matches, in order, behind ``after``."""
        ...

    async def numbered(self, numbers: Sequence[int]) -> Sequence[StoredEvent]:
        """Return those of the events, named by their numbers, that are there, in order."""
        ...

    async def source(self) -> str:
        """Return what the tenant's log is called outside: no two installations have one of the same name."""
        ...


class PastEvents(Protocol):
    """Where what happened elsewhere is added to the log, behind everything that happened here."""

    async def reserve(self, count: int) -> int:
        """Return the first of so many numbers in a row. Nobody else gets one until the transaction ends."""
        ...

    async def republish(self, past: Sequence[StoredEvent]) -> None:
        """Add events as they were told, but under reserved numbers: with their times, what they were part of, origins.

        Nobody is woken by them.
        """
        ...


class Feed(Protocol):
    """Live events: the table is read again whenever a wake says there may be more."""

    async def next(self, actor: Actor, interest: Interest, after: int | None, wait_seconds: float) -> EventPage:
        """Return events behind ``after`` (None: behind the present), waiting for the first one if need be."""
        ...

    async def source(self, tenant: str) -> str:
        """Return what a tenant's log is called outside."""
        ...
