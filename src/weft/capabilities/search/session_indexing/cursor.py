"""What of the log is followed, and how far it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weft.capabilities.indexing.collections.model import MEMORY, SOURCES, Source, domain_collection
from weft.capabilities.memory.model import scope_of
from weft.capabilities.records.record_ids import MessageItemId, VersionId
from weft.capabilities.search.items import VERSION_OF_MESSAGES, MemoryKey, item_of_key, version_of
from weft.capabilities.sessions.model import line_of, session_of
from weft.kernel.identity import PRINCIPAL
from weft.kernel.ports import Progress

if TYPE_CHECKING:
    from weft.kernel.events import StoredEvent
    from weft.kernel.ports import JobStore

# The names of this work among the jobs of a tenant: going on with the log, and going back through what it told before.
FOLLOWING = "sessions.follow"
REINDEXING = "sessions.reindex"
IMPORTED = "session.imported"
_NOBODY = ""
_WHENEVER = 2**62
_TO_MESSAGES = frozenset({"message.added", "message.visibility_changed"})
_TO_KEYS = frozenset({"board.written", "board.deleted", "board.expired"})
_TO_MEMORIES = frozenset({"memory.written", "memory.deleted", "memory.expired"})
_REDACTED = "context.redaction.applied"


class IndexItem(NamedTuple):
    """What may have changed: one item, and where it stands or should stand."""

    source: Source
    place: str
    item: str

    @property
    def collection(self) -> str:
        return SOURCES[self.source].collection or domain_collection(self.place)


class Sweep(msgspec.Struct, frozen=True):
    """How far a session was gone through that came as a whole with an event: its board by key, then its messages."""

    imported: int
    after_key: str = ""
    after_message: int | None = None


class ReindexRange(msgspec.Struct, frozen=True):
    """What came to its collection up to these numbers is to be put there anew, and embedded anew too if ``afresh``."""

    sessions: int
    memory: int
    afresh: bool = False

    def replaces(self, collection: str, number: int) -> bool:
        return number <= (self.memory if collection == MEMORY else self.sessions)


class IndexCursor(NamedTuple):
    """The last event that was looked at; the next one is gone through item by item if there is a sweep.

    What stands as it should is left alone, unless it is to be put there anew.
    """

    seq: int = 0
    sweep: Sweep | None = None
    anew: ReindexRange | None = None

    @classmethod
    def of(cls, progress: Progress) -> IndexCursor:
        sweep, anew = _beside.decode(progress.done) if progress.done else (None, None)
        return cls(int(progress.cursor or 0), sweep, anew)

    def at(self, seq: int, sweep: Sweep | None = None) -> IndexCursor:
        """Return the place that an event is, on the same way."""
        return self._replace(seq=seq, sweep=sweep)

    def as_progress(self) -> Progress:
        beside = (self.sweep, self.anew)
        return Progress(str(self.seq), "" if beside == (None, None) else msgspec.json.encode(beside).decode())


_beside = msgspec.json.Decoder(tuple[Sweep | None, ReindexRange | None])


def subject_of(recorded: StoredEvent) -> IndexItem | None:
    """Return what an event says may have changed; None if it is nothing that is searched."""
    event = recorded.event
    if event.type in _TO_MESSAGES and event.session_id is not None:
        return IndexItem("message", event.session_id, event.subject)
    if event.type in _TO_KEYS and event.session_id is not None:
        return IndexItem("board", event.session_id, item_of_key(event.subject))
    if event.type in _TO_MEMORIES:
        owner = next((who.removeprefix(PRINCIPAL) for who in recorded.readable_by), "")
        return IndexItem("memory", owner, str(MemoryKey(event.session_id, event.subject)))
    standing = standing_of(event.subject) if event.type == _REDACTED else None
    return None if standing is None else standing.subject


class StandingOf(NamedTuple):
    """Where one version of an item stands, if it does."""

    subject: IndexItem
    version: int


def standing_of(item_id: str) -> StandingOf | None:
    """Return where an item stands that goes by this id in records; None if it is nothing that is searched."""
    message = MessageItemId.parse(item_id)
    if message is not None:
        return StandingOf(IndexItem("message", message.session_id, str(message.message_id)), VERSION_OF_MESSAGES)
    version = VersionId.parse(item_id)
    if version is None:
        return None
    memory = scope_of(version.line_id)
    if memory is not None:
        subject = IndexItem("memory", memory.owner, str(MemoryKey(memory.session_id, version.key)))
        return StandingOf(subject, version_of(version))
    session_id = session_of(version.line_id)
    if version.line_id != line_of(session_id):
        # Neither contexts nor branches of boards are searched.
        return None
    return StandingOf(IndexItem("board", session_id, item_of_key(version.key)), version_of(version))


async def go_back(jobs: JobStore, last_seq: int, anew: ReindexRange | None = None) -> None:
    """Have everything gone through that the log told so far: what was told last comes first.

    What is to be put there anew stays so, unless this says otherwise.
    """
    # Who goes through the log holds another job: this one says only how far that is, and is always to be had.
    standing = await jobs.claim(REINDEXING, _NOBODY, _WHENEVER, 0, due_by=_WHENEVER)
    if anew is None and standing is not None:
        anew = IndexCursor.of(standing).anew
    await jobs.save(REINDEXING, IndexCursor(last_seq + 1, anew=anew).as_progress())


async def is_still_at(jobs: JobStore, progress: Progress) -> bool:
    """Tell whether going back is where it was, and was not begun anew; that stays so until the transaction ends."""
    return await jobs.renew(REINDEXING, _NOBODY, 0) == progress


def pending_of(progress: Progress | None, last_seq: int) -> int:
    """Return how many events there are that were not looked at yet."""
    reached = 0 if progress is None else IndexCursor.of(progress).seq
    return max(0, last_seq - reached)


def left_of(progress: Progress) -> int:
    """Return how many events are ahead of whoever goes back through the log."""
    return max(0, IndexCursor.of(progress).seq - 1)
