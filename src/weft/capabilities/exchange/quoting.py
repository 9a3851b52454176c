"""Records that quote what was redacted since they were made: they still name it, and say no more of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, structs

from weft.capabilities.exchange import prose
from weft.capabilities.records.model import Block, ContextAssembly, ContextInjection
from weft.capabilities.records.recording import items_of
from weft.capabilities.records.refs import Link

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from weft.capabilities.records.model import ContextSummary
    from weft.capabilities.records.store import Kept, RecordStore

_encode = msgspec.json.Encoder().encode
_assembly = msgspec.json.Decoder(ContextAssembly).decode
_injection = msgspec.json.Decoder(ContextInjection).decode


async def as_shown(kept: Sequence[Kept], records: RecordStore) -> list[Kept]:
    """Return records as they are shown: with nothing of what was redacted of the items they put together."""
    injected = {each.record_id: _injection(each.body) for each in kept if each.type == ContextInjection.type}
    assembled = [each for each in kept if each.type == ContextAssembly.type]
    wanted = {injection.assembly_id for injection in injected.values()} - {each.record_id for each in assembled}
    if wanted:
        assembled += await records.find_several([(ContextAssembly.type, name) for name in sorted(wanted)])
    assemblies = {each.record_id: _assembly(each.body) for each in assembled}
    named = {item_id for assembly in assemblies.values() for item_id in items_of(assembly)}
    redacted = await records.redactions(sorted(named)) if named else {}
    if not redacted:
        return list(kept)
    touched = {name for name, assembly in assemblies.items() if not redacted.keys().isdisjoint(items_of(assembly))}
    return [_shown(each, touched, redacted.keys()) for each in kept]


def without_quotes(assembly: ContextAssembly, hidden: Collection[str]) -> ContextAssembly:
    """Return an assembly that names what it shows of some items, and does not say it."""

    def is_quote(part: Block | ContextSummary) -> bool:
        return isinstance(part, Block) and any((r.id if isinstance(r, Link) else r) in hidden for r in part.item_refs)

    return prose.unquoted(assembly, is_quote, digests=False)


def without_hash(injection: ContextInjection) -> ContextInjection:
    """Return an injection that does not give away what was shown: the rest of it being known, its hash would."""
    ref = injection.final_ref
    named = structs.replace(ref, digest=UNSET) if isinstance(ref, Link) else ref
    return structs.replace(injection, hash=UNSET, final_ref=named)


def _shown(kept: Kept, touched: Collection[str], redacted: Collection[str]) -> Kept:
    if kept.type == ContextAssembly.type and kept.record_id in touched:
        return structs.replace(kept, body=_encode(without_quotes(_assembly(kept.body), redacted)))
    if kept.type == ContextInjection.type:
        injection = _injection(kept.body)
        if injection.assembly_id in touched:
            return structs.replace(kept, body=_encode(without_hash(injection)))
    return kept
