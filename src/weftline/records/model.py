"""The thirteen record types of Agent Context, with all fields of the specification.

Records refer to content by digest, and to policies, evidence, artifacts and telemetry by link. An absent value is left
out, never null.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, field

from weftline.kernel.events import EventClass
from weftline.records.refs import (
    Count,
    Digest,
    Id,
    Mapping,
    Maybe,
    NonNegative,
    RecordPart,
    RecordTime,
    Ref,
    Refs,
    Selector,
    Text,
    Uri,
)
from weftline.records.vocabulary import (
    CompactionMethod,
    ContentMode,
    InjectionPoint,
    Lifecycle,
    MissingStatus,
    OmissionReason,
    Ordered,
    OverflowStrategy,
    RecordType,
    RedactionState,
    RequiresAny,
    Scope,
    Severity,
)

Visibility = tuple[Id, ...]
Policy = Text | dict[str, Any]


class Record(RecordPart):
    """Fields of every record: schema version, references, external mappings and metadata."""

    type: ClassVar[RecordType]
    id_field: ClassVar[str]

    schema_version: Literal["0.1.0"]
    policy_refs: Refs = ()
    evidence_refs: Refs = ()
    artifact_refs: Refs = ()
    telemetry_refs: Refs = ()
    external_mappings: tuple[Mapping, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        identity: str = getattr(self, self.id_field)
        return identity


class Producer(RecordPart):
    """Software or agent that produced a record."""

    id: Id
    version: Maybe[Id] = UNSET
    metadata: dict[str, Any] = field(default_factory=dict)


class ContextEnvelope(Record, kw_only=True):
    """A portable snapshot for a turn, task, session, tool call, review or handoff."""

    type = "context_envelope"
    id_field = "context_id"

    context_id: Id
    scope: Scope
    lifecycle: Lifecycle
    created_at: RecordTime
    producer: Maybe[Id | Producer] = UNSET
    actor_refs: Refs = ()
    runtime_refs: Refs = ()
    surface_refs: Refs = ()
    item_refs: Refs = ()
    selection_refs: Refs = ()
    budget_ref: Maybe[Ref] = UNSET
    assembly_refs: Refs = ()
    injection_refs: Refs = ()
    compaction_refs: Refs = ()
    missing_context_refs: Refs = ()


class ContextSourceRef(Record, kw_only=True):
    """A source or a passage of it, with the digest of its content."""

    type = "context_source_ref"
    id_field = "source_id"

    source_id: Id
    uri: Uri
    source_kind: Id
    selector: Maybe[Selector | tuple[Selector, ...]] = UNSET
    digest: Maybe[Digest] = UNSET
    authority: Maybe[Id] = UNSET
    provenance_refs: Refs = ()
    license: Maybe[Text] = UNSET
    retrieved_at: Maybe[RecordTime] = UNSET
    modified_at: Maybe[RecordTime] = UNSET


class ContextSurface(Record, kw_only=True):
    """Context that is available in a scope, before selection."""

    type = "context_surface"
    id_field = "surface_id"

    surface_id: Id
    scope: Scope
    created_at: RecordTime
    surface_kind: Maybe[Id] = UNSET
    producer: Maybe[Id | Producer] = UNSET
    available_source_refs: Refs = ()
    available_item_refs: Refs = ()
    capability_refs: Refs = ()
    visibility: Visibility = ()
    expires_at: Maybe[RecordTime] = UNSET


class Freshness(RecordPart):
    """How current something is."""

    as_of: Maybe[RecordTime] = UNSET
    expires_at: Maybe[RecordTime] = UNSET
    max_age_seconds: Maybe[Count] = UNSET
    state: Maybe[Id] = UNSET
    metadata: dict[str, Any] = field(default_factory=dict)


class ContextItem(Record, kw_only=True):
    """A unit of context: its content, or a reference to it."""

    type = "context_item"
    id_field = "item_id"
    constraints = (
        RequiresAny(("content",), "content_mode", ("inline", "embedded_resource")),
        RequiresAny(("content", "content_ref"), "content_mode", ("summary",)),
        RequiresAny(("content_ref",), "content_mode", ("ref", "resource_link", "artifact_ref", "tool_result_ref")),
    )

    item_id: Id
    context_kind: Id
    content_mode: ContentMode
    visibility: Visibility
    title: Maybe[Text] = UNSET
    content: Any = UNSET
    content_ref: Maybe[Ref] = UNSET
    mime_type: Maybe[Id] = UNSET
    language: Maybe[Id] = UNSET
    source_refs: tuple[Id | ContextSourceRef, ...] = ()
    token_estimate: Maybe[Count] = UNSET
    byte_size: Maybe[Count] = UNSET
    freshness: Maybe[Id | Freshness] = UNSET
    trust_level: Maybe[Id] = UNSET
    sensitivity: Maybe[Id] = UNSET
    retention_hint: Maybe[Text] = UNSET
    redaction_state: Maybe[RedactionState] = UNSET
    redaction_method: Maybe[Text] = UNSET
    redacted_by: Maybe[Ref] = UNSET
    priority: Maybe[float] = UNSET
    created_at: Maybe[RecordTime] = UNSET


class Omission(RecordPart):
    """An item that was not selected, with the reason."""

    item_ref: Ref
    reason: OmissionReason
    detail: Maybe[Text] = UNSET
    metadata: dict[str, Any] = field(default_factory=dict)


class ContextSelection(Record, kw_only=True):
    """Candidates of a selection: the selected and the omitted items."""

    type = "context_selection"
    id_field = "selection_id"

    selection_id: Id
    surface_id: Id
    created_at: RecordTime
    query: Maybe[Text] = UNSET
    intent: Maybe[Text] = UNSET
    candidate_item_refs: Refs = ()
    selected_item_refs: Refs = ()
    omitted_item_refs: tuple[Omission, ...] = ()
    ranking_signals: dict[str, Any] = field(default_factory=dict)
    selection_policy: Maybe[Policy] = UNSET
    budget_ref: Maybe[Ref] = UNSET
    rationale: Maybe[Text] = UNSET
    actor_ref: Maybe[Ref] = UNSET
    model_ref: Maybe[Ref] = UNSET


class Truncation(RecordPart):
    """How an item was truncated."""

    item_ref: Ref
    strategy: OverflowStrategy
    original_tokens: Maybe[Count] = UNSET
    kept_tokens: Maybe[Count] = UNSET
    reason: Maybe[Text] = UNSET
    metadata: dict[str, Any] = field(default_factory=dict)


class WindowSegment(RecordPart):
    """A segment of a context window, with its token limits and usage."""

    name: Id
    reserved_tokens: Maybe[Count] = UNSET
    max_tokens: Maybe[Count] = UNSET
    actual_tokens: Maybe[Count] = UNSET
    item_refs: Refs = ()
    metadata: dict[str, Any] = field(default_factory=dict)


class ContextBudget(Record, kw_only=True):
    """Limits and actual usage."""

    type = "context_budget"
    id_field = "budget_id"
    constraints = (Ordered("reserved_tokens", "max_tokens"),)

    budget_id: Id
    target: Id
    created_at: RecordTime
    max_tokens: Maybe[Count] = UNSET
    reserved_tokens: Maybe[Count] = UNSET
    max_bytes: Maybe[Count] = UNSET
    max_items: Maybe[Count] = UNSET
    max_seconds: Maybe[NonNegative] = UNSET
    visibility: Visibility = ()
    actual_tokens: Maybe[Count] = UNSET
    actual_bytes: Maybe[Count] = UNSET
    actual_items: Maybe[Count] = UNSET
    actual_seconds: Maybe[NonNegative] = UNSET
    overflow_strategy: Maybe[OverflowStrategy] = UNSET
    truncation_records: tuple[Truncation, ...] = ()
    window_segments: tuple[WindowSegment, ...] = ()


class ContextWindow(Record, kw_only=True):
    """Layout of a context window: ordered segments and reserved tokens."""

    type = "context_window"
    id_field = "window_id"
    constraints = (Ordered("reserved_tokens", "max_tokens"),)

    window_id: Id
    target: Id
    segments: tuple[WindowSegment, ...]
    created_at: RecordTime
    max_tokens: Maybe[Count] = UNSET
    reserved_tokens: Maybe[Count] = UNSET
    budget_ref: Maybe[Ref] = UNSET
    model_ref: Maybe[Ref] = UNSET


class Block(RecordPart):
    """A block of an assembly."""

    constraints = (RequiresAny(("content", "content_ref", "item_refs")),)

    block_id: Maybe[Id] = UNSET
    kind: Maybe[Id] = UNSET
    role: Maybe[Id] = UNSET
    item_refs: Refs = ()
    content: Maybe[Text] = UNSET
    content_ref: Maybe[Ref] = UNSET
    token_estimate: Maybe[Count] = UNSET
    redaction_state: Maybe[RedactionState] = UNSET
    metadata: dict[str, Any] = field(default_factory=dict)


class ContextAssembly(Record, kw_only=True):
    """Ordered blocks prepared for a target; an injection records that the target saw them."""

    type = "context_assembly"
    id_field = "assembly_id"

    assembly_id: Id
    target: Id
    ordered_blocks: tuple[Block, ...]
    created_at: RecordTime
    wrapping_policy: Maybe[Policy] = UNSET
    separator_policy: Maybe[Policy] = UNSET
    visibility: Visibility = ()
    budget_ref: Maybe[Ref] = UNSET
    source_item_refs: Refs = ()
    redaction_state: Maybe[RedactionState] = UNSET
    redaction_method: Maybe[Text] = UNSET
    redacted_by: Maybe[Ref] = UNSET


class ContextInjection(Record, kw_only=True):
    """Where an assembly became visible, with the hash of the content shown."""

    type = "context_injection"
    id_field = "injection_id"

    injection_id: Id
    assembly_id: Id
    target: Id
    injection_point: InjectionPoint
    created_at: RecordTime
    native_id: Maybe[Id] = UNSET
    visibility: Visibility = ()
    final_ref: Maybe[Ref] = UNSET
    hash: Maybe[Digest] = UNSET


class Coverage(RecordPart):
    """How much of its sources a compaction or summary covers."""

    items_covered: Maybe[Count] = UNSET
    items_total: Maybe[Count] = UNSET
    estimated_tokens_before: Maybe[Count] = UNSET
    estimated_tokens_after: Maybe[Count] = UNSET
    uncovered_item_refs: Refs = ()
    metadata: dict[str, Any] = field(default_factory=dict)


class Validation(RecordPart):
    """Result of a validation."""

    status: Id
    reviewer: Maybe[Ref] = UNSET
    checked_at: Maybe[RecordTime] = UNSET
    notes: tuple[Text, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)


class ContextCompaction(Record, kw_only=True):
    """Replacement of items by something shorter, with the losses. The source items are not deleted."""

    type = "context_compaction"
    id_field = "compaction_id"

    compaction_id: Id
    scope: Scope
    source_item_refs: Annotated[Refs, Meta(min_length=1)]
    method: CompactionMethod
    created_at: RecordTime
    summary_ref: Maybe[Ref] = UNSET
    trigger: Maybe[Text] = UNSET
    coverage: Maybe[Coverage] = UNSET
    loss_notes: tuple[Text, ...] = ()
    validation: Maybe[Id | Validation] = UNSET
    replacement_policy: Maybe[Text] = UNSET


class ContextSummary(Record, kw_only=True):
    """A summary: its content, coverage, losses and refresh policy."""

    type = "context_summary"
    id_field = "summary_id"
    constraints = (RequiresAny(("content", "content_ref")),)

    summary_id: Id
    created_at: RecordTime
    content: Maybe[Text] = UNSET
    content_ref: Maybe[Ref] = UNSET
    compaction_ref: Maybe[Ref] = UNSET
    source_item_refs: Refs = ()
    coverage: Maybe[Coverage] = UNSET
    loss_notes: tuple[Text, ...] = ()
    validation: Maybe[Id | Validation] = UNSET
    refresh_policy: Maybe[Policy] = UNSET
    token_estimate: Maybe[Count] = UNSET
    sensitivity: Maybe[Id] = UNSET
    retention_hint: Maybe[Text] = UNSET
    redaction_state: Maybe[RedactionState] = UNSET
    redaction_method: Maybe[Text] = UNSET
    redacted_by: Maybe[Ref] = UNSET


class CandidateSource(RecordPart):
    """A source that may have the missing information."""

    kind: Id
    hint: Maybe[Text] = UNSET
    uri: Maybe[Uri] = UNSET
    ref: Maybe[Ref] = UNSET
    metadata: dict[str, Any] = field(default_factory=dict)


class MissingContext(Record, kw_only=True):
    """A known gap: the question, its severity and status, and what it blocks."""

    type = "missing_context"
    id_field = "missing_id"
    constraints = (
        RequiresAny(("resolution_refs",), "status", ("resolved",)),
        RequiresAny(("requested_from",), "status", ("requested",)),
    )

    missing_id: Id
    scope: Scope
    question: Annotated[str, Meta(min_length=1, max_length=100_000)]
    severity: Severity
    status: MissingStatus
    created_at: RecordTime
    needed_for: Maybe[Text] = UNSET
    candidate_sources: tuple[CandidateSource, ...] = ()
    blocked_actions: tuple[Id, ...] = ()
    requested_from: Maybe[Ref] = UNSET
    resolution_refs: Refs = ()


class ContextEvent(Record, kw_only=True):
    """An event about context."""

    type = "context_event"
    id_field = "event_id"

    event_id: Id
    event_type: EventClass
    source: Uri
    time: RecordTime
    subject: Maybe[Id] = UNSET
    context_id: Maybe[Id] = UNSET
    runtime_id: Maybe[Id] = UNSET
    session_id: Maybe[Id] = UNSET
    thread_id: Maybe[Id] = UNSET
    turn_id: Maybe[Id] = UNSET
    task_id: Maybe[Id] = UNSET
    run_id: Maybe[Id] = UNSET
    attempt_id: Maybe[Id] = UNSET
    step_id: Maybe[Id] = UNSET
    tool_call_id: Maybe[Id] = UNSET
    action_id: Maybe[Id] = UNSET
    evidence_id: Maybe[Id] = UNSET
    data: dict[str, Any] = field(default_factory=dict)


_by_type: dict[str, type[Record]] = {kind.type: kind for kind in Record.__subclasses__()}
RECORD_TYPES: dict[str, type[Record]] = {name: _by_type[name] for name in get_args(RecordType)}
_decoders = {name: msgspec.json.Decoder(kind) for name, kind in RECORD_TYPES.items()}
decode_item = msgspec.json.Decoder(ContextItem).decode


def decode_record(record_type: str, body: bytes | msgspec.Raw) -> Record:
    """Decode the JSON of a record; msgspec.ValidationError if it is not of this type."""
    return _decoders[record_type].decode(body)
