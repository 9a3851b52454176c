"""What happened, as others are told of it: metadata only, never values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import msgspec

from weft.kernel.correlation import UNRELATED, Correlation
from weft.kernel.identity import ANYONE


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A fact to be published with the transaction that made it true.

    ``participants`` are those of its session, ``readable_by`` those of its key: who is told must be among both.
    """

    type: str
    session_id: str | None
    subject: str
    actor: str
    participants: tuple[str, ...] = ANYONE
    readable_by: tuple[str, ...] = ANYONE
    data: dict[str, Any] = {}


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A published fact: ``seq`` orders all events of a tenant."""

    seq: int
    type: str
    session_id: str | None
    subject: str
    actor: str
    at: datetime
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an event that was imported happened, and what it is called there."""

    source: str
    id: str


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event with those who may be told of it, what it is part of, and where it is from if not from here."""

    event: Event
    participants: tuple[str, ...]
    readable_by: tuple[str, ...]
    during: Correlation = UNRELATED
    origin: Origin | None = None


class Outbox(Protocol):
    """Where a transaction leaves what subscribers must be told."""

    async def publish(self, *events: NewEvent) -> None:
        """Add events, in order; they become visible exactly when the transaction commits."""
        ...

    async def last_seq(self) -> int:
        """Return the number of the latest event: right after publishing, that of the last one published."""
        ...

    async def readdress(self, event_type: str, session_id: str, subject: str, readable_by: tuple[str, ...]) -> None:
        """Change who may be told, from now on, of what was published before."""
        ...

    async def readdress_family(
        self, family: str, subject: str, participants: tuple[str, ...], readable_by: tuple[str, ...]
    ) -> None:
        """Do the same for all events of no session whose types begin with ``family``: of a subject and its parts."""
        ...
