"""The thirteen record types of Agent Context, each with every field that the specification names.

A record says what happened by reference: content is named by its digest, policy, evidence, artifacts and telemetry by
links. What is not said is left out, never null.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, field

from weft.capabilities.records.constraints import InOrder, Needs
from weft.capabilities.records.refs import (
    Count,
    Digest,
    Id,
    Mapping,
    Maybe,
    Moment,
    Place,
    RecordPart,
    Ref,
    Refs,
    Selector,
    Text,
    Uri,
)
from weft.capabilities.records.vocabulary import (
    CompactionMethod,
    ContentMode,
    EventClass,
    InjectionPoint,
    Lifecycle,
    MissingStatus,
    OmissionReason,
    OverflowStrategy,
    RecordType,
    RedactionState,
    Scope,
    Severity,
)

Visibility = tuple[Id, ...]
Policy = Text | dict[str, Any]


class Record(RecordPart):
    """What every record can say: which schema it follows, what decided, proves and traces it, what it is elsewhere."""

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
    """What made a record."""

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
    created_at: Moment
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
    """Where something comes from: which source, which part of it, and what it said."""

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
    retrieved_at: Maybe[Moment] = UNSET
    modified_at: Maybe[Moment] = UNSET


class ContextSurface(Record, kw_only=True):
    """What context is available in a scope before anything is selected."""

    type = "context_surface"
    id_field = "surface_id"

    surface_id: Id
    scope: Scope
    created_at: Moment
    surface_kind: Maybe[Id] = UNSET
    producer: Maybe[Id | Producer] = UNSET
    available_source_refs: Refs = ()
    available_item_refs: Refs = ()
    capability_refs: Refs = ()
    visibility: Visibility = ()
    expires_at: Maybe[Moment] = UNSET


class Freshness(RecordPart):
    """How current something is."""

    as_of: Maybe[Moment] = UNSET
    expires_at: Maybe[Moment] = UNSET
    max_age_seconds: Maybe[Count] = UNSET
    state: Maybe[Id] = UNSET
    metadata: dict[str, Any] = field(default_factory=dict)


class ContextItem(Record, kw_only=True):
    """A unit of context: what it says, or where that is to be found."""

    type = "context_item"
    id_field = "item_id"
    rules = (
        Needs(("content",), "content_mode", ("inline", "embedded_resource")),
        Needs(("content", "content_ref"), "content_mode", ("summary",)),
        Needs(("content_ref",), "content_mode", ("ref", "resource_link", "artifact_ref", "tool_result_ref")),
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
    created_at: Maybe[Moment] = UNSET


class Omission(RecordPart):
    """An item that was available and not selected, and why."""

    item_ref: Ref
    reason: OmissionReason
    detail: Maybe[Text] = UNSET
    metadata: dict[str, Any] = field(default_factory=dict)


class ContextSelection(Record, kw_only=True):
    """What could be chosen, what was, what was not and why."""

    type = "context_selection"
    id_field = "selection_id"

    selection_id: Id
    surface_id: Id
    created_at: Moment
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
    """What was cut from an item, and how much."""

    item_ref: Ref
    strategy: OverflowStrategy
    original_tokens: Maybe[Count] = UNSET
    kept_tokens: Maybe[Count] = UNSET
    reason: Maybe[Text] = UNSET
    metadata: dict[str, Any] = field(default_factory=dict)


class WindowSegment(RecordPart):
    """A part of a window: what it is for, how much is kept for it, how much it takes."""

    name: Id
    reserved_tokens: Maybe[Count] = UNSET
    max_tokens: Maybe[Count] = UNSET
    actual_tokens: Maybe[Count] = UNSET
    item_refs: Refs = ()
    metadata: dict[str, Any] = field(default_factory=dict)


class ContextBudget(Record, kw_only=True):
    """The limits that were set, and what was used of them."""

    type = "context_budget"
    id_field = "budget_id"
    rules = (InOrder("reserved_tokens", "max_tokens"),)

    budget_id: Id
    target: Id
    created_at: Moment
    max_tokens: Maybe[Count] = UNSET
    reserved_tokens: Maybe[Count] = UNSET
    max_bytes: Maybe[Count] = UNSET
    max_items: Maybe[Count] = UNSET
    max_seconds: Maybe[Place] = UNSET
    visibility: Visibility = ()
    actual_tokens: Maybe[Count] = UNSET
    actual_bytes: Maybe[Count] = UNSET
    actual_items: Maybe[Count] = UNSET
    actual_seconds: Maybe[Place] = UNSET
    overflow_strategy: Maybe[OverflowStrategy] = UNSET
    truncation_records: tuple[Truncation, ...] = ()
    window_segments: tuple[WindowSegment, ...] = ()


class ContextWindow(Record, kw_only=True):
    """How a target's window is laid out, in order, and what is kept free in it."""

    type = "context_window"
    id_field = "window_id"
    rules = (InOrder("reserved_tokens", "max_tokens"),)

    window_id: Id
    target: Id
    segments: tuple[WindowSegment, ...]
    created_at: Moment
    max_tokens: Maybe[Count] = UNSET
    reserved_tokens: Maybe[Count] = UNSET
    budget_ref: Maybe[Ref] = UNSET
    model_ref: Maybe[Ref] = UNSET


