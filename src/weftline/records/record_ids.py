"""Ids of records that the engine derives from its own data, and the records that an event of the log refers to.

Pure functions: an event alone is enough to name its records, except for a commit of many entries (``BulkCommit``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from weftline.history.item_ids import MessageItemId, VersionId, is_number
from weftline.history.line_kinds import AGENT, find_kind, is_composite, line_kinds, line_of, session_of
from weftline.history.model import LATEST, line_name, trunk_of
from weftline.kernel.clock import to_micros
from weftline.kernel.fields import MAX_INT
from weftline.kernel.identity import PRINCIPAL
from weftline.records.model import RECORD_TYPES

if TYPE_CHECKING:
    from weftline.kernel.events import Event, StoredEvent

_SURFACE = "session:"
_SOURCE = re.compile(r"([a-z]+)://([^/?#]+)(?:/([a-z]+))?\Z")
_TRANSCRIPT = "session"
_PULL = "pull:"
_INJECTION = "/injection"
_RECEIPT = "receipt:"
# Of the records of compactions by Weftline; the id of a summary names the window.
COMPACTION = "compaction:"
_SUMMARY = "summary:"
_WINDOW = "window:"
_SUMMARY_NAME = re.compile(r"([0-9]+)-([0-9]+)\.([0-9a-f]{16})\Z")
# Records derived from a receipt, by the types of the events that announce them.
RECEIPT_EVENTS = {
    "context.surface.created": ("surface",),
    "context.selection.completed": ("selection",),
    "context.budget.applied": ("budget", "window"),
    "context.assembly.created": ("assembly",),
    "context.injection.applied": ("injection",),
    "model_call.metered": ("injection",),
}
RECEIPT_PARTS = frozenset(part for parts in RECEIPT_EVENTS.values() for part in parts)
# Prefix of the event ids of every Weftline installation.
_EVENT_PREFIX = "urn:weftline:"
_SESSION_TYPES = frozenset({"session.created", "session.imported", "session.archived", "session.members_changed"})
_REMOVALS = frozenset({"deleted", "expired"})
# Change many entries of a line with one event.
_BULK_CHANGES = frozenset({"history.rolled_back", "history.merged"})
_WINDOW_CHANGES = frozenset({"window.ingested", "window.changed"})


def is_engine_item(item_id: str) -> bool:
    """Whether an item is a version of a key or a message, so that the engine knows its attributes."""
    return MessageItemId.parse(item_id) is not None or VersionId.parse(item_id) is not None


def memory_line(owner: str, session_id: str | None) -> str:
    """Return the line id of an agent's memory, global or of a session. Names contain no colon, so ids are unique."""
    return f"memory:{owner}" if session_id is None else f"memory:{owner}:{session_id}"


class VersionOrigin(NamedTuple):
    """A version of a key, with its commit if known; ``until`` is the latest time at which it can have been written.

    ``moved`` is true if the event was imported: its commit had another number there.
    """

    name: VersionId
    commit: int | None = None
    until: int = LATEST
    moved: bool = False


class SurfaceId(NamedTuple):
    """Surface id of a session."""

    session_id: str

    def __str__(self) -> str:
        return f"{_SURFACE}{self.session_id}"


class EngineSourceId(NamedTuple):
    """Source id of engine items: the board or transcript of a session, or a part of an agent."""

    place: str
    owner: str
    part: str | None = None

    def __str__(self) -> str:
        return f"{self.place}://{self.owner}" + (f"/{self.part}" if self.part else "")

    @classmethod
    def parse(cls, source_id: str) -> EngineSourceId | None:
        found = _SOURCE.match(source_id)
        return None if found is None or not _is_source(found[1], found[3]) else cls(found[1], found[2], found[3])


def _is_source(place: str, part: str | None) -> bool:
    """Tell whether a line or transcript of a session, team or user (no part), or a line of an agent, is a source."""
    if part is None:
        kind = line_kinds().get(place)
        return place == _TRANSCRIPT or (kind is not None and bool(kind.source_kind) and not kind.has_name(AGENT))
    kind = line_kinds().get(part)
    return place == AGENT and kind is not None and kind.has_name(AGENT)


class StoredRecordId(NamedTuple):
    """A record in the record store."""

    type: str
    record_id: str


class PullId(NamedTuple):
    """Id of a pull: an agent loaded a version of its context into a session at a time."""

    session_id: str
    owner: str
    version: int
    at: int

    def __str__(self) -> str:
        return f"{_PULL}{self.session_id}/{self.owner}/{self.version}.{self.at}"

    @classmethod
    def parse(cls, record_id: str) -> PullId | None:
        session_id, _, rest = record_id.removeprefix(_PULL).removesuffix(_INJECTION).partition("/")
        owner, _, numbers = rest.partition("/")
        version, _, at = numbers.partition(".")
        if not record_id.startswith(_PULL) or not (is_number(version) and is_number(at)):
            return None
        return cls(session_id, owner, int(version), int(at))


