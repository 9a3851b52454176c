"""Redaction of records that quote items (assemblies, summaries) and of the injections of such assemblies.

Quotes of redacted items are replaced by references.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import msgspec
from msgspec import UNSET, structs

from weft.capabilities.record_log import record_text
from weft.capabilities.records.model import Block, ContextAssembly, ContextInjection, ContextSummary
from weft.capabilities.records.recorder import referenced_item_ids
from weft.capabilities.records.refs import Link
from weft.capabilities.records.store import ITEM_TYPE
from weft.capabilities.redaction.masker import Masker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from weft.capabilities.records.refs import Refs
    from weft.capabilities.records.store import RecordStore, Redaction, StoredRecord
    from weft.capabilities.records.vocabulary import RedactionState

Quoting = ContextAssembly | ContextSummary
Q = TypeVar("Q", ContextAssembly, ContextSummary)
Key = tuple[str, str]

_encode = msgspec.json.Encoder().encode
_injection = msgspec.json.Decoder(ContextInjection).decode
# Record types that quote items.
_decoders: dict[str, Callable[[bytes], Quoting]] = {
    ContextAssembly.type: msgspec.json.Decoder(ContextAssembly).decode,
    ContextSummary.type: msgspec.json.Decoder(ContextSummary).decode,
}
QUOTING = tuple(_decoders)


async def redact_quotes(kept: Sequence[StoredRecord], records: RecordStore) -> list[StoredRecord]:
    """Apply redactions to stored records: their own, and those of the items they quote."""
    injected = {_injection(each.body).assembly_id for each in kept if each.type == ContextInjection.type}
    quoting = [each for each in kept if each.type in _decoders]
    wanted = {(ContextAssembly.type, name) for name in injected} - {(each.type, each.record_id) for each in quoting}
    if wanted:
        quoting += await records.find_several(sorted(wanted))
    named = {(each.type, each.record_id): referenced_item_ids(_decoders[each.type](each.body)) for each in quoting}
    items = {item_id for of_record in named.values() for item_id in of_record}
    redacted = (await records.redactions(sorted(items))).keys() if items else frozenset()
    touched = {name for name, of_record in named.items() if not redacted.isdisjoint(of_record)}
    redactions = _QuoteRedactions(redacted, touched, await redactions_of(named, records))
    return [redactions.apply(each) for each in kept] if touched or redactions.of_records else list(kept)


class _QuoteRedactions(NamedTuple):
    """Redacted items, the records that quote them, and redactions of the quoting records themselves."""

    items: Collection[str]
    touched: Collection[Key]
    of_records: Mapping[Key, Redaction]

    def apply(self, kept: StoredRecord) -> StoredRecord:
        key = (kept.type, kept.record_id)
        if key in self.touched or key in self.of_records:
            return structs.replace(kept, body=_encode(self._redacted(_decoders[kept.type](kept.body), key)))
        if kept.type == ContextInjection.type:
            injection = _injection(kept.body)
            assembly = (ContextAssembly.type, injection.assembly_id)
            if assembly in self.touched or assembly in self.of_records:
                return structs.replace(kept, body=_encode(without_hash(injection)))
        return kept

    def _redacted(self, record: Quoting, key: Key) -> Quoting:
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
    stripped = _without_text(summary)
    if redaction.replacement is not None:
        return structs.replace(stripped, content=redaction.replacement, content_ref=UNSET)
    return (
        structs.replace(stripped, content_ref=_by_digest(summary).content_ref)
        if redaction.state == "encrypted_ref"
        else stripped
    )


def _reduced_assembly(assembly: ContextAssembly, redaction: Redaction) -> ContextAssembly:
    stripped = _without_text(assembly)
    if redaction.replacement is not None:
        return structs.replace(stripped, ordered_blocks=(Block(kind="summary", content=redaction.replacement),))
    if redaction.state != "encrypted_ref":
        return stripped
    blocks = zip(stripped.ordered_blocks, _by_digest(assembly).ordered_blocks, strict=True)
    named = tuple(structs.replace(block, content_ref=by_digest.content_ref) for block, by_digest in blocks)
    return structs.replace(stripped, ordered_blocks=named)


def _without_text(record: Q) -> Q:
    return record_text.strip_text(record_text.replace_quotes(record, lambda _: True, digests=False))


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
        return _without_text(record)
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
