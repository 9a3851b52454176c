"""Records that say themselves what items say: with nothing of what was redacted since, of the items or of themselves.

They still name it, and say no more of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import msgspec
from msgspec import UNSET, structs

from weft.capabilities.record_log import record_text
from weft.capabilities.records.model import Block, ContextAssembly, ContextInjection, ContextSummary
from weft.capabilities.records.recorder import items_of
from weft.capabilities.records.refs import Link
from weft.capabilities.records.store import ITEM
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
# What says itself what items say.
_quoting: dict[str, Callable[[bytes], Quoting]] = {
    ContextAssembly.type: msgspec.json.Decoder(ContextAssembly).decode,
    ContextSummary.type: msgspec.json.Decoder(ContextSummary).decode,
}
QUOTING = tuple(_quoting)


async def redact_quotes(kept: Sequence[StoredRecord], records: RecordStore) -> list[StoredRecord]:
    """Return records as they are shown: with nothing of what was redacted of the items they put together."""
    injected = {_injection(each.body).assembly_id for each in kept if each.type == ContextInjection.type}
    quoting = [each for each in kept if each.type in _quoting]
    wanted = {(ContextAssembly.type, name) for name in injected} - {(each.type, each.record_id) for each in quoting}
    if wanted:
        quoting += await records.find_several(sorted(wanted))
    named = {(each.type, each.record_id): items_of(_quoting[each.type](each.body)) for each in quoting}
    items = {item_id for of_record in named.values() for item_id in of_record}
    redacted = (await records.redactions(sorted(items))).keys() if items else frozenset()
    touched = {name for name, of_record in named.items() if not redacted.isdisjoint(of_record)}
    hidden = _Hidden(redacted, touched, await redactions_of(named, records))
    return [hidden.shown(each) for each in kept] if touched or hidden.themselves else list(kept)


class _Hidden(NamedTuple):
    """What was redacted: items, the records that quote these, and records themselves."""

    items: Collection[str]
    touched: Collection[Key]
    themselves: Mapping[Key, Redaction]

    def shown(self, kept: StoredRecord) -> StoredRecord:
        key = (kept.type, kept.record_id)
        if key in self.touched or key in self.themselves:
            return structs.replace(kept, body=_encode(self._quoting(_quoting[kept.type](kept.body), key)))
        if kept.type == ContextInjection.type:
            injection = _injection(kept.body)
            assembly = (ContextAssembly.type, injection.assembly_id)
            if assembly in self.touched or assembly in self.themselves:
                return structs.replace(kept, body=_encode(without_hash(injection)))
        return kept

    def _quoting(self, record: Quoting, key: Key) -> Quoting:
        shown = without_quotes(record, self.items) if key in self.touched else record
        redaction = self.themselves.get(key)
        return shown if redaction is None else redacted_record(shown, redaction)


def redacted_record(record: Quoting, redaction: Redaction) -> Quoting:
    """Return a summary or an assembly as it is shown since it was itself redacted."""
    shown = _left_of(record, redaction)
    state = cast("RedactionState", redaction.state)
    told = {"redaction_state": state, "redaction_method": redaction.method, "redacted_by": redaction.redacted_by}
    return structs.replace(shown, **told)


def _left_of(record: Quoting, redaction: Redaction) -> Quoting:
    if redaction.state == "masked":
        return record_text.mask_record(record, Masker())
    if isinstance(record, ContextSummary):
        return _left_of_summary(record, redaction)
    return _left_of_assembly(record, redaction)


def _left_of_summary(summary: ContextSummary, redaction: Redaction) -> ContextSummary:
    wordless = _wordless(summary)
    if redaction.replacement is not None:
        return structs.replace(wordless, content=redaction.replacement, content_ref=UNSET)
    return structs.replace(wordless, content_ref=_by_digest(summary).content_ref) if _tells(redaction) else wordless


def _left_of_assembly(assembly: ContextAssembly, redaction: Redaction) -> ContextAssembly:
    wordless = _wordless(assembly)
    if redaction.replacement is not None:
        return structs.replace(wordless, ordered_blocks=(Block(kind="summary", content=redaction.replacement),))
    if not _tells(redaction):
        return wordless
    blocks = zip(wordless.ordered_blocks, _by_digest(assembly).ordered_blocks, strict=True)
    named = tuple(structs.replace(block, content_ref=by_digest.content_ref) for block, by_digest in blocks)
    return structs.replace(wordless, ordered_blocks=named)


def _tells(redaction: Redaction) -> bool:
    """Tell whether those who hold what was said may know by its digest that this is it."""
    return redaction.state == "encrypted_ref"


def _wordless(record: Q) -> Q:
    return record_text.strip_text(record_text.replace_quotes(record, lambda _: True, digests=False))


def _by_digest(record: Q) -> Q:
    return record_text.replace_quotes(record, lambda _: True, digests=True)


async def redactions_of(named: Collection[Key], records: RecordStore) -> dict[Key, Redaction]:
    """Return what was redacted of records that are named by their types and ids."""
    found: dict[Key, Redaction] = {}
    for kind in (ITEM, *QUOTING):
        ids = sorted(record_id for record_type, record_id in named if record_type == kind)
        redacted = await records.redactions(ids, kind) if ids else {}
        found |= {(kind, record_id): redaction for record_id, redaction in redacted.items()}
    return found


def without_quotes(record: Quoting, hidden: Collection[str]) -> Quoting:
    """Return an assembly or a summary of some items that names them, and does not say what they say."""
    if isinstance(record, ContextSummary):
        return _wordless(record)
    of_all = not _ids(record.source_item_refs).isdisjoint(hidden)

    def is_quote(part: Block | ContextSummary) -> bool:
        if not isinstance(part, Block):
            return False
        # What does not say whose words it has may have those of every item the whole is made of.
        return not _ids(part.item_refs).isdisjoint(hidden) or (of_all and not part.item_refs)

    return record_text.replace_quotes(record, is_quote, digests=False)


def without_hash(injection: ContextInjection) -> ContextInjection:
    """Return an injection that does not give away what was shown: the rest of it being known, its hash would."""
    ref = injection.final_ref
    named = structs.replace(ref, digest=UNSET) if isinstance(ref, Link) else ref
    return structs.replace(injection, hash=UNSET, final_ref=named)


def _ids(refs: Refs) -> set[object]:
    return {ref.id if isinstance(ref, Link) else ref for ref in refs}