class PullOrigin(NamedTuple):
    """A pull as described by its event. ``content_hash`` is the hash of the loaded content, if recorded."""

    name: PullId
    context_id: str
    content_hash: str | None


class ReceiptOrigin(NamedTuple):
    """A record derived from the receipt of an assembled prompt. ``part`` is its type without ``context_``."""

    receipt_id: str
    part: str

    def __str__(self) -> str:
        return f"{_RECEIPT}{self.receipt_id}/{self.part}"

    @classmethod
    def parse(cls, record_id: str) -> ReceiptOrigin | None:
        receipt_id, _, part = record_id.removeprefix(_RECEIPT).partition("/")
        if not record_id.startswith(_RECEIPT) or part not in RECEIPT_PARTS:
            return None
        return cls(receipt_id, part)

    @property
    def ref(self) -> RecordRef:
        return RecordRef(f"context_{self.part}", str(self), self)


class SummaryId(NamedTuple):
    """Record id of a summary: the window's line, the first and last event by number, and a hash of its content."""

    line_id: str
    first: int
    last: int
    digest: str

    def __str__(self) -> str:
        return f"{_SUMMARY}{self.line_id.removeprefix(_WINDOW)}/{self.first}-{self.last}.{self.digest}"

    @classmethod
    def parse(cls, record_id: str) -> SummaryId | None:
        window, _, name = record_id.removeprefix(_SUMMARY).rpartition("/")
        found = _SUMMARY_NAME.match(name)
        if not record_id.startswith(_SUMMARY) or not window or found is None:
            return None
        return cls(f"{_WINDOW}{window}", int(found[1]), int(found[2]), found[3])


class EventOrigin(NamedTuple):
    """An event, with the item it refers to: who may not see the item may not see the event."""

    recorded: StoredEvent
    about: VersionOrigin | MessageItemId | None


RecordOrigin = (
    VersionOrigin
    | MessageItemId
    | SurfaceId
    | EngineSourceId
    | StoredRecordId
    | PullOrigin
    | ReceiptOrigin
    | EventOrigin
)


class RecordRef(NamedTuple):
    """Type and id of a record, and where its data is stored."""

    type: str
    id: str
    origin: RecordOrigin

    @classmethod
    def stored(cls, record_type: str, record_id: str) -> RecordRef:
        return cls(record_type, record_id, StoredRecordId(record_type, record_id))


class BulkCommit(NamedTuple):
    """A commit whose changed entries are items without events of their own."""

    line_id: str
    seq: int

    @property
    def is_composite(self) -> bool:
        """Whether it commits a whole agent context, whose parts have commits of their own."""
        return is_composite(self.line_id)


def records_of_event(recorded: StoredEvent) -> list[RecordRef]:
    """Return the records that an event refers to."""
    event = recorded.event
    stored = event.data.get("record_type")
    if isinstance(stored, str) and stored in RECORD_TYPES:
        return [RecordRef.stored(stored, event.subject)]
    receipt_id = event.data.get("receipt_id")
    if isinstance(receipt_id, str) and event.type in RECEIPT_EVENTS:
        return [ReceiptOrigin(receipt_id, part).ref for part in RECEIPT_EVENTS[event.type]]
    if event.type == "context.redaction.applied":
        return [_redacted(event)]
    if event.type == "context.pulled" and event.session_id is not None:
        return _pulled(event)
    if event.type in _SESSION_TYPES and event.session_id is not None:
        name = SurfaceId(event.session_id)
        return [RecordRef("context_surface", str(name), name)]
    about = item_of_event(recorded)
    return [] if about is None else [_item(about)]


def record_ids_of_event(recorded: StoredEvent) -> dict[str, str]:
    """Return the ids of the records that an event refers to, by the id field of their types."""
    named = (each for each in records_of_event(recorded) if each.type != "context_event")
    return {RECORD_TYPES[each.type].id_field: each.id for each in named}


def item_of_event(recorded: StoredEvent) -> VersionOrigin | MessageItemId | None:
    """Return the item that an event of a key or a message refers to."""
    event = recorded.event
    family, _, done = event.type.partition(".")
    if family == "message":
        return MessageItemId.parse(f"message:{event.session_id}/{event.subject}")
    incarnation, version, commit = (_number_in(event, name) for name in ("incarnation", "version", "commit"))
    if family not in {"board", "branch", "memory"} or incarnation is None or version is None:
        return None
    name = VersionId(_line_of(recorded, family), event.subject, incarnation, version, done in _REMOVALS)
    return VersionOrigin(name, commit, to_micros(event.at), recorded.origin is not None)


