"""The references of an export's envelope: collected in a dry pass, because the envelope is written first.

The pass over a whole session ends when the envelope lists as much as it can, so that a large session is not read twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, structs

from weftline.kernel.identity import ANYONE
from weftline.records.model import ContextBudget, ContextEvent, ContextItem

if TYPE_CHECKING:
    from weftline.exchange.transfer.bundle_format import AnyBundleEntry, StoredInfo
    from weftline.records.model import ContextEnvelope, Record
    from weftline.records.refs import Maybe, Ref

# An envelope lists at most this many references of each kind; the bundle has the rest.
MAX_REFS = 1_000
_FIELDS = {
    "context_item": "item_refs",
    "context_selection": "selection_refs",
    "context_assembly": "assembly_refs",
    "context_injection": "injection_refs",
    "context_compaction": "compaction_refs",
    "missing_context": "missing_context_refs",
}


class EnvelopeRefs:
    """An export sink that only collects ids, of records that every participant may read."""

    def __init__(self) -> None:
        self.records = self.bytes = 0
        self._budgets: list[str] = []
        self._refs: dict[str, list[Ref]] = {}

    def add(self, entry: AnyBundleEntry) -> None:
        """Ignore entries that are not records."""

    def add_record(
        self,
        record: Record,
        readable_by: tuple[str, ...] = ANYONE,
        stored: Maybe[StoredInfo] = UNSET,
        salt: Maybe[str] = UNSET,
    ) -> None:
        del stored, salt
        if readable_by != ANYONE or (isinstance(record, ContextItem) and record.visibility != ANYONE):
            return
        if isinstance(record, ContextBudget):
            self._budgets.append(record.id)
        if isinstance(record, ContextEvent):
            self._add_refs("telemetry_refs", record.telemetry_refs)
        self._add_refs("evidence_refs", record.evidence_refs)
        if record.type in _FIELDS:
            self._add_refs(_FIELDS[record.type], (record.id,))

    def seal(self) -> str:
        return ""

    def is_full(self, field: str) -> bool:
        """Tell whether the envelope lists as many references in a field as it can."""
        return len(self._refs.get(field, ())) >= MAX_REFS

    def add_to(self, envelope: ContextEnvelope) -> ContextEnvelope:
        """Add the collected references to an envelope."""
        fields: dict[str, Any] = {name: _union(getattr(envelope, name), refs) for name, refs in self._refs.items()}
        if envelope.budget_ref is UNSET and len(self._budgets) == 1:
            fields["budget_ref"] = self._budgets[0]
        return structs.replace(envelope, **fields)

    def _add_refs(self, name: str, refs: tuple[Ref, ...]) -> None:
        known = self._refs.setdefault(name, [])
        new = [ref for ref in refs if ref not in known]
        known += new[: MAX_REFS - len(known)]


def _union(first: tuple[Ref, ...], others: list[Ref]) -> tuple[Ref, ...]:
    return (*first, *(ref for ref in others if ref not in first))
