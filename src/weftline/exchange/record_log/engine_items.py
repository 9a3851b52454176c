"""Records derived from engine data: key versions and messages as context items, sessions as surfaces.

They are built on demand and never stored. An item is one immutable version, identified by its id and digest;
``metadata.weftline`` carries what an import needs to restore the same version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, structs

from weftline.history.item_ids import MessageItemId, VersionId
from weftline.history.line_kinds import AGENT, line_kinds, names_in, prefix_of
from weftline.history.model import ChangeKind, Version
from weftline.kernel.clock import from_micros
from weftline.kernel.identity import ANYONE, EVERYONE, PRINCIPAL
from weftline.kernel.json_input import raw_json
from weftline.kernel.ports import approximate_tokens
from weftline.records.engine_metadata import language_of
from weftline.records.model import ContextItem, ContextSourceRef, ContextSurface, Freshness, Producer
from weftline.records.record_ids import EngineSourceId
from weftline.records.refs import Link, content_digest
from weftline.records.vocabulary import SCHEMA_VERSION
from weftline.safety.trust.model import Trust

if TYPE_CHECKING:
    from weftline.safety.trust.model import TrustLabel
    from weftline.sessions.messages.model import Message
    from weftline.sessions.model import Session

Sensitivity = Literal["internal", "restricted", "private"]
# Larger content is referenced by its digest; a bundle carries it in a separate entry.
INLINE_BYTES = 2_048
_TRANSCRIPT_SOURCE = "weftline_transcript"


# From 0 to 1, in the order in which windows give up their parts; boards and memories hold context.
_PRIORITIES = {"SYSTEM": 1.0, "CONTEXT": 0.75, "DIALOG": 0.5, "ERROR": 0.5, "SYSTEM_OUTPUT": 0.25, "INTERNAL": 0.25}
_NEUTRAL = _PRIORITIES["CONTEXT"]
_WINDOW = "window"


class _EventPriority(msgspec.Struct, frozen=True):
    """What says how important an event of a window is."""

    category: str = ""
    importance: float | None = None
    pinned: bool = False


_event_priority = msgspec.json.Decoder(_EventPriority)


class EngineItem(NamedTuple):
    """A context item with its content, if that is available."""

    record: ContextItem
    text: str | None


def version_item(line_id: str, version: Version) -> EngineItem:
    """Return a key version as an item. Deleted, pruned and object-stored versions have no content."""
    change, meta = version.change, version.change.meta
    kind = line_kinds()[prefix_of(line_id)]
    removed = change.act is not ChangeKind.WRITE
    readers = ANYONE if meta.readable_by is None else meta.readable_by
    name = VersionId(line_id, change.key, change.incarnation, change.version, removed)
    sensitivity = "private" if kind.private else sensitivity_of(readers)
    item = ContextItem(
        schema_version=SCHEMA_VERSION,
        item_id=str(name),
        context_kind=kind.item_kind or kind.prefix,
        content_mode="opaque",
        visibility=readers,
        title=change.key,
        mime_type=meta.media_type or ("application/json" if kind.values == "json" else "text/plain"),
        source_refs=(str(source_of(line_id)),),
        token_estimate=meta.tokens or UNSET,
        byte_size=meta.size or UNSET,
        freshness=_freshness(version.committed_at, meta.expires_at),
        priority=_priority(kind.prefix, version.value),
        trust_level=trust_of(version.author, meta.trust),
        sensitivity=sensitivity,
        redaction_state="none",
        created_at=from_micros(version.committed_at),
        metadata=_version_metadata(line_id, version),
    )
    if removed or version.value is None or meta.outside:
        return EngineItem(_with_digest(item, change.blob_hash), None)
    return with_content(item, version.value)


def message_item(session_id: str, message: Message) -> EngineItem:
    item = ContextItem(
        schema_version=SCHEMA_VERSION,
        item_id=str(MessageItemId(session_id, message.message_id)),
        context_kind="message",
        content_mode="opaque",
        visibility=message.readers,
        title=f"message {message.message_id} of {message.sender}",
        mime_type="text/plain",
        source_refs=(str(EngineSourceId("session", session_id)),),
        token_estimate=approximate_tokens(message.content),
        freshness=_freshness(message.sent_at),
        priority=_PRIORITIES.get(message.category.upper(), _NEUTRAL),
        trust_level=trust_of(message.author or "", message.trust),
        sensitivity=sensitivity_of(message.readers),
        redaction_state="none",
        created_at=from_micros(message.sent_at),
        metadata=_native(
            message_id=message.message_id,
            audience=message.audience,
            visibility=message.visibility,
            author=message.author,
            sender=message.sender,
            sender_type=message.sender_type,
            recipient_id=message.recipient_id,
            message_type=message.message_type,
            category=message.category,
            parent_message_id=message.parent_id,
            sent_at=message.sent_at,
            metadata=raw_json(message.metadata),
            trust=_label(message.trust),
        ),
    )
    return with_content(item, message.content)


def _freshness(written_at: int, expires_at: int | None = None) -> Freshness:
    """Return the time that a content is of, and until when it holds."""
    return Freshness(as_of=from_micros(written_at), expires_at=UNSET if expires_at is None else from_micros(expires_at))


def _priority(prefix: str, value: str | None) -> float:
    """Return the priority of a version: of a window event as its sender said, else by its category."""
    if prefix != _WINDOW or value is None:
        return _NEUTRAL if prefix != _WINDOW else _PRIORITIES["DIALOG"]
    event = _event_priority.decode(value)
    if event.pinned:
        return 1.0
    return _PRIORITIES.get(event.category, _NEUTRAL) if event.importance is None else event.importance


def session_surface(session: Session) -> ContextSurface:
    """Return a session as a surface: all the context its participants can select from."""
    return ContextSurface(
        schema_version=SCHEMA_VERSION,
        surface_id=f"session:{session.session_id}",
        scope="session",
        surface_kind="session",
        producer=Producer(id="weftline"),
        available_source_refs=tuple(map(str, sources_in(session.session_id))),
        visibility=session.audience,
        created_at=from_micros(session.created_at),
        metadata=_native(purpose=session.purpose, archived_at=session.archived_at),
    )


def sources_in(session_id: str) -> tuple[EngineSourceId, ...]:
    """Return the sources of a session's items: its board and its transcript."""
    return EngineSourceId("board", session_id), EngineSourceId("session", session_id)