class Block(RecordPart):
    """A piece of what a target is shown."""

    rules = (Needs(("content", "content_ref", "item_refs")),)

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
    """Ordered blocks, prepared for a target; whether it ever saw them is told by an injection."""

    type = "context_assembly"
    id_field = "assembly_id"

    assembly_id: Id
    target: Id
    ordered_blocks: tuple[Block, ...]
    created_at: Moment
    wrapping_policy: Maybe[Policy] = UNSET
    separator_policy: Maybe[Policy] = UNSET
    visibility: Visibility = ()
    budget_ref: Maybe[Ref] = UNSET
    source_item_refs: Refs = ()
    redaction_state: Maybe[RedactionState] = UNSET
    redaction_method: Maybe[Text] = UNSET
    redacted_by: Maybe[Ref] = UNSET


class ContextInjection(Record, kw_only=True):
    """Where an assembly became visible, and the hash of what was seen."""

    type = "context_injection"
    id_field = "injection_id"

    injection_id: Id
    assembly_id: Id
    target: Id
    injection_point: InjectionPoint
    created_at: Moment
    native_id: Maybe[Id] = UNSET
    visibility: Visibility = ()
    final_ref: Maybe[Ref] = UNSET
    hash: Maybe[Digest] = UNSET


class Coverage(RecordPart):
    """How much of its sources something stands for."""

    items_covered: Maybe[Count] = UNSET
    items_total: Maybe[Count] = UNSET
    estimated_tokens_before: Maybe[Count] = UNSET
    estimated_tokens_after: Maybe[Count] = UNSET
    uncovered_item_refs: Refs = ()
    metadata: dict[str, Any] = field(default_factory=dict)


class Validation(RecordPart):
    """Whether something was checked, by whom and with what outcome."""

    status: Id
    reviewer: Maybe[Ref] = UNSET
    checked_at: Maybe[Moment] = UNSET
    notes: tuple[Text, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)


class ContextCompaction(Record, kw_only=True):
    """What was replaced by something shorter, why, and what that lost. The sources stay where they are."""

    type = "context_compaction"
    id_field = "compaction_id"

    compaction_id: Id
    scope: Scope
    source_item_refs: Annotated[Refs, Meta(min_length=1)]
    method: CompactionMethod
    created_at: Moment
    summary_ref: Maybe[Ref] = UNSET
    trigger: Maybe[Text] = UNSET
    coverage: Maybe[Coverage] = UNSET
    loss_notes: tuple[Text, ...] = ()
    validation: Maybe[Id | Validation] = UNSET
    replacement_policy: Maybe[Text] = UNSET


class ContextSummary(Record, kw_only=True):
    """What stands for more than it says: what it covers, what it leaves out, how it is made anew."""

    type = "context_summary"
    id_field = "summary_id"
    rules = (Needs(("content", "content_ref")),)

    summary_id: Id
    created_at: Moment
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
    """Where something that is missing may be found."""

    kind: Id
    hint: Maybe[Text] = UNSET
    uri: Maybe[Uri] = UNSET
    ref: Maybe[Ref] = UNSET
    metadata: dict[str, Any] = field(default_factory=dict)


class MissingContext(Record, kw_only=True):
    """A known gap: what is not known, what for, how bad that is, and what became of it."""

    type = "missing_context"
    id_field = "missing_id"
    rules = (Needs(("resolution_refs",), "status", ("resolved",)), Needs(("requested_from",), "status", ("requested",)))

    missing_id: Id
    scope: Scope
    question: Annotated[str, Meta(min_length=1, max_length=100_000)]
    severity: Severity
    status: MissingStatus
    created_at: Moment
    needed_for: Maybe[Text] = UNSET
    candidate_sources: tuple[CandidateSource, ...] = ()
    blocked_actions: tuple[Id, ...] = ()
    requested_from: Maybe[Ref] = UNSET
    resolution_refs: Refs = ()


class ContextEvent(Record, kw_only=True):
    """Something happened to context."""

    type = "context_event"
    id_field = "event_id"

    event_id: Id
    event_type: EventClass
    source: Uri
    time: Moment
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


RECORD_TYPES: dict[str, type[Record]] = {
    kind.type: kind
    for kind in (
        ContextEnvelope,
        ContextSurface,
        ContextItem,
        ContextSourceRef,
        ContextSelection,
        ContextBudget,
        ContextWindow,
        ContextAssembly,
        ContextInjection,
        ContextCompaction,
        ContextSummary,
        MissingContext,
        ContextEvent,
    )
}
