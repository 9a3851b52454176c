"""Records as what they were before they were exported: versions of keys, messages and events.

What is not one of these, or says nothing that could be put there again, stays the record that it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Struct, structs

from weft.capabilities.history.model import Change, ChangeKind, ChangeMeta, Version, blob_hash, trunk_of
from weft.capabilities.messages.model import Message, Visibility, audience_for
from weft.capabilities.records.event_classes import event_class_of
from weft.capabilities.records.record_ids import MessageItemId, VersionId, record_ids_of_event
from weft.capabilities.records.refs import Id, McpMapping, OpenTelemetryMapping
from weft.capabilities.records.store import Redaction
from weft.capabilities.records.vocabulary import EVENT_CLASSES, RecordType
from weft.capabilities.sessions.model import Pattern, line_of
from weft.kernel.correlation import UNRELATED, Correlation
from weft.kernel.events import Event, Origin, StoredEvent
from weft.kernel.fields import Count, Name, Ordinal, ShortText
from weft.kernel.json_input import NO_METADATA
from weft.kernel.tokens import approximate_tokens

if TYPE_CHECKING:
    from weft.capabilities.records.model import ContextEvent, ContextItem

T = TypeVar("T")

# Up to the last moment that a date can tell.
_Micros = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999_999)]
_Key = Annotated[str, msgspec.Meta(pattern=r"^(?:[a-z0-9_]{1,64}:)?[a-z0-9_]{1,64}\Z")]
# Nobody at all is never meant: what says so is nothing that Weft has said.
_Patterns = Annotated[tuple[Pattern, ...], msgspec.Meta(min_length=1)]
# What happens to a session, its board and its transcript. All else is about what an agent has for itself, elsewhere.
_OF_SESSION = frozenset({"session.created", "session.archived", "session.imported"})
_OF_KEYS = ("board.", "branch.")
_OF_LABELS = (".snapshot", ".restored")
_TOLD_OF_ALL = frozenset({"type", "actor", "surface_id"})
_MESSAGE, _RECORD, _HISTORY = "message.", "record.", "history."
_encode = msgspec.json.Encoder().encode


class _NativeVersion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``metadata.weft`` of an item says that was a version of a key."""

    line: Id
    key: _Key
    life: Ordinal
    version: Ordinal
    act: ChangeKind
    seq: Ordinal
    author: Id
    principal_id: ShortText
    committed_at: _Micros
    reason: ShortText = ""
    step: Name | None = None
    tokens: Count = 0
    expires_at: _Micros | None = None
    readable_by: _Patterns | None = None
    writable_by: _Patterns | None = None


class _NativeMessage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``metadata.weft`` of an item says that was a message."""

    message_id: Ordinal
    audience: Pattern
    visibility: Visibility
    sender: Name
    sender_type: Name
    recipient_id: Name | None = None
    message_type: Name
    category: Name
    parent_message_id: Ordinal | None = None
    sent_at: _Micros
    metadata: dict[str, Any]
    author: Id | None = None


class _EventFacts(Struct, frozen=True, kw_only=True):
    """What Weft reads of what an event says; beside it, an event may say anything."""

    type: Id
    actor: Id
    life: Ordinal = 1
    version: Count = 0
    commit: Count = 0
    branch: Name | None = None
    context_id: Id | None = None
    record_type: RecordType | None = None


class BoardVersion(NamedTuple):
    """A version of a key of the session's board. Without a value it cannot be put there again, unless it is an end."""

    version: Version

    @property
    def is_silent(self) -> bool:
        return self.version.change.act is ChangeKind.WRITE and self.version.value is None


def decode_board_version(item: ContextItem, text: str | None, session_id: str) -> BoardVersion | None:
    """Return the version that an item is of the session's board; None if it is of nothing of the sort."""
    native = _native(item, _NativeVersion)
    if native is None or native.line != line_of(session_id):
        return None
    written = native.act is ChangeKind.WRITE
    if item.item_id != str(VersionId(native.line, native.key, native.life, native.version, not written)):
        return None
    value = text if written else None
    tokens = native.tokens or (max(1, approximate_tokens(value)) if value is not None else 0)
    meta = ChangeMeta(tokens, native.expires_at, native.readable_by, native.writable_by)
    change = Change(
        native.key, native.life, native.version, native.act, None if value is None else blob_hash(value), meta
    )
    told = (native.reason, native.step, native.principal_id)
    return BoardVersion(Version(change, native.seq, native.author, native.committed_at, value, *told))