def bulk_commit_of(event: Event) -> BulkCommit | None:
    """Return the commit that has to be read to find the items of an event of an agent context or a window."""
    version, context_id = _number_in(event, "version"), event.data.get("context_id")
    if version is None:
        return None
    if event.type == "agent.defined":
        return BulkCommit(f"agent:{event.subject}", version)
    if not isinstance(context_id, str):
        return None
    kind = find_kind(context_id)
    is_memory = kind is not None and kind.composite
    if is_memory and (event.type == "context.pushed" or event.type in _BULK_CHANGES):
        return BulkCommit(context_id, version)
    return BulkCommit(context_id, version) if event.type in _WINDOW_CHANGES else None


def parse_item_id(item_id: str) -> RecordRef:
    """Resolve an item id: a version, a message, or an item in the record store."""
    version = VersionId.parse(item_id)
    if version is not None:
        return _item(VersionOrigin(version))
    stored = RecordRef.stored("context_item", item_id)
    return stored._replace(origin=MessageItemId.parse(item_id) or stored.origin)


def parse_surface_id(surface_id: str) -> RecordRef:
    """Resolve a surface id."""
    stored = RecordRef.stored("context_surface", surface_id)
    is_session = surface_id.startswith(_SURFACE)
    return stored._replace(origin=SurfaceId(surface_id.removeprefix(_SURFACE))) if is_session else stored


def parse_source_id(source_id: str) -> RecordRef:
    """Resolve the id of a source ref."""
    stored = RecordRef.stored("context_source_ref", source_id)
    return stored._replace(origin=EngineSourceId.parse(source_id) or stored.origin)


def is_reserved(record_id: str) -> bool:
    """Whether an id has a form that only the engine assigns."""
    if record_id.startswith((_SURFACE, _PULL, _RECEIPT, COMPACTION, _SUMMARY, _EVENT_PREFIX)) or is_engine_item(
        record_id
    ):
        return True
    return EngineSourceId.parse(record_id) is not None


def event_seq_of(event_id: str, source: str) -> int | None:
    """Return the sequence number of an event id; None if it is not an id of the log ``source``."""
    number = event_id.removeprefix(f"{source}#")
    return int(number) if number != event_id and is_number(number) else None


def event_subject_of(item: RecordRef) -> tuple[str, str | None]:
    """Return the subject of the events about an item, and their session if known."""
    origin = item.origin
    if isinstance(origin, MessageItemId):
        return str(origin.message_id), origin.session_id
    if isinstance(origin, VersionOrigin):
        prefix, _, owner = origin.name.line_id.partition(":")
        name = owner.partition("@")[0].partition(":")[0]
        if prefix in {"context", "agent"}:
            return name, None
        if line_kinds()[prefix].composite:
            return f"{prefix}:{name}", None
        return origin.name.key, session_of(origin.name.line_id) if prefix == "board" else None
    return item.id, None


def subject_item_id(event: EventOrigin) -> str | None:
    """Return the id of the item that an event refers to."""
    return None if event.about is None else _item(event.about).id


def _item(about: VersionOrigin | MessageItemId) -> RecordRef:
    return RecordRef("context_item", str(about.name if isinstance(about, VersionOrigin) else about), about)


def _redacted(event: Event) -> RecordRef:
    kind = event.data.get("redacted_type", "context_item")
    return parse_item_id(event.subject) if kind == "context_item" else RecordRef.stored(kind, event.subject)


def _pulled(event: Event) -> list[RecordRef]:
    """Return the assembly and injection of a pull; only if the agent pulled its own context."""
    version, context_id = _number_in(event, "version"), event.data.get("context_id")
    content_hash = event.data.get("hash")
    if version is None or not isinstance(context_id, str) or trunk_of(context_id) != f"context:{event.subject}":
        return []
    name = PullId(event.session_id or "", event.subject, version, to_micros(event.at))
    pull = PullOrigin(name, context_id, content_hash if isinstance(content_hash, str) else None)
    return [
        RecordRef("context_assembly", str(name), pull),
        RecordRef("context_injection", f"{name}{_INJECTION}", pull),
    ]


def _line_of(recorded: StoredEvent, family: str) -> str:
    event = recorded.event
    if family == "memory":
        owner = next(iter(recorded.readable_by)).removeprefix(PRINCIPAL)
        return memory_line(owner, event.session_id)
    branch = event.data.get("branch")
    return line_name(line_of(event.session_id or ""), branch if isinstance(branch, str) else None)


def _number_in(event: Event, name: str) -> int | None:
    number = event.data.get(name)
    return number if isinstance(number, int) and 0 <= number <= MAX_INT else None
