"""Applies an export policy: filters and masks each item, record and event of an export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

import msgspec
from msgspec import UNSET, structs

from weftline.access.model import Pattern
from weftline.exchange.record_log import record_text, redacted_records
from weftline.exchange.record_log.engine_items import EngineItem, Sensitivity, by_reference, sensitivity_of
from weftline.kernel.fields import ShortText
from weftline.kernel.identity import ANYONE
from weftline.records.model import (
    RECORD_TYPES,
    Block,
    ContextAssembly,
    ContextEvent,
    ContextInjection,
    ContextItem,
)
from weftline.records.open_records import without_given
from weftline.records.refs import Link, content_digest
from weftline.safety.redaction import ALL_CATEGORIES, DetectorCategory, Masker
from weftline.safety.trust.model import DEFAULT_POLICY
from weftline.sessions.messages.model import ADMINS
from weftline.sessions.recorder import referenced_item_ids

if TYPE_CHECKING:
    from weftline.records.model import ContextSummary, Record
    from weftline.records.refs import Maybe
    from weftline.records.schemas import Redaction
    from weftline.safety.trust.model import TrustPolicy

R = TypeVar("R", bound="Record")
ItemKind = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+\Z")]
_LEVELS: tuple[Sensitivity, ...] = ("internal", "restricted", "private")
# Other words for data that everyone may see.
_PUBLIC = frozenset({"public", "none"})
_SIZES = frozenset({"value_size", "value_size_tokens"})
# The subject of these events is the label of a snapshot, which is free text.
_LABEL_EVENTS = (".snapshot", ".restored", ".snapshot_deleted")
# Ids join an event to its records, so they are never masked.
_ID_FIELDS = frozenset(kind.id_field for kind in RECORD_TYPES.values())
# String fields of events that hold no free text.
_OF_RECORDS = ("record_type", "scope", "status", "severity", "lifecycle", "redaction_state", "bundle_id")
_OF_OTHERS = ("type", "actor", "branch", "visibility", "category", "agent_id", "recipient_id")
_PLAIN_FIELDS = frozenset((*_OF_RECORDS, *_OF_OTHERS, *_ID_FIELDS))


class PolicyDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an export may contain, in which form, and who may use the policy."""

    description: Annotated[ShortText, msgspec.Meta(description="What the policy is for.")] = ""
    who: Annotated[
        tuple[Pattern, ...],
        msgspec.Meta(min_length=1, max_length=100, description="Participants that may use it. Default: admins."),
    ] = (ADMINS,)
    sensitivity: Annotated[
        Sensitivity,
        msgspec.Meta(description="Highest exported level; restricted: readable by some, private: by one."),
    ] = "private"
    include_kinds: Annotated[
        tuple[ItemKind, ...],
        msgspec.Meta(max_length=100, description="Export only items of these kinds. Default: all."),
    ] = ()
    exclude_kinds: Annotated[
        tuple[ItemKind, ...],
        msgspec.Meta(max_length=100, description="Export no items of these kinds, such as message."),
    ] = ()
    content: Annotated[
        Literal["full", "reference", "none"],
        msgspec.Meta(description="Export contents (full), only their digests (reference), or neither (none)."),
    ] = "full"
    mask: Annotated[
        tuple[DetectorCategory, ...],
        msgspec.Meta(max_length=2, description="What to mask: secrets, pii (personal data)."),
    ] = ("secrets",)
    on_block: Annotated[
        Literal["omit", "policy_blocked"],
        msgspec.Meta(description="Leave a blocked item out (omit), or export it without content (policy_blocked)."),
    ] = "omit"

    @property
    def blocks_items(self) -> bool:
        """Tell whether the policy can block whole items."""
        return self.sensitivity != _LEVELS[-1] or bool(self.include_kinds or self.exclude_kinds)

    @property
    def digest(self) -> str:
        return content_digest(msgspec.json.encode(self, order="sorted"))