def source_of(line_id: str) -> EngineSourceId:
    """Return the source of a line's versions: the agent that its id names, otherwise the session, team or user."""
    kind = line_kinds()[prefix_of(line_id)]
    agent = kind.named(AGENT, line_id)
    if agent is not None:
        return EngineSourceId(AGENT, agent, kind.prefix)
    return EngineSourceId(kind.prefix, names_in(line_id)[0])


def source_record(name: EngineSourceId) -> ContextSourceRef:
    uri, kind = str(name), line_kinds().get(name.part or name.place)
    source_kind = kind.source_kind if kind and kind.source_kind else _TRANSCRIPT_SOURCE
    return ContextSourceRef(schema_version=SCHEMA_VERSION, source_id=uri, uri=uri, source_kind=source_kind)


def by_reference(item: ContextItem, text: str) -> ContextItem:
    """Replace an item's inline content by a reference with its digest."""
    return structs.replace(
        item,
        content_mode="ref",
        content=UNSET,
        content_ref=Link(kind="content", id=item.item_id, digest=content_digest(text)),
    )


def trust_of(participant: str, label: TrustLabel | None = None) -> str:
    """Return the trust level of content: suspicious or untrusted if labelled so, else human, system or agent."""
    if label is not None and label.trust is not Trust.TRUSTED:
        return label.trust.value
    return {"human": "human", "system": "system"}.get(participant.partition(":")[0], "agent")


def with_content(item: ContextItem, text: str) -> EngineItem:
    """Add content to an item: inline, or by reference if it is long or restricted."""
    size = len(text.encode())
    sized = structs.replace(item, byte_size=size, language=language_of(text))
    if size > INLINE_BYTES or item.sensitivity != "internal":
        return EngineItem(by_reference(sized, text), text)
    return EngineItem(structs.replace(sized, content_mode="inline", content=text), text)


def _with_digest(item: ContextItem, blob_hash: bytes | None) -> ContextItem:
    """Add a reference with the digest of content that is not available, if the digest is known."""
    if blob_hash is None:
        return item
    return structs.replace(item, content_ref=Link(kind="content", id=item.item_id, digest=f"sha256:{blob_hash.hex()}"))


def _version_metadata(line_id: str, version: Version) -> dict[str, Any]:
    """Return what an import needs to restore the version."""
    change, meta = version.change, version.change.meta
    return _native(
        line=line_id,
        key=change.key,
        incarnation=change.incarnation,
        version=change.version,
        act=str(change.act),
        seq=version.seq,
        author=version.author,
        principal_id=version.principal_id,
        committed_at=version.committed_at,
        reason=version.reason,
        step=version.step,
        tokens=meta.tokens,
        expires_at=meta.expires_at,
        readable_by=meta.readable_by,
        writable_by=meta.writable_by,
        trust=_label(meta.trust),
    )


def _label(label: TrustLabel | None) -> dict[str, Any] | None:
    return None if label is None else msgspec.to_builtins(label)


def _native(**fields: object) -> dict[str, Any]:
    """Return engine metadata without unset fields."""
    return {"weftline": {name: value for name, value in fields.items() if value is not None}}


def sensitivity_of(readers: tuple[str, ...]) -> Sensitivity:
    if EVERYONE in readers:
        return "internal"
    return "private" if all(reader.startswith(PRINCIPAL) for reader in readers) else "restricted"
