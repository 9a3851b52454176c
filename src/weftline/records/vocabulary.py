"""Enumerations of Agent Context, and the allowed lifecycle transitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypedDict, get_args

from msgspec import UNSET

from weftline.kernel.data_files import JsonFile
from weftline.kernel.errors import Conflict
from weftline.kernel.events import EventClass

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec


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


# Constraints between fields of a record, enforced when it is created and exported to its JSON Schema.


class RequiresAny(NamedTuple):
    """At least one of ``any_of`` is required: always, or only if ``field`` has one of ``values``."""

    any_of: tuple[str, ...]
    field: str | None = None
    values: tuple[str, ...] = ()

    def check(self, record: msgspec.Struct) -> None:
        if self.field is not None and getattr(record, self.field) not in self.values:
            return
        if not any(_is_set(getattr(record, name)) for name in self.any_of):
            raise ValueError(f"`{'` or `'.join(self.any_of)}` is required{self._when(record)}")

    def schema(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        needed: dict[str, Any] = {"anyOf": [_presence_schema(name, fields[name]) for name in self.any_of]}
        if self.field is None:
            return needed
        when = {"properties": {self.field: {"enum": list(self.values)}}, "required": [self.field]}
        return {"if": when, "then": needed}

    def _when(self, record: msgspec.Struct) -> str:
        return "" if self.field is None else f" where `{self.field}` is `{getattr(record, self.field)}`"


class Ordered(NamedTuple):
    """The second number is at least the first. JSON Schema cannot express this, so it gets a comment."""

    first: str
    second: str

    def check(self, record: msgspec.Struct) -> None:
        first, second = getattr(record, self.first), getattr(record, self.second)
        if first is not UNSET and second is not UNSET and second < first:
            raise ValueError(f"`{self.second}` is below `{self.first}`")

    def schema(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"$comment": f"`{self.second}` is not below `{self.first}`."}


Constraint = RequiresAny | Ordered


def _is_set(value: object) -> bool:
    return value is not UNSET and value != ()


def _presence_schema(name: str, field: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that requires a field; a list must not be empty."""
    if field.get("type") != "array":
        return {"required": [name]}
    return {"required": [name], "properties": {name: {"minItems": 1}}}


# Descriptions of record fields, published in the JSON Schemas. Keyed by name, as most names mean one thing.


class FieldDocs(TypedDict):
    """Descriptions by field, and by struct where a field means something else."""

    fields: dict[str, str]
    fields_by_type: dict[str, dict[str, str]]


field_docs = JsonFile("records/field_docs.json", FieldDocs)


def describe_field(kind: str, field: str) -> str:
    """Return the description of a field of a struct."""
    docs = field_docs()
    return docs["fields_by_type"].get(kind, {}).get(field) or docs["fields"][field]
