"""Items of which something must not be shown: as they look then, wherever they are shown.

What is hidden must not be found out by other ways. A digest of something short can be tried, a size narrows it down,
and words that came with it may repeat it; so an item shows the digest and the size of what it shows, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET, structs

from weft.capabilities.record_log import record_text
from weft.capabilities.record_log.engine_items import EngineItem, digest_of, with_content
from weft.capabilities.records.model import ContextItem
from weft.capabilities.records.record_ids import is_engine_item
from weft.capabilities.records.refs import Link
from weft.kernel.tokens import approximate_tokens

if TYPE_CHECKING:
    from weft.capabilities.records.refs import Maybe, Ref
    from weft.capabilities.records.store import Redaction
    from weft.capabilities.records.vocabulary import RedactionState
    from weft.capabilities.redaction.masker import Masker

# What the engine says of its own items that is no more than where they stand and whose they are.
_OF_VERSION = ("line", "key", "life", "version", "act", "seq", "author", "principal_id", "committed_at", "step")
_OF_READERS = ("expires_at", "readable_by", "writable_by", "audience", "visibility", "recipient_id")
_OF_MESSAGE = ("message_id", "sender", "sender_type", "message_type", "category", "parent_message_id", "sent_at")
_PLAIN_FACTS = frozenset((*_OF_VERSION, *_OF_READERS, *_OF_MESSAGE))
_LONGEST_REASON = 200


def redacted_item(item: EngineItem, redaction: Redaction, mask: Masker) -> EngineItem:
    """Return an item as it is shown since it was redacted: the same in every record, export and answer."""
    if redaction.state == "none":
        return item
    match redaction.state:
        case "masked" if redaction.came_with is not None and _is_at_hand(item):
            shown = item
        case "masked":
            shown = masked_item(item, mask) if _is_at_hand(item) else EngineItem(without_content(item.record), None)
        case "summarized" if redaction.replacement is not None:
            shown = _replaced(item, redaction.replacement)
        case "encrypted_ref":
            shown = EngineItem(_by_digest(item), None)
        case _:
            shown = EngineItem(without_content(item.record), None)
    state = cast("RedactionState", redaction.state)
    record = with_redaction_state(shown.record, state, redaction.method, redaction.redacted_by)
    return shown._replace(record=structs.replace(record, policy_refs=redaction.came_with or record.policy_refs))


def with_redaction_state(record: ContextItem, state: RedactionState, method: str, by: Ref) -> ContextItem:
    """Return an item that says what was done to it, how and by whom."""
    return structs.replace(record, redaction_state=state, redaction_method=method, redacted_by=by)


def masked_item(item: EngineItem, mask: Masker) -> EngineItem:
    """Return an item without what a mask takes away, wherever it says it."""
    record, text = item
    shown = None if text is None else mask.text(text)
    masked = _masked_facts(record, mask) if is_engine_item(record.item_id) else _masked_words(record, mask)
    return EngineItem(masked if shown is None or shown == text else _saying(masked, shown), shown)


def without_content(record: ContextItem) -> ContextItem:
    """Return no more of an item than that it is there, of which kind, where it stands and whose it is."""
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
        metadata=_plain_facts(record) if of_engine else {},
    )


def _is_at_hand(item: EngineItem) -> bool:
    """Tell whether what an item says is here, to be looked through."""
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
    """Return an item that names what it said by its digest, for those who hold it and can compare."""
    record, text = item
    digest = digest_of(text) if text is not None else _digest(record)
    if digest is None:
        return without_content(record)
    return structs.replace(
        without_content(record), content_mode="ref", content_ref=Link(kind="content", id=record.item_id, digest=digest)
    )


def _digest(record: ContextItem) -> str | None:
    ref = record.content_ref
    return ref.digest or None if isinstance(ref, Link) else None


def _saying(record: ContextItem, text: str) -> ContextItem:
    """Return an item that says something else: the engine's own as if it had always said that."""
    native = record.metadata.get("weft")
    if is_engine_item(record.item_id) and isinstance(native, dict) and "tokens" in native:
        record = structs.replace(record, metadata={"weft": {**native, "tokens": max(1, approximate_tokens(text))}})
    sized = structs.replace(record, byte_size=len(text.encode()), token_estimate=approximate_tokens(text))
    if is_engine_item(record.item_id) and record.content_mode != "summary":
        return with_content(
            structs.replace(sized, content_mode="opaque", content=UNSET, content_ref=UNSET), text
        ).record
    if isinstance(record.content, str):
        return structs.replace(sized, content=text, content_ref=_undigested(record.content_ref))
    kind = record.content_ref.kind if isinstance(record.content_ref, Link) else "content"
    return structs.replace(sized, content_ref=Link(kind=kind, id=record.item_id, digest=digest_of(text)))


def _undigested(ref: Maybe[Ref]) -> Maybe[Ref]:
    return structs.replace(ref, digest=UNSET) if isinstance(ref, Link) else ref


def _masked_facts(record: ContextItem, mask: Masker) -> ContextItem:
    """Mask what came with a version or a message: why it was written, what its sender added, how it was redacted."""
    native = record.metadata.get("weft", {})
    words = {name: mask.value(native[name]) for name in ("reason", "metadata") if native.get(name)}
    words |= {name: mask.name(native[name]) for name in ("step", "message_type", "category") if native.get(name)}
    if isinstance(record.redaction_method, str):
        record = structs.replace(record, redaction_method=mask.text(record.redaction_method)[:_LONGEST_REASON])
    if all(words[name] == native[name] for name in words):
        return record
    if "reason" in words:
        words["reason"] = words["reason"][:_LONGEST_REASON]
    return structs.replace(record, metadata={"weft": {**native, **words}})


def _masked_words(record: ContextItem, mask: Masker) -> ContextItem:
    """Mask all that somebody may have written into an item."""
    content = mask.value(record.content)
    masked = record_text.mask_record(structs.replace(record, content=UNSET, content_mode="opaque"), mask)
    said = structs.replace(masked, content=content, content_mode=record.content_mode)
    if content == record.content:
        return said
    return structs.replace(said, content_ref=_undigested(said.content_ref), byte_size=UNSET, token_estimate=UNSET)


def _plain_facts(record: ContextItem) -> dict[str, Any]:
    native = record.metadata.get("weft", {})
    facts = {name: value for name, value in native.items() if name in _PLAIN_FACTS}
    # A message says that it has none, rather than nothing.
    return {"weft": {**facts, "metadata": {}} if "message_id" in facts else facts}