def decode_message(item: ContextItem, text: str | None, session_id: str) -> Message | None:
    """Return the message that an item is; None if it is none, or does not say what was said."""
    native = _native(item, _NativeMessage)
    if native is None or text is None or item.item_id != str(MessageItemId(session_id, native.message_id)):
        return None
    if native.audience != audience_for(native.visibility, native.sender, native.sender_type):
        return None
    return Message(
        message_id=native.message_id,
        audience=native.audience,
        visibility=native.visibility,
        sender=native.sender,
        sender_type=native.sender_type,
        recipient_id=native.recipient_id,
        message_type=native.message_type,
        category=native.category,
        parent_id=native.parent_message_id,
        sent_at=native.sent_at,
        content=text,
        metadata=_encode(native.metadata).decode() if native.metadata else NO_METADATA,
        author=native.author,
    )


def decode_event(
    record: ContextEvent, participants: tuple[str, ...], readable_by: tuple[str, ...]
) -> StoredEvent | None:
    """Return the event of a session's log that a record tells of; None if it is none of those."""
    facts, during = _converted(record.data, _EventFacts), _during(record)
    number = record.event_id.removeprefix(f"{record.source}#")
    if facts is None or during is None or number == record.event_id:
        return None
    told = Event(
        seq=0,
        type=facts.type,
        session_id=record.session_id or None,
        subject=record.subject or "",
        actor=facts.actor,
        at=record.time,
        data={name: value for name, value in record.data.items() if name not in _TOLD_OF_ALL},
    )
    if event_class_of(told) != record.event_type or not _is_of_session(told, facts):
        return None
    recorded = StoredEvent(told, participants, readable_by, during, Origin(record.source, number))
    # What an event is about is told with it, and follows from what it says.
    ids = record_ids_of_event(recorded)
    data = {name: value for name, value in told.data.items() if name not in ids or ids[name] != value}
    return replace(recorded, event=structs.replace(told, data=data))


def _is_of_session(event: Event, facts: _EventFacts) -> bool:
    """Tell whether an event can have happened to a session, to its board or its transcript."""
    sort, line = event.type, line_of(event.session_id or "")
    if sort in EVENT_CLASSES or sort in _OF_SESSION or sort.startswith(_RECORD):
        return True
    if sort.startswith(_MESSAGE):
        return MessageItemId.parse(f"message:{event.session_id}/{event.subject}") is not None
    if sort.startswith(_OF_KEYS):
        has_branch = (facts.branch is not None) is sort.startswith("branch.")
        return has_branch and (sort.endswith(_OF_LABELS) or _is_version(event.data))
    return sort.startswith(_HISTORY) and (facts.context_id is None or trunk_of(facts.context_id) == line)


def _is_version(data: dict[str, Any]) -> bool:
    return "life" in data and data.get("version", 0) > 0


def decode_redaction(item: ContextItem, session_id: str, now: int) -> Redaction | None:
    """Return what was redacted of an item before it left; None if nothing was."""
    state = item.redaction_state or "none"
    if state == "none":
        return None
    by = item.redacted_by if isinstance(item.redacted_by, str) else "unknown"
    words = item.content if state == "summarized" and isinstance(item.content, str) else None
    told = (state, item.redaction_method or "", "imported", by, now)
    return Redaction(item.item_id, session_id, *told, replacement=words, imported_policies=item.policy_refs)


def _native(item: ContextItem, kind: type[T]) -> T | None:
    return _converted(item.metadata.get("weft"), kind)


def _converted(value: Any, kind: type[T]) -> T | None:  # noqa: ANN401 - JSON of any shape
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def _during(record: ContextEvent) -> Correlation | None:
    """Return what an event was part of; None if that is nothing that a log can keep."""
    ids: dict[str, Any] = {
        name: getattr(record, name) for name in Correlation.__struct_fields__ if hasattr(record, name)
    }
    for mapping in record.external_mappings:
        if isinstance(mapping, McpMapping):
            ids |= {"mcp_session_id": mapping.mcp_session_id, "jsonrpc_request_id": mapping.jsonrpc_request_id}
        elif isinstance(mapping, OpenTelemetryMapping):
            ids |= {"trace_id": mapping.trace_id, "span_id": mapping.span_id}
    given = {name: value for name, value in ids.items() if value is not UNSET}
    try:
        return msgspec.convert(given, Correlation) if given else UNRELATED
    except msgspec.ValidationError:
        return None
