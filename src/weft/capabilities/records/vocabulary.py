"""The closed vocabularies of Agent Context, and which lifecycle state may follow which."""

from __future__ import annotations

from typing import Final, Literal, get_args

from weft.kernel.errors import Conflict

SCHEMA_VERSION: Final = "0.1.0"

RecordType = Literal[
    "context_envelope",
    "context_surface",
    "context_item",
    "context_source_ref",
    "context_selection",
    "context_budget",
    "context_window",
    "context_assembly",
    "context_injection",
    "context_compaction",
    "context_summary",
    "missing_context",
    "context_event",
]
Scope = Literal["turn", "task", "session", "tool_invocation", "review", "handoff", "custom"]
Lifecycle = Literal[
    "draft", "available", "selected", "assembled", "injected", "compacted", "redacted", "expired", "archived"
]
ContentMode = Literal[
    "inline", "ref", "summary", "embedded_resource", "resource_link", "artifact_ref", "tool_result_ref", "opaque"
]
OmissionReason = Literal[
    "budget",
    "low_relevance",
    "stale_source",
    "policy_block",
    "duplicate_coverage",
    "unsupported_media",
    "privacy_risk",
    "missing_permission",
]
OverflowStrategy = Literal[
    "reject",
    "truncate_tail",
    "truncate_middle",
    "summarize_oldest",
    "summarize_low_priority",
    "defer_to_retrieval",
    "ask_for_choice",
    "policy_block",
    "custom",
]
InjectionPoint = Literal[
    "system_prompt",
    "developer_prompt",
    "message_history",
    "user_message_appendix",
    "tool_argument",
    "tool_visible_resource",
    "runtime_metadata",
    "ui_panel",
    "review_export",
    "peer_agent_message",
    "artifact_input",
    "custom",
]
CompactionMethod = Literal[
    "extractive_summary",
    "abstractive_summary",
    "structured_digest",
    "rolling_summary",
    "semantic_memory_update",
    "human_curated_summary",
    "provider_context_editing",
    "custom",
]
Severity = Literal["info", "low", "medium", "high", "blocking"]
MissingStatus = Literal["detected", "requested", "resolved"]
RedactionState = Literal["none", "masked", "removed", "summarized", "encrypted_ref", "policy_blocked", "unknown"]
EventClass = Literal[
    "context.surface.created",
    "context.surface.updated",
    "context.item.added",
    "context.item.updated",
    "context.item.removed",
    "context.selection.started",
    "context.selection.completed",
    "context.budget.applied",
    "context.assembly.created",
    "context.injection.applied",
    "context.compaction.started",
    "context.compaction.completed",
    "context.summary.created",
    "context.missing.detected",
    "context.missing.requested",
    "context.missing.resolved",
    "context.redaction.applied",
    "context.exported",
]
EVENT_CLASSES: frozenset[str] = frozenset(get_args(EventClass))

# The way of all context; from any state one may go on to a later one, and never back.
_WAY: tuple[Lifecycle, ...] = ("draft", "available", "selected", "assembled", "injected")
# What can befall a record wherever it is on that way, in the order in which it can befall it.
_FATES: tuple[Lifecycle, ...] = ("compacted", "redacted", "expired", "archived")


class IllegalTransition(Conflict):
    """A record cannot go from its lifecycle state to that one."""

    code = "ILLEGAL_TRANSITION"
    hint = "Choose one of the states in 'allowed'; to start over, record a new envelope that refers to this one."
    related = ("context_records",)


def following(state: Lifecycle) -> frozenset[Lifecycle]:
    """Return the states that may come next.

    What was redacted before anybody saw it may still be assembled and shown; what has expired is only kept.
    """
    if state in _WAY:
        return frozenset((*_WAY[_WAY.index(state) + 1 :], *_FATES))
    later = _FATES[_FATES.index(state) + 1 :]
    return frozenset(("assembled", "injected", "compacted", *later)) if state == "redacted" else frozenset(later)


def check_transition(state: Lifecycle, wanted: Lifecycle) -> None:
    allowed = following(state)
    if wanted not in allowed:
        raise IllegalTransition(
            f"lifecycle: '{state}' cannot become '{wanted}'.",
            lifecycle=state,
            requested=wanted,
            allowed=sorted(allowed),
        )
