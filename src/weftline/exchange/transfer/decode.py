"""Decodes derived records back into key versions, messages and events.

A record that is none of these, or lacks the data to restore it, stays a record.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Struct, structs

from weftline.access.model import Pattern
from weftline.history.item_ids import ItemRef, LineKey, MessageItemId, VersionId
from weftline.history.line_kinds import line_of
from weftline.history.model import Change, ChangeKind, ChangeMeta, Version, blob_hash, branch_of, line_name, trunk_of
from weftline.kernel.correlation import NO_CORRELATION, Correlation
from weftline.kernel.events import Event, Origin, StoredEvent
from weftline.kernel.fields import Count, Name, Ordinal, ShortText
from weftline.kernel.identity import ANYONE, principal_of
from weftline.kernel.json_input import JSON_MEDIA_TYPE, NO_METADATA, is_json
from weftline.kernel.operation import shared_fields
from weftline.kernel.ports import approximate_tokens
from weftline.records.engine_metadata import ENGINE
from weftline.records.event_classes import event_class_of
from weftline.records.record_ids import record_ids_of_event
from weftline.records.refs import Id, McpMapping, OpenTelemetryMapping
from weftline.records.schemas import Redaction
from weftline.records.vocabulary import EVENT_CLASSES, RecordType
from weftline.safety.trust.model import INJECTION, PII, SECRET, Source, Trust, TrustLabel, lowest_trust
from weftline.sessions.messages.model import AnyVisibility, Message, audience_for
from weftline.windows.model import agent_of, decode_whole_event, encode_event, window_line

if TYPE_CHECKING:
    from weftline.records.model import ContextEvent, ContextItem
    from weftline.windows.model import WindowEvent


# Trust labels of imported items. What another installation says may lower the trust of an item, never raise it.

_MAX_LISTED = 50
_MAX_TEXT = 500
# Readers see reasons, so that no other text may come with them.
_REASON = re.compile(rf"(?:{INJECTION}|{SECRET}|{PII}|derived)(?:: [a-z0-9_ -]{{1,40}})?\Z")
_AGENTS = ("orchestrator", "subagent:")

_Texts = Annotated[tuple[Annotated[str, msgspec.Meta(max_length=_MAX_TEXT)], ...], msgspec.Meta(max_length=_MAX_LISTED)]


class ExportedLabel(msgspec.Struct, frozen=True):
    """A label as a bundle has it."""

    source: Source
    trust: Trust
    score: float | None = None
    reasons: _Texts = ()
    derived_from: _Texts = ()
    approved_by: Annotated[str, msgspec.Meta(max_length=_MAX_TEXT)] | None = None


def imported_label(given: ExportedLabel | None, author: str, session_id: str) -> TrustLabel | None:
    """Return the label of an imported item; None for an unlabelled one of an agent, which is not trusted anyway."""
    if given is None:
        return None if author.startswith(_AGENTS) else TrustLabel(Source.IMPORT, Trust.UNTRUSTED)
    return TrustLabel(
        source=Source.IMPORT,
        trust=lowest_trust([given.trust], Trust.UNTRUSTED),
        score=given.score,
        reasons=tuple(reason for reason in given.reasons if _REASON.match(reason)),
        derived_from=tuple(ref for ref in given.derived_from if _is_in(ref, session_id)),
    )


def _is_in(reference: str, session_id: str) -> bool:
    """Tell whether a reference names an item of the imported session itself."""
    ref = ItemRef.parse(reference)
    if ref is None:
        return False
    message, key = MessageItemId.parse(ref.item), LineKey.parse(ref.item)
    if message is not None:
        return message.session_id == session_id
    return key is not None and key.line_id == line_of(session_id)


T = TypeVar("T")

# Up to the last microsecond of the year 9999.
_Micros = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999_999)]
_Key = Annotated[str, msgspec.Meta(pattern=r"^(?:[a-z0-9_]{1,64}:)?[a-z0-9_]{1,64}\Z")]
# An empty ACL is never exported.
_Patterns = Annotated[tuple[Pattern, ...], msgspec.Meta(min_length=1)]
# Events of a session, its board and its transcript. All others are about the private data of an agent.
_OF_SESSION = frozenset({"session.created", "session.archived", "session.imported"})
_OF_KEYS = ("board.", "branch.")
_OF_LABELS = (".snapshot", ".restored")
_COMMON_FIELDS = frozenset({"type", "actor", "surface_id"})
_MESSAGE, _RECORD, _HISTORY = "message.", "record.", "history."
_encode = msgspec.json.Encoder().encode


class _NativeVersion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``metadata.weftline`` of an item that is a key version."""

    line: Id
    key: _Key
    incarnation: Ordinal
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
    trust: ExportedLabel | None = None


