"""An export policy at work: what of each item and each record leaves, and in which form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

import msgspec
from msgspec import UNSET, structs

from weft.capabilities.messages.model import ADMINS
from weft.capabilities.record_log import record_text, redacted_items
from weft.capabilities.record_log.engine_items import EngineItem, Sensitivity, by_reference, digest_of, sensitivity_of
from weft.capabilities.record_log.redacted_records import without_hash
from weft.capabilities.records.model import RECORD_TYPES, Block, ContextAssembly, ContextEvent, ContextInjection
from weft.capabilities.records.recorder import referenced_item_ids
from weft.capabilities.records.refs import Link
from weft.capabilities.redaction.masker import ALL_CATEGORIES, DetectorCategory, Masker
from weft.capabilities.sessions.model import Pattern
from weft.kernel.fields import ShortText
from weft.kernel.identity import ANYONE

if TYPE_CHECKING:
    from weft.capabilities.records.model import ContextItem, ContextSummary, Record
    from weft.capabilities.records.refs import Maybe
    from weft.capabilities.records.store import Redaction

R = TypeVar("R", bound="Record")
ItemKind = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+\Z")]
_LEVELS: tuple[Sensitivity, ...] = ("internal", "restricted", "private")
# What others call what anyone may see.
_OPEN = frozenset({"public", "none"})
_SIZES = frozenset({"value_size", "value_size_tokens"})
# What these events are about is what somebody called a moment.
_OF_LABELS = (".snapshot", ".restored", ".snapshot_deleted")
# By these an event is joined to the records it is about, so they stay as they are.
_IDS = frozenset(kind.id_field for kind in RECORD_TYPES.values())
# What events say in words that is none of anybody's.
_OF_RECORDS = ("record_type", "scope", "status", "severity", "lifecycle", "redaction_state", "bundle_id")
_OF_OTHERS = ("type", "actor", "branch", "visibility", "category", "agent_id", "recipient_id")
_PLAIN_FACTS = frozenset((*_OF_RECORDS, *_OF_OTHERS, *_IDS))


class PolicyDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may leave with an export, in which form and by whose hand."""

    description: Annotated[ShortText, msgspec.Meta(description="What it is for.")] = ""
    who: Annotated[
        tuple[Pattern, ...],
        msgspec.Meta(min_length=1, max_length=100, description="Who may use it: participants; admins if left out."),
    ] = (ADMINS,)
    sensitivity: Annotated[
        Sensitivity,
        msgspec.Meta(description="The most sensitive that leaves; restricted is for some, private for one."),
    ] = "private"
    include_kinds: Annotated[
        tuple[ItemKind, ...], msgspec.Meta(max_length=100, description="Only items of these kinds; all if left out.")
    ] = ()
    exclude_kinds: Annotated[
        tuple[ItemKind, ...], msgspec.Meta(max_length=100, description="No items of these kinds, such as message.")
    ] = ()
    content: Annotated[
        Literal["full", "reference", "none"],
        msgspec.Meta(description="Contents as they are, only named by digest, or not at all."),
    ] = "full"
    mask: Annotated[
        tuple[DetectorCategory, ...],
        msgspec.Meta(max_length=2, description="What is masked: secrets, pii (personal data)."),
    ] = ("secrets",)
    on_block: Annotated[
        Literal["omit", "policy_blocked"],
        msgspec.Meta(description="An item that may not leave is left out, or there without what it says."),
    ] = "omit"

    @property
    def keeps_back(self) -> bool:
        """Tell whether there are items that may not leave at all."""
        return self.sensitivity != _LEVELS[-1] or bool(self.include_kinds or self.exclude_kinds)

    @property
    def digest(self) -> str:
        return digest_of(msgspec.json.encode(self, order="sorted").decode())


