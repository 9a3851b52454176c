"""What of the log is followed, and how far it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weft.capabilities.memory.model import scope_of
from weft.capabilities.records.item_names import MessageName, VersionName
from weft.capabilities.retrieval.texts import MemoryKey, item_of_key
from weft.capabilities.sessions.model import line_of, session_of
from weft.capabilities.shelves.model import MEMORY, SESSIONS, Source
from weft.kernel.identity import PRINCIPAL
from weft.kernel.jobs import Progress

if TYPE_CHECKING:
    from weft.kernel.events import Recorded

# The name of this work among the jobs of a tenant.
FOLLOWING = "sessions.follow"
IMPORTED = "session.imported"
_TO_MESSAGES = frozenset({"message.added", "message.visibility_changed"})
_TO_KEYS = frozenset({"board.written", "board.deleted", "board.expired"})
_TO_MEMORIES = frozenset({"memory.written", "memory.deleted", "memory.expired"})
_REDACTED = "context.redaction.applied"


class Subject(NamedTuple):
    """What may have changed: one item, and where it stands or should stand."""

    source: Source
    place: str
    item: str

    @property
    def shelf(self) -> str:
        return MEMORY if self.source == "memory" else SESSIONS


class Sweep(msgspec.Struct, frozen=True):
    """How far a session was gone through that came as a whole: its board first, then message by message."""

    session_id: str
    after_message: int = -1

    @property
    def begins(self) -> bool:
        return self.after_message < 0


class Position(NamedTuple):
    """The last event that was looked at; the one behind it is gone through item by item if there is a sweep."""

    seq: int = 0
    sweep: Sweep | None = None

    @classmethod
    def of(cls, progress: Progress) -> Position:
        sweep = msgspec.json.decode(progress.done, type=Sweep) if progress.done else None
        return cls(int(progress.cursor or 0), sweep)

    def as_progress(self) -> Progress:
        sweep = "" if self.sweep is None else msgspec.json.encode(self.sweep).decode()
        return Progress(str(self.seq), sweep)


def subject_of(recorded: Recorded) -> Subject | None:
    """Return what an event says may have changed; None if it is nothing that is searched."""
    event = recorded.event
    if event.type in _TO_MESSAGES and event.session_id is not None:
        return Subject("message", event.session_id, event.subject)
    if event.type in _TO_KEYS and event.session_id is not None:
        return Subject("board", event.session_id, item_of_key(event.subject))
    if event.type in _TO_MEMORIES:
        owner = next((who.removeprefix(PRINCIPAL) for who in recorded.readable_by), "")
        return Subject("memory", owner, str(MemoryKey(event.session_id, event.subject)))
    return _redacted(event.subject) if event.type == _REDACTED else None


def _redacted(item_id: str) -> Subject | None:
    """Return the item that was redacted, or is shown again, if it is one that is searched."""
    message = MessageName.parse(item_id)
    if message is not None:
        return Subject("message", message.session_id, str(message.message_id))
    version = VersionName.parse(item_id)
    if version is None:
        return None
    memory = scope_of(version.line_id)
    if memory is not None:
        return Subject("memory", memory.owner, str(MemoryKey(memory.session_id, version.key)))
    session_id = session_of(version.line_id)
    # Neither contexts nor branches of boards are searched.
    return Subject("board", session_id, item_of_key(version.key)) if version.line_id == line_of(session_id) else None


def pending_of(progress: Progress | None, last_seq: int) -> int:
    """Return how many events there are that were not looked at yet."""
    reached = 0 if progress is None else Position.of(progress).seq
    return max(0, last_seq - reached)
