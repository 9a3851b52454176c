"""Enumerations of Agent Context, and the allowed lifecycle transitions."""

from __future__ import annotations

from typing import Final, Literal, get_args

from weftline.kernel.errors import Conflict
from weftline.kernel.events import EventClass

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
EVENT_CLASSES: frozenset[str] = frozenset(get_args(EventClass))

# States in order; a record moves forward only.
_MAIN_STATES: tuple[Lifecycle, ...] = ("draft", "available", "selected", "assembled", "injected")
# States that can follow any main state, in order.
_FINAL_STATES: tuple[Lifecycle, ...] = ("compacted", "redacted", "expired", "archived")


class IllegalTransition(Conflict):
    """The lifecycle does not allow this transition."""

    code = "ILLEGAL_TRANSITION"
    hint = "Choose one of the states in 'allowed'. To start over, add a new envelope that refers to this one."
    related = ("context_records",)


def next_states(state: Lifecycle) -> frozenset[Lifecycle]:
    """Return the allowed next states. A record redacted before it was shown can still be assembled and injected."""
    if state in _MAIN_STATES:
        return frozenset((*_MAIN_STATES[_MAIN_STATES.index(state) + 1 :], *_FINAL_STATES))
    later = _FINAL_STATES[_FINAL_STATES.index(state) + 1 :]
    return frozenset(("assembled", "injected", "compacted", *later)) if state == "redacted" else frozenset(later)


def check_transition(state: Lifecycle, requested: Lifecycle) -> None:
    allowed = next_states(state)
    if requested not in allowed:
        raise IllegalTransition(
            f"lifecycle: '{state}' cannot become '{requested}'.",
            lifecycle=state,
            requested=requested,
            allowed=sorted(allowed),
        )