class AppliedPolicy:
    """A policy applied to one export. ``masked`` counts changed entries, ``omitted`` dropped ones.

    ``trust`` is the tenant's trust policy: it masks or blocks what the export policy would let pass.
    """

    def __init__(self, name: str, definition: PolicyDefinition, trust: TrustPolicy = DEFAULT_POLICY) -> None:
        self.ref = Link(kind="export_policy", id=name, digest=definition.digest)
        self.masked = self.omitted = 0
        self._definition = definition
        self._redacted_by = f"policy:{name}"
        actions: dict[DetectorCategory, str] = {"secrets": trust.secrets.export, "pii": trust.pii.export}
        self._categories = [each for each in ALL_CATEGORIES if each in definition.mask or actions[each] != "allow"]
        self._mask = Masker(self._categories)
        blocked = [each for each in ALL_CATEGORIES if actions[each] == "block"]
        self._blocked_values = Masker(blocked) if blocked else None
        self._redaction_masker = Masker(ALL_CATEGORIES)
        # Ids whose content no other record may reveal, by a quote or by a digest of one.
        self._redacted: set[str] = set()

    def item(
        self, item: EngineItem, redaction: Redaction | None, readable_by: tuple[str, ...] = ANYONE
    ) -> EngineItem | None:
        """Return an item as it may be exported; None if it is omitted.

        Redactions apply under every policy. Call this for items before the records that refer to them.
        """
        if redaction is not None:
            item = redacted_records.redacted_item(item, redaction, self._redaction_masker)
        if item.record.redaction_state not in {UNSET, "none"}:
            self._redacted.add(item.record.item_id)
        exported = (
            self._reduced(self._masked(item)) if self._is_allowed(item.record, readable_by) else self._blocked(item)
        )
        if exported is None:
            self.omitted += 1
        elif exported.record.policy_refs != item.record.policy_refs:
            self.masked += 1
        is_changed = exported is not None and exported.record != item.record
        return exported._replace(record=without_given(exported.record)) if exported and is_changed else exported

    def may_name(self, record: Record, readable_by: tuple[str, ...]) -> bool:
        """Tell whether a record would be in the export, with or without its content, by its kind and ACL."""
        if isinstance(record, ContextItem):
            return self._definition.on_block != "omit" or self._is_allowed(record, readable_by)
        return not self._is_restricted(record, readable_by)

    def record(self, record: R, readable_by: tuple[str, ...]) -> R | None:
        """Return another record as it may be exported; None if it is omitted."""
        if self._is_restricted(record, readable_by):
            self.omitted += 1
            return None
        exported = record_text.replace_quotes(
            record, self._must_not_quote, digests=self._definition.content == "reference"
        )
        exported = self._without_hash(record_text.mask_record(exported, self._mask))
        if self._definition.content == "none":
            exported = record_text.strip_text(exported)
        self._note_assembly(record, exported)
        if exported == record:
            return record
        self.masked += 1
        return structs.replace(without_given(exported), policy_refs=(*exported.policy_refs, self.ref))

    def event(self, event: ContextEvent, readable_by: tuple[str, ...]) -> ContextEvent | None:
        """Return an event as it may be exported; None if it is omitted."""
        if _is_above(sensitivity_of(readable_by), self._definition.sensitivity):
            self.omitted += 1
            return None
        is_redacted = str(event.data.get("item_id")) in self._redacted
        data = {
            name: value if name in _ID_FIELDS else self._masked_field(value)
            for name, value in event.data.items()
            if not (is_redacted and name in _SIZES) and self._may_export_field(name, value)
        }
        subject = event.subject
        if isinstance(subject, str) and str(data.get("type")).endswith(_LABEL_EVENTS):
            subject = self.name(subject)
        is_same = data == event.data and subject == event.subject
        return event if is_same else structs.replace(event, data=data, subject=subject)

    def name(self, name: str) -> str:
        """Mask an identifier; the result is a valid identifier too."""
        return self._mask.name(name)

    def mask_value(self, value: Any) -> Any:  # noqa: ANN401 - JSON of any shape
        """Mask or remove free text outside of records: a string or an object."""
        if self._definition.content == "none":
            return record_text.REDACTED if isinstance(value, str) else {}
        return self._mask.value(value)

    def _is_restricted(self, record: Record, readable_by: tuple[str, ...]) -> bool:
        levels = (sensitivity_of(readable_by), _level_named(getattr(record, "sensitivity", UNSET)))
        return any(_is_above(level, self._definition.sensitivity) for level in levels)

    def _is_allowed(self, record: ContextItem, readable_by: tuple[str, ...]) -> bool:
        allowed, kind = self._definition, record.context_kind
        if kind in allowed.exclude_kinds or (allowed.include_kinds and kind not in allowed.include_kinds):
            return False
        return not any(_is_above(level, allowed.sensitivity) for level in (_level(record), sensitivity_of(readable_by)))

    def _blocked(self, item: EngineItem) -> EngineItem | None:
        self._redacted.add(item.record.item_id)
        if self._definition.on_block == "omit":
            return None
        return self._without_content(redacted_records.without_content(item.record), "blocked")

    def _without_content(self, record: ContextItem, how: str) -> EngineItem:
        blocked = redacted_records.with_redaction_state(
            record, "policy_blocked", f"{how} by the policy {self.ref.id}", self._redacted_by
        )
        return EngineItem(structs.replace(blocked, policy_refs=(*blocked.policy_refs, self.ref)), None)

    def _masked(self, item: EngineItem) -> EngineItem:
        masked = redacted_records.masked_item(item, self._mask)
        if masked == item:
            return item
        self._redacted.add(item.record.item_id)
        if self._blocked_values is not None and redacted_records.masked_item(item, self._blocked_values) != item:
            return self._without_content(redacted_records.without_content(masked.record), "blocked")
        record = structs.replace(masked.record, policy_refs=(*masked.record.policy_refs, self.ref))
        if record.redaction_state in {UNSET, "none"}:
            how = f"{' and '.join(self._categories)} masked by the policy {self.ref.id}"
            record = redacted_records.with_redaction_state(record, "masked", how, self._redacted_by)
        return EngineItem(record, masked.text)

    def _reduced(self, item: EngineItem) -> EngineItem:
        record, text = item
        has_content = text is not None or record.content is not UNSET or record.content_ref is not UNSET
        if self._definition.content == "full" or not has_content:
            return item
        if self._definition.content == "none":
            sizes = structs.replace(
                redacted_records.without_content(record),
                byte_size=record.byte_size,
                token_estimate=record.token_estimate,
            )
            return self._without_content(sizes, "contents left out")
        if record.content is not UNSET:
            value = text if text is not None else msgspec.json.encode(record.content).decode()
            record = by_reference(record, value)
        return EngineItem(record, None)

    def _must_not_quote(self, part: Block | ContextSummary) -> bool:
        """Tell whether a part may quote an item that is blocked, masked or exported without content."""
        if self._definition.blocks_items or self._definition.content != "full":
            return True
        named = part.item_refs if isinstance(part, Block) else part.source_item_refs
        return any((ref.id if isinstance(ref, Link) else ref) in self._redacted for ref in named)

    def _note_assembly(self, record: Record, exported: Record) -> None:
        if isinstance(record, ContextAssembly) and (
            exported != record or not self._redacted.isdisjoint(referenced_item_ids(record))
        ):
            self._redacted.add(record.assembly_id)

    def _without_hash(self, record: R) -> R:
        if not isinstance(record, ContextInjection) or record.assembly_id not in self._redacted:
            return record
        return cast("R", redacted_records.without_hash(record))

    def _may_export_field(self, name: str, value: Any) -> bool:  # noqa: ANN401 - JSON of any shape
        """Tell whether an event field may be exported: without contents, only fields without free text."""
        return self._definition.content != "none" or name in _PLAIN_FIELDS or isinstance(value, int | None)

    def _masked_field(self, value: Any) -> Any:  # noqa: ANN401 - JSON of any shape
        if value is None or isinstance(value, int):
            return value
        return self._mask.repeated(value) if isinstance(value, str) else self._mask.value(value)


def _level(record: ContextItem) -> Sensitivity:
    """Return an item's sensitivity: its own field, or by its ACL."""
    if record.sensitivity is UNSET:
        return sensitivity_of(record.visibility or ANYONE)
    return _level_named(record.sensitivity)


def _level_named(value: Maybe[str]) -> Sensitivity:
    """Return a known sensitivity level; an unknown one counts as the highest."""
    if value is UNSET or value in _PUBLIC:
        return _LEVELS[0]
    return next((level for level in _LEVELS if level == value), _LEVELS[-1])


def _is_above(level: Sensitivity, allowed: Sensitivity) -> bool:
    return _LEVELS.index(level) > _LEVELS.index(allowed)