class _NativeEvent(_NativeVersion, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``metadata.weftline`` of an item that is an event of a window."""

    key: Id


class WindowVersion(NamedTuple):
    """A version of an event of a window, its content if that is a value of its own, and its number; 0 if removed."""

    line_id: str
    version: Version
    content: str | None
    number: int

    @property
    def size(self) -> int:
        return sum(len(text.encode()) for text in (self.version.value, self.content) if text is not None)


class _NativeMessage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``metadata.weftline`` of an item that is a message."""

    message_id: Ordinal
    audience: str
    visibility: AnyVisibility
    sender: Name
    sender_type: Name
    recipient_id: Name | None = None
    message_type: Name
    category: Name
    parent_message_id: Ordinal | None = None
    sent_at: _Micros
    metadata: dict[str, Any]
    author: Id | None = None
    trust: ExportedLabel | None = None


class _EventFields(Struct, frozen=True, kw_only=True):
    """The fields that Weftline reads from an event's data; there may be others."""

    type: Id
    actor: Id
    incarnation: Ordinal = 1
    version: Count = 0
    commit: Count = 0
    branch: Name | None = None
    context_id: Id | None = None
    record_type: RecordType | None = None


def decode_board_version(item: ContextItem, text: str | None, session_id: str) -> Version | None:
    """Decode a version of the session's board; None if the item is something else."""
    native = _native(item, _NativeVersion)
    if native is None or native.line != line_of(session_id):
        return None
    written = native.act is ChangeKind.WRITE
    if item.item_id != str(VersionId(native.line, native.key, native.incarnation, native.version, not written)):
        return None
    value = text if written else None
    tokens = native.tokens or (max(1, approximate_tokens(value)) if value is not None else 0)
    label = imported_label(native.trust, native.author, session_id)
    is_value_json = item.mime_type == JSON_MEDIA_TYPE and value is not None and is_json(value)
    media_type = JSON_MEDIA_TYPE if is_value_json else None
    acls = native.readable_by, native.writable_by
    meta = ChangeMeta(tokens, native.expires_at, *acls, media_type=media_type, trust=label)
    change = Change(
        native.key, native.incarnation, native.version, native.act, None if value is None else blob_hash(value), meta
    )
    commit_fields = (native.reason, native.step, native.principal_id)
    return Version(change, native.seq, native.author, native.committed_at, value, *commit_fields)


def _in_session(event: WindowEvent, session_id: str) -> WindowEvent:
    """Return an event whose origin, if it is a copy, is in this session: a redaction of that finds it."""
    origin = None if event.origin is None else VersionId.parse(event.origin)
    if origin is None:
        return event
    line_id = line_name(window_line(session_id, agent_of(origin.line_id)), branch_of(origin.line_id))
    return structs.replace(event, origin=str(origin._replace(line_id=line_id)))


def decode_window_version(item: ContextItem, text: str | None, session_id: str) -> WindowVersion | None:
    """Decode a version of an event of a window of the session; None if the item is something else or has no text."""
    native = _native(item, _NativeEvent)
    if native is None or native.line != window_line(session_id, agent_of(native.line)):
        return None
    written = native.act is ChangeKind.WRITE
    event = None if text is None else decode_whole_event(text)
    name = VersionId(native.line, native.key, native.incarnation, native.version, not written)
    if item.item_id != str(name) or written is (event is None) or (event and event.event_id != native.key):
        return None
    envelope, content = (None, None) if event is None else encode_event(_in_session(event, session_id))
    label = imported_label(native.trust, native.author, session_id)
    tokens = 0 if event is None else event.tokens
    meta = ChangeMeta(tokens=tokens, size=len((envelope or "").encode()), trust=label) if written else ChangeMeta()
    value_hash = None if envelope is None else blob_hash(envelope)
    change = Change(native.key, native.incarnation, native.version, native.act, value_hash, meta)
    commit_fields = (native.reason, native.step, native.principal_id)
    version = Version(change, native.seq, native.author, native.committed_at, envelope, *commit_fields)
    return WindowVersion(native.line, version, content, 0 if event is None else event.number)


def lacks_value(version: Version) -> bool:
    """Tell whether the value is missing, so that the version cannot be restored; a deletion needs none."""
    return version.change.act is ChangeKind.WRITE and version.value is None


def decode_message(item: ContextItem, text: str | None, session_id: str) -> Message | None:
    """Decode a message; None if the item is something else or has no text."""
    native = _native(item, _NativeMessage)
    if native is None or text is None or item.item_id != str(MessageItemId(session_id, native.message_id)):
        return None
    if native.audience != audience_for(native.visibility, native.sender, native.sender_type, native.recipient_id):
        return None
    metadata = _encode(native.metadata).decode() if native.metadata else NO_METADATA
    label = imported_label(native.trust, native.author or "", session_id)
    fields = shared_fields(native, Message) | {"metadata": metadata, "trust": label}
    return Message(**fields, parent_id=native.parent_message_id, content=text)


def decode_event(record: ContextEvent, readable_by: tuple[str, ...]) -> StoredEvent | None:
    """Decode an event of the session's log; None if the record is something else."""
    fields, correlation = _converted(record.data, _EventFields), _correlation(record)
    number = record.event_id.removeprefix(f"{record.source}#")
    if fields is None or correlation is None or number == record.event_id:
        return None
    event = Event(
        seq=0,
        type=fields.type,
        session_id=record.session_id or None,
        subject=record.subject or "",
        actor=fields.actor,
        agent_id=principal_of(fields.actor),
        at=record.time,
        data={name: value for name, value in record.data.items() if name not in _COMMON_FIELDS},
    )
    if event_class_of(event) != record.event_type or not _is_of_session(event, fields):
        return None
    recorded = StoredEvent(event, ANYONE, readable_by, correlation, Origin(record.source, number))
    # The export adds the ids of the records that an event is about; they are derived again on export.
    ids = record_ids_of_event(recorded)
    data = {name: value for name, value in event.data.items() if name not in ids or ids[name] != value}
    return replace(recorded, event=structs.replace(event, data=data))


def _is_of_session(event: Event, fields: _EventFields) -> bool:
    """Tell whether an event can be about a session, its board or its transcript."""
    name, line = event.type, line_of(event.session_id or "")
    if name in EVENT_CLASSES or name in _OF_SESSION or name.startswith(_RECORD):
        return True
    if name.startswith(_MESSAGE):
        return MessageItemId.parse(f"message:{event.session_id}/{event.subject}") is not None
    if name.startswith(_OF_KEYS):
        has_branch = (fields.branch is not None) is name.startswith("branch.")
        return has_branch and (name.endswith(_OF_LABELS) or _is_version(event.data))
    return name.startswith(_HISTORY) and (fields.context_id is None or trunk_of(fields.context_id) == line)


def _is_version(data: dict[str, Any]) -> bool:
    return "incarnation" in data and data.get("version", 0) > 0


def decode_redaction(item: ContextItem, session_id: str, now: int) -> Redaction | None:
    """Return the redaction of an exported item, if it has one."""
    state = item.redaction_state or "none"
    if state == "none":
        return None
    by = item.redacted_by if isinstance(item.redacted_by, str) else "unknown"
    replacement = item.content if state == "summarized" and isinstance(item.content, str) else None
    method = item.redaction_method or ""
    return Redaction(
        item.item_id,
        session_id,
        state,
        method,
        "imported",
        by,
        now,
        replacement=replacement,
        imported_policies=item.policy_refs,
    )


def _native(item: ContextItem, kind: type[T]) -> T | None:
    return _converted(item.metadata.get(ENGINE), kind)


def _converted(value: Any, kind: type[T]) -> T | None:  # noqa: ANN401 - JSON of any shape
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def _correlation(record: ContextEvent) -> Correlation | None:
    """Return the correlation ids of an event; None if they are not valid."""
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
        return msgspec.convert(given, Correlation) if given else NO_CORRELATION
    except msgspec.ValidationError:
        return None
