"""How items, assemblies, summaries and injections look in every record, export and answer after a redaction.

Quotes of redacted items are replaced by references. Redacted content must not leak by other ways: the digest of a short
text can be guessed, its size narrows the guess, and metadata may repeat it. So a redacted item has the digest and the
size of the content that it still shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import UNSET, structs

from weftline.exchange.record_log import record_text
from weftline.exchange.record_log.engine_items import EngineItem, with_content
from weftline.kernel.ports import approximate_tokens
from weftline.records.engine_metadata import engine_metadata
from weftline.records.model import (
    Block,
    ContextAssembly,
    ContextCompaction,
    ContextInjection,
    ContextItem,
    ContextSummary,
)
from weftline.records.open_records import without_given
from weftline.records.record_ids import is_engine_item
from weftline.records.refs import Link, content_digest
from weftline.records.schemas import ITEM_TYPE
from weftline.safety.redaction import Masker
from weftline.sessions.recorder import referenced_item_ids
from weftline.windows.line_events import redacted_items, redactions_of_items

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from msgspec import UnsetType

    from weftline.records.refs import Maybe, Ref, Refs
    from weftline.records.schemas import Redaction, StoredRecord
    from weftline.records.sql import RecordStore
    from weftline.records.vocabulary import RedactionState

Quoting = ContextAssembly | ContextSummary
Q = TypeVar("Q", ContextAssembly, ContextSummary)
Key = tuple[str, str]

# Engine metadata without free text: position, author and ACL.
_OF_VERSION = ("line", "key", "incarnation", "version", "act", "seq", "author", "principal_id", "committed_at", "step")
_OF_READERS = ("expires_at", "readable_by", "writable_by", "audience", "visibility", "recipient_id")
_OF_MESSAGE = ("message_id", "sender", "sender_type", "message_type", "category", "parent_message_id", "sent_at")
_PLAIN_FIELDS = frozenset((*_OF_VERSION, *_OF_READERS, *_OF_MESSAGE))
_MAX_REASON = 200
_encode = msgspec.json.Encoder().encode
_injection = msgspec.json.Decoder(ContextInjection).decode
_compaction = msgspec.json.Decoder(ContextCompaction).decode
# Record types that quote items.
_decoders: dict[str, Callable[[bytes], Quoting]] = {
    ContextAssembly.type: msgspec.json.Decoder(ContextAssembly).decode,
    ContextSummary.type: msgspec.json.Decoder(ContextSummary).decode,
}
QUOTING = tuple(_decoders)


async def redact_quotes(rows: Sequence[StoredRecord], records: RecordStore) -> list[StoredRecord]:
    """Apply redactions to stored records: their own, and those of the items they quote."""
    # The notes of a compaction say what is lost, so they may quote it.
    compacted = {each.record_id: _compaction(each.body) for each in rows if each.type == ContextCompaction.type}
    injected = {_injection(each.body).assembly_id for each in rows if each.type == ContextInjection.type}
    quoting = [each for each in rows if each.type in _decoders]
    wanted = {(ContextAssembly.type, name) for name in injected} - {(each.type, each.record_id) for each in quoting}
    if wanted:
        quoting += await records.find_several(sorted(wanted))
    named = {(each.type, each.record_id): referenced_item_ids(_decoders[each.type](each.body)) for each in quoting}
    named |= {(ContextCompaction.type, name): referenced_item_ids(each) for name, each in compacted.items()}
    items = {item_id for of_record in named.values() for item_id in of_record}
    redacted = frozenset(redacted_items(items, await redactions_of_items(items, records)))
    touched = {name for name, of_record in named.items() if not redacted.isdisjoint(of_record)}
    redactions = _QuoteRedactions(redacted, touched, await redactions_of(named, records))
    return [redactions.apply(each) for each in rows] if touched or redactions.of_records else list(rows)


class _QuoteRedactions(NamedTuple):
    """Redacted items, the records that quote them, and redactions of the quoting records themselves."""

    items: Collection[str]
    touched: Collection[Key]
    of_records: Mapping[Key, Redaction]

    def apply(self, row: StoredRecord) -> StoredRecord:
        key = (row.type, row.record_id)
        if row.type == ContextCompaction.type:
            touched = key in self.touched
            shown = record_text.strip_text(without_given(_compaction(row.body))) if touched else None
            return row if shown is None else structs.replace(row, body=_encode(shown))
        if key in self.touched or key in self.of_records:
            return structs.replace(row, body=_encode(self._redacted(_decoders[row.type](row.body), key)))
        if row.type == ContextInjection.type:
            injection = _injection(row.body)
            assembly = (ContextAssembly.type, injection.assembly_id)
            if assembly in self.touched or assembly in self.of_records:
                return structs.replace(row, body=_encode(without_hash(injection)))
        return row

    def _redacted(self, record: Quoting, key: Key) -> Quoting:
        record = without_given(record)
        shown = without_quotes(record, self.items) if key in self.touched else record
        redaction = self.of_records.get(key)
        return shown if redaction is None else redacted_record(shown, redaction)


def redacted_record(record: Quoting, redaction: Redaction) -> Quoting:
    """Apply a redaction to a summary or an assembly itself."""
    shown = _reduced(record, redaction)
    state = cast("RedactionState", redaction.state)
    fields = {"redaction_state": state, "redaction_method": redaction.method, "redacted_by": redaction.redacted_by}
    return structs.replace(shown, **fields)


def _reduced(record: Quoting, redaction: Redaction) -> Quoting:
    if redaction.state == "masked":
        return record_text.mask_record(record, Masker())
    if isinstance(record, ContextSummary):
        return _reduced_summary(record, redaction)
    return _reduced_assembly(record, redaction)


def _reduced_summary(summary: ContextSummary, redaction: Redaction) -> ContextSummary:
    stripped = without_text(summary)
    if redaction.replacement is not None:
        return structs.replace(stripped, content=redaction.replacement, content_ref=UNSET)
    return (
        structs.replace(stripped, content_ref=_salted(_by_digest(summary).content_ref, redaction))
        if redaction.state == "encrypted_ref"
        else stripped
    )


def _reduced_assembly(assembly: ContextAssembly, redaction: Redaction) -> ContextAssembly:
    stripped = without_text(assembly)
    if redaction.replacement is not None:
        return structs.replace(stripped, ordered_blocks=(Block(kind="summary", content=redaction.replacement),))
    if redaction.state != "encrypted_ref":
        return stripped
    blocks = zip(stripped.ordered_blocks, _by_digest(assembly).ordered_blocks, strict=True)
    named = tuple(
        structs.replace(block, content_ref=_salted(by_digest.content_ref, redaction)) for block, by_digest in blocks
    )
    return structs.replace(stripped, ordered_blocks=named)


def without_text(record: Q) -> Q:
    """Return an assembly or a summary without its text; ids, counts and times stay."""
    return record_text.strip_text(record_text.replace_quotes(record, lambda _: True, digests=False))


def _salted(ref: Ref | UnsetType, redaction: Redaction) -> Ref | UnsetType:
    if not isinstance(ref, Link) or not ref.digest:
        return ref
    return structs.replace(ref, digest=redaction.reference(ref.digest) or UNSET)


def _by_digest(record: Q) -> Q:
    return record_text.replace_quotes(record, lambda _: True, digests=True)


async def redactions_of(named: Collection[Key], records: RecordStore) -> dict[Key, Redaction]:
    """Return the redactions of records given by type and id."""
    found: dict[Key, Redaction] = {}
    for kind in (ITEM_TYPE, *QUOTING):
        ids = sorted(record_id for record_type, record_id in named if record_type == kind)
        redacted = await records.redactions(ids, kind) if ids else {}
        found |= {(kind, record_id): redaction for record_id, redaction in redacted.items()}
    return found


def without_quotes(record: Quoting, redacted_ids: Collection[str]) -> Quoting:
    """Replace the quotes of redacted items in an assembly or a summary by references."""
    if isinstance(record, ContextSummary):
        return without_text(record)
    of_all = not _ids(record.source_item_refs).isdisjoint(redacted_ids)

    def is_quote(part: Block | ContextSummary) -> bool:
        if not isinstance(part, Block):
            return False
        # A block without item refs may quote any source item of the assembly.
        return not _ids(part.item_refs).isdisjoint(redacted_ids) or (of_all and not part.item_refs)

    return record_text.replace_quotes(record, is_quote, digests=False)


def without_hash(injection: ContextInjection) -> ContextInjection:
    """Remove the hash of an injection: with the rest of the text known, redacted parts could be guessed from it."""
    ref = injection.final_ref
    named = structs.replace(ref, digest=UNSET) if isinstance(ref, Link) else ref
    return structs.replace(injection, hash=UNSET, final_ref=named)


def _ids(refs: Refs) -> set[object]:
    return {ref.id if isinstance(ref, Link) else ref for ref in refs}


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
            shown = EngineItem(_item_by_digest(item, redaction), None)
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


def _item_by_digest(item: EngineItem, redaction: Redaction) -> ContextItem:
    """Replace the content by its salted digest, for those who have the content and the salt and want to compare."""
    record, text = item
    plain = content_digest(text) if text is not None else _ref_digest(record)
    digest = redaction.replacement or (None if plain is None else redaction.reference(plain))
    if digest is None:
        return without_content(record)
    return structs.replace(
        without_content(record), content_mode="ref", content_ref=Link(kind="content", id=record.item_id, digest=digest)
    )


def _ref_digest(record: ContextItem) -> str | None:
    ref = record.content_ref
    return ref.digest or None if isinstance(ref, Link) else None


def _set_content(record: ContextItem, text: str) -> ContextItem:
    """Set new content; an engine item then looks as if it had always had it."""
    native = engine_metadata(record.metadata)
    if is_engine_item(record.item_id) and "tokens" in native:
        record = structs.replace(record, metadata={"weftline": {**native, "tokens": max(1, approximate_tokens(text))}})
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
    native = engine_metadata(record.metadata)
    words = {name: mask.value(native[name]) for name in ("reason", "metadata") if native.get(name)}
    words |= {name: mask.name(native[name]) for name in ("step", "message_type", "category") if native.get(name)}
    if isinstance(record.redaction_method, str):
        record = structs.replace(record, redaction_method=mask.text(record.redaction_method)[:_MAX_REASON])
    if all(words[name] == native[name] for name in words):
        return record
    if "reason" in words:
        words["reason"] = words["reason"][:_MAX_REASON]
    return structs.replace(record, metadata={"weftline": {**native, **words}})


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
    native = engine_metadata(record.metadata)
    fields = {name: value for name, value in native.items() if name in _PLAIN_FIELDS}
    # A message always has a metadata object.
    return {"weftline": {**fields, "metadata": {}} if "message_id" in fields else fields}
