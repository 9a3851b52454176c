"""Redacted items: how an item looks in every record, export and answer after a redaction.

Redacted content must not leak by other ways: the digest of a short text can be guessed, its size narrows the guess, and
metadata may repeat it. So a redacted item has the digest and the size of the content that it still shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET, structs

from weft.capabilities.record_log import record_text
from weft.capabilities.record_log.engine_items import EngineItem, with_content
from weft.capabilities.records.model import ContextItem
from weft.capabilities.records.record_ids import is_engine_item
from weft.capabilities.records.refs import Link, content_digest
from weft.kernel.tokens import approximate_tokens

if TYPE_CHECKING:
    from weft.capabilities.records.refs import Maybe, Ref
    from weft.capabilities.records.store import Redaction
    from weft.capabilities.records.vocabulary import RedactionState
    from weft.capabilities.redaction.masker import Masker

# Engine metadata without free text: position, author and ACL.
_OF_VERSION = ("line", "key", "incarnation", "version", "act", "seq", "author", "principal_id", "committed_at", "step")
_OF_READERS = ("expires_at", "readable_by", "writable_by", "audience", "visibility", "recipient_id")
_OF_MESSAGE = ("message_id", "sender", "sender_type", "message_type", "category", "parent_message_id", "sent_at")
_PLAIN_FIELDS = frozenset((*_OF_VERSION, *_OF_READERS, *_OF_MESSAGE))
_MAX_REASON = 200


def redacted_item(item: EngineItem, redaction: Redaction, mask: Masker) -> EngineItem:
    """Apply a redaction to an item."""
    if redaction.state == "none":
        return item
    match redaction.state:
        case "masked" if redaction.imported_policies is not None and _has_content(item):
            shown = item
        case "masked":
            shown = masked_item(item, mask) if _has_content(item) else EngineItem(without_content(item.record), None)
        case "summarized" if redaction.replacement is not None:
            shown = _replaced(item, redaction.replacement)
        case "encrypted_ref":
            shown = EngineItem(_by_digest(item), None)
        case _:
            shown = EngineItem(without_content(item.record), None)
    state = cast("RedactionState", redaction.state)
    record = with_redaction_state(shown.record, state, redaction.method, redaction.redacted_by)
    return shown._replace(record=structs.replace(record, policy_refs=redaction.imported_policies or record.policy_refs))


def with_redaction_state(record: ContextItem, state: RedactionState, method: str, by: Ref) -> ContextItem:
    return structs.replace(record, redaction_state=state, redaction_method=method, redacted_by=by)


def masked_item(item: EngineItem, mask: Masker) -> EngineItem:
    """Mask the content, metadata and text fields of an item."""
    record, text = item
    shown = None if text is None else mask.text(text)
    masked = _masked_metadata(record, mask) if is_engine_item(record.item_id) else _masked_text_fields(record, mask)
    return EngineItem(masked if shown is None or shown == text else _set_content(masked, shown), shown)


def without_content(record: ContextItem) -> ContextItem:
    """Reduce an item to its id, kind, ACL and, for engine items, position and author."""
    of_engine = is_engine_item(record.item_id)
    return ContextItem(
        schema_version=record.schema_version,
        item_id=record.item_id,
        context_kind=record.context_kind,
        content_mode="opaque",
        visibility=record.visibility,
        title=record.title if of_engine else UNSET,
        mime_type=record.mime_type,
        source_refs=tuple(ref for ref in record.source_refs if of_engine and isinstance(ref, str)),
        freshness=record.freshness if of_engine else UNSET,
        trust_level=record.trust_level,
        sensitivity=record.sensitivity,
        created_at=record.created_at,
        policy_refs=record.policy_refs if of_engine else (),
        metadata=_plain_metadata(record) if of_engine else {},
    )


def _has_content(item: EngineItem) -> bool:
    return item.text is not None or item.record.content is not UNSET


def _replaced(item: EngineItem, replacement: str) -> EngineItem:
    shown = structs.replace(
        without_content(item.record),
        content_mode="summary",
        content=replacement,
        mime_type="text/plain",
        byte_size=len(replacement.encode()),
        token_estimate=approximate_tokens(replacement),
    )
    return EngineItem(shown, replacement)


def _by_digest(item: EngineItem) -> ContextItem:
    """Replace the content by its digest, for readers who have the content and want to compare."""
    record, text = item
    digest = content_digest(text) if text is not None else _digest(record)
    if digest is None:
        return without_content(record)
    return structs.replace(
        without_content(record), content_mode="ref", content_ref=Link(kind="content", id=record.item_id, digest=digest)
    )


def _digest(record: ContextItem) -> str | None:
    ref = record.content_ref
    return ref.digest or None if isinstance(ref, Link) else None


def _set_content(record: ContextItem, text: str) -> ContextItem:
    """Set new content; an engine item then looks as if it had always had it."""
    native = record.metadata.get("weft")
    if is_engine_item(record.item_id) and isinstance(native, dict) and "tokens" in native:
        record = structs.replace(record, metadata={"weft": {**native, "tokens": max(1, approximate_tokens(text))}})
    sized = structs.replace(record, byte_size=len(text.encode()), token_estimate=approximate_tokens(text))
    if is_engine_item(record.item_id) and record.content_mode != "summary":
        return with_content(
            structs.replace(sized, content_mode="opaque", content=UNSET, content_ref=UNSET), text
        ).record
    if isinstance(record.content, str):
        return structs.replace(sized, content=text, content_ref=_without_digest(record.content_ref))
    kind = record.content_ref.kind if isinstance(record.content_ref, Link) else "content"
    return structs.replace(sized, content_ref=Link(kind=kind, id=record.item_id, digest=content_digest(text)))


def _without_digest(ref: Maybe[Ref]) -> Maybe[Ref]:
    return structs.replace(ref, digest=UNSET) if isinstance(ref, Link) else ref


def _masked_metadata(record: ContextItem, mask: Masker) -> ContextItem:
    """Mask the metadata of a key version or message: reason, sender's metadata, redaction method."""
    native = record.metadata.get("weft", {})
    words = {name: mask.value(native[name]) for name in ("reason", "metadata") if native.get(name)}
    words |= {name: mask.name(native[name]) for name in ("step", "message_type", "category") if native.get(name)}
    if isinstance(record.redaction_method, str):
        record = structs.replace(record, redaction_method=mask.text(record.redaction_method)[:_MAX_REASON])
    if all(words[name] == native[name] for name in words):
        return record
    if "reason" in words:
        words["reason"] = words["reason"][:_MAX_REASON]
    return structs.replace(record, metadata={"weft": {**native, **words}})


def _masked_text_fields(record: ContextItem, mask: Masker) -> ContextItem:
    """Mask all free text of a recorded item."""
    content = mask.value(record.content)
    masked = record_text.mask_record(structs.replace(record, content=UNSET, content_mode="opaque"), mask)
    result = structs.replace(masked, content=content, content_mode=record.content_mode)
    if content == record.content:
        return result
    return structs.replace(
        result, content_ref=_without_digest(result.content_ref), byte_size=UNSET, token_estimate=UNSET
    )


def _plain_metadata(record: ContextItem) -> dict[str, Any]:
    native = record.metadata.get("weft", {})
    fields = {name: value for name, value in native.items() if name in _PLAIN_FIELDS}
    # A message always has a metadata object.
    return {"weft": {**fields, "metadata": {}} if "message_id" in fields else fields}
