"""What an export is of, by name: gathered before it is written, because its envelope stands before everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, structs

from weft.capabilities.records.model import ContextBudget, ContextEvent, ContextItem
from weft.kernel.identity import ANYONE

if TYPE_CHECKING:
    from weft.capabilities.records.model import ContextEnvelope, Record
    from weft.capabilities.records.refs import Maybe, Ref
    from weft.capabilities.transfer.bundle_format import AnyBundleEntry, StoredInfo

# An envelope names so many of a sort, and leaves the rest to whoever reads on.
_MOST = 1_000
_FIELDS = {
    "context_item": "item_refs",
    "context_selection": "selection_refs",
    "context_assembly": "assembly_refs",
    "context_injection": "injection_refs",
    "context_compaction": "compaction_refs",
    "missing_context": "missing_context_refs",
}


class EnvelopeRefs:
    """Where an export goes that is only looked at. It keeps names, and only of what everyone here may know of."""

    def __init__(self) -> None:
        self.records = self.bytes = 0
        self._budgets: list[str] = []
        self._named: dict[str, list[Ref]] = {}

    def add(self, entry: AnyBundleEntry) -> None:
        """Pass over what is no record."""

    def add_record(
        self, record: Record, readable_by: tuple[str, ...] = ANYONE, stored: Maybe[StoredInfo] = UNSET
    ) -> None:
        del stored
        if readable_by != ANYONE or (isinstance(record, ContextItem) and record.visibility != ANYONE):
            return
        if isinstance(record, ContextBudget):
            self._budgets.append(record.id)
        if isinstance(record, ContextEvent):
            self._note("telemetry_refs", record.telemetry_refs)
        self._note("evidence_refs", record.evidence_refs)
        if record.type in _FIELDS:
            self._note(_FIELDS[record.type], (record.id,))

    def seal(self) -> str:
        return ""

    def in_envelope(self, envelope: ContextEnvelope) -> ContextEnvelope:
        """Return an envelope that names what was looked at beside what it names already."""
        named: dict[str, Any] = {name: _together(getattr(envelope, name), refs) for name, refs in self._named.items()}
        budget = self._budgets[0] if len(self._budgets) == 1 else UNSET
        return structs.replace(envelope, **named, budget_ref=budget)

    def _note(self, name: str, refs: tuple[Ref, ...]) -> None:
        known = self._named.setdefault(name, [])
        if len(known) < _MOST:
            known += [ref for ref in refs if ref not in known]


def _together(first: tuple[Ref, ...], others: list[Ref]) -> tuple[Ref, ...]:
    return (*first, *(ref for ref in others if ref not in first))