class AppliedPolicy:
    """A policy at work on one export. ``masked`` counts those of which something was kept back."""

    def __init__(self, name: str, definition: PolicyDefinition) -> None:
        self.ref = Link(kind="export_policy", id=name, digest=definition.digest)
        self.masked = self.omitted = 0
        self._definition = definition
        self._by = f"policy:{name}"
        self._mask = Masker(definition.mask)
        self._mask_of_redactions = Masker(ALL_CATEGORIES)
        # Whose contents others must not give away: by what they quote, or by a digest of it.
        self._hidden: set[str] = set()

    def item(
        self, item: EngineItem, redaction: Redaction | None, readable_by: tuple[str, ...] = ANYONE
    ) -> EngineItem | None:
        """Return an item as it may leave, with what it says as far as that may; None if it may not leave at all."""
        if redaction is not None:
            item = redacted_items.redacted_item(item, redaction, self._mask_of_redactions)
        if item.record.redaction_state not in {UNSET, "none"}:
            self._hidden.add(item.record.item_id)
        leaving = (
            self._in_form(self._masked(item)) if self._may_leave(item.record, readable_by) else self._blocked(item)
        )
        if leaving is None:
            self.omitted += 1
        elif leaving.record.policy_refs != item.record.policy_refs:
            self.masked += 1
        return leaving

    def record(self, record: R, readable_by: tuple[str, ...]) -> R | None:
        """Return another record as it may leave; None if it may not. ``readable_by`` is who may read it here."""
        levels = (sensitivity_of(readable_by), _level_named(getattr(record, "sensitivity", UNSET)))
        if any(_is_above(level, self._definition.sensitivity) for level in levels):
            self.omitted += 1
            return None
        leaving = record_text.replace_quotes(
            record, self._may_not_be_quoted, digests=self._definition.content == "reference"
        )
        leaving = self._without_hash(record_text.mask_record(leaving, self._mask))
        if self._definition.content == "none":
            leaving = record_text.strip_text(leaving)
        self._note(record, leaving)
        if leaving == record:
            return record
        self.masked += 1
        return structs.replace(leaving, policy_refs=(*leaving.policy_refs, self.ref))

    def event(self, event: ContextEvent, readable_by: tuple[str, ...]) -> ContextEvent | None:
        """Return an event of the log as it may leave; None if it may not."""
        if _is_above(sensitivity_of(readable_by), self._definition.sensitivity):
            self.omitted += 1
            return None
        is_hidden = str(event.data.get("item_id")) in self._hidden
        data = {
            name: said if name in _IDS else self._told(said)
            for name, said in event.data.items()
            if not (is_hidden and name in _SIZES) and self._may_be_told(name, said)
        }
        subject = event.subject
        if isinstance(subject, str) and str(data.get("type")).endswith(_OF_LABELS):
            subject = self.name(subject)
        is_same = data == event.data and subject == event.subject
        return event if is_same else structs.replace(event, data=data, subject=subject)

    def name(self, name: str) -> str:
        return self._mask.name(name)

    def words(self, value: Any) -> Any:  # noqa: ANN401 - JSON of any shape
        """Return what somebody wrote outside any record as it may leave."""
        if self._definition.content == "none":
            return record_text.REDACTED if isinstance(value, str) else {}
        return self._mask.value(value)

    def _may_leave(self, record: ContextItem, readable_by: tuple[str, ...]) -> bool:
        allowed, kind = self._definition, record.context_kind
        if kind in allowed.exclude_kinds or (allowed.include_kinds and kind not in allowed.include_kinds):
            return False
        return not any(_is_above(level, allowed.sensitivity) for level in (_level(record), sensitivity_of(readable_by)))

    def _blocked(self, item: EngineItem) -> EngineItem | None:
        self._hidden.add(item.record.item_id)
        if self._definition.on_block == "omit":
            return None
        return self._kept_back(redacted_items.without_content(item.record), "kept back")

    def _kept_back(self, record: ContextItem, how: str) -> EngineItem:
        told = redacted_items.with_redaction_state(
            record, "policy_blocked", f"{how} by the policy {self.ref.id}", self._by
        )
        return EngineItem(structs.replace(told, policy_refs=(*told.policy_refs, self.ref)), None)

    def _masked(self, item: EngineItem) -> EngineItem:
        masked = redacted_items.masked_item(item, self._mask)
        if masked == item:
            return item
        self._hidden.add(item.record.item_id)
        record = structs.replace(masked.record, policy_refs=(*masked.record.policy_refs, self.ref))
        if record.redaction_state in {UNSET, "none"}:
            how = f"{' and '.join(self._definition.mask)} masked by the policy {self.ref.id}"
            record = redacted_items.with_redaction_state(record, "masked", how, self._by)
        return EngineItem(record, masked.text)

    def _in_form(self, item: EngineItem) -> EngineItem:
        record, text = item
        says_something = text is not None or record.content is not UNSET or record.content_ref is not UNSET
        if self._definition.content == "full" or not says_something:
            return item
        if self._definition.content == "none":
            sizes = structs.replace(
                redacted_items.without_content(record), byte_size=record.byte_size, token_estimate=record.token_estimate
            )
            return self._kept_back(sizes, "contents left out")
        if record.content is not UNSET:
            said = text if text is not None else msgspec.json.encode(record.content).decode()
            record = by_reference(record, said)
        return EngineItem(record, None)

    def _may_not_be_quoted(self, part: Block | ContextSummary) -> bool:
        """Tell whether something may hold words of an item that do not leave, or do not leave as they are."""
        if self._definition.keeps_back or self._definition.content != "full":
            return True
        named = part.item_refs if isinstance(part, Block) else part.source_item_refs
        return any((ref.id if isinstance(ref, Link) else ref) in self._hidden for ref in named)

    def _note(self, record: Record, leaving: Record) -> None:
        if isinstance(record, ContextAssembly) and (
            leaving != record or not self._hidden.isdisjoint(referenced_item_ids(record))
        ):
            self._hidden.add(record.assembly_id)

    def _without_hash(self, record: R) -> R:
        if not isinstance(record, ContextInjection) or record.assembly_id not in self._hidden:
            return record
        return cast("R", without_hash(record))

    def _may_be_told(self, name: str, said: Any) -> bool:  # noqa: ANN401 - JSON of any shape
        """Tell whether an event may say something: without contents, only what is no word of anybody's."""
        return self._definition.content != "none" or name in _PLAIN_FACTS or isinstance(said, int | None)

    def _told(self, said: Any) -> Any:  # noqa: ANN401 - JSON of any shape
        if said is None or isinstance(said, int):
            return said
        return self._mask.repeated(said) if isinstance(said, str) else self._mask.value(said)


def _level(record: ContextItem) -> Sensitivity:
    """Return how sensitive an item is: as it says, or by who may see it."""
    if record.sensitivity is UNSET:
        return sensitivity_of(record.visibility or ANYONE)
    return _level_named(record.sensitivity)


def _level_named(said: Maybe[str]) -> Sensitivity:
    """Return how sensitive something is that says so; what nobody has heard of is taken for the most."""
    if said is UNSET or said in _OPEN:
        return _LEVELS[0]
    return next((level for level in _LEVELS if level == said), _LEVELS[-1])


def _is_above(level: Sensitivity, allowed: Sensitivity) -> bool:
    return _LEVELS.index(level) > _LEVELS.index(allowed)
