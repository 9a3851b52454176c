"""The public schemas of Agent Context for ten of the thirteen record types, as a table.

For each kind of value the fields of that kind: ``count`` is an integer from 0, brackets mean a list.
The schemas allow additional properties and define no enum except ``scope``. ``make evals`` checks the table.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

REQUIRED = "required"
PUBLIC: dict[str, dict[str, str]] = {
    "context_envelope": {
        REQUIRED: "schema_version context_id scope lifecycle created_at",
        "string": "schema_version context_id lifecycle",
        "scope": "scope",
        "time": "created_at",
        "object|string": "producer budget_ref",
        "[object|string]": "actor_refs runtime_refs surface_refs item_refs selection_refs assembly_refs injection_refs "
        "compaction_refs missing_context_refs policy_refs evidence_refs telemetry_refs",
        "object": "metadata",
    },
    "context_surface": {
        REQUIRED: "schema_version surface_id scope created_at",
        "string": "schema_version surface_id scope surface_kind",
        "time": "created_at expires_at",
        "object|string": "producer",
        "[object|string]": "available_source_refs available_item_refs capability_refs policy_refs",
        "[string]": "visibility",
        "object": "metadata",
    },
    "context_item": {
        REQUIRED: "schema_version item_id context_kind content_mode visibility",
        "string": "schema_version item_id context_kind title content_mode mime_type language trust_level sensitivity "
        "redaction_state",
        "any": "content",
        "count": "token_estimate byte_size",
        "number": "priority",
        "time": "created_at",
        "object|string": "content_ref freshness",
        "[object|string]": "source_refs",
        "[string]": "visibility",
        "object": "metadata",
    },
    "context_source_ref": {
        REQUIRED: "schema_version source_id uri source_kind",
        "string": "schema_version source_id uri source_kind digest authority license",
        "time": "retrieved_at modified_at",
        "array|object|string": "selector",
        "[object|string]": "provenance_refs",
        "[object]": "external_mappings",
        "object": "metadata",
    },
    "context_selection": {
        REQUIRED: "schema_version selection_id surface_id created_at",
        "string": "schema_version selection_id surface_id query intent rationale",
        "time": "created_at",
        "object|string": "selection_policy budget_ref actor_ref model_ref",
        "[object|string]": "candidate_item_refs selected_item_refs omitted_item_refs",
        "object": "ranking_signals metadata",
    },
    "context_budget": {
        REQUIRED: "schema_version budget_id target created_at",
        "string": "schema_version budget_id target overflow_strategy",
        "count": "max_tokens reserved_tokens max_bytes max_items actual_tokens actual_bytes actual_items",
        "time": "created_at",
        "[object]": "truncation_records window_segments",
        "object": "metadata",
    },
    "context_assembly": {
        REQUIRED: "schema_version assembly_id target ordered_blocks created_at",
        "string": "schema_version assembly_id target redaction_state",
        "time": "created_at",
        "object|string": "wrapping_policy separator_policy budget_ref",
        "[object]": "ordered_blocks",
        "[object|string]": "source_item_refs",
        "[string]": "visibility",
        "object": "metadata",
    },
    "context_compaction": {
        REQUIRED: "schema_version compaction_id scope source_item_refs method created_at",
        "string": "schema_version compaction_id scope method trigger replacement_policy",
        "time": "created_at",
        "object|string": "summary_ref validation",
        "[object|string]": "source_item_refs",
        "[string]": "loss_notes",
        "object": "coverage metadata",
    },
    "missing_context": {
        REQUIRED: "schema_version missing_id scope question severity status created_at",
        "string": "schema_version missing_id scope question needed_for severity status",
        "time": "created_at",
        "object|string": "requested_from",
        "[object|string]": "resolution_refs",
        "[object]": "candidate_sources",
        "[string]": "blocked_actions",
        "object": "metadata",
    },
    "context_event": {
        REQUIRED: "schema_version event_id event_type source time",
        "string": "schema_version event_id event_type source subject context_id runtime_id session_id thread_id "
        "turn_id task_id run_id attempt_id step_id tool_call_id action_id evidence_id",
        "time": "time",
        "[object|string]": "policy_refs evidence_refs telemetry_refs",
        "object": "data metadata",
    },
}
_KINDS: dict[str, dict[str, Any]] = {
    "any": {},
    "count": {"type": "integer", "minimum": 0},
    "time": {"type": "string", "format": "date-time"},
    "scope": {
        "type": "string",
        "enum": ["custom", "handoff", "review", "session", "task", "tool_invocation", "turn"],
    },
    "object": {"type": "object", "additionalProperties": True},
}


def public_schema(record_type: str) -> dict[str, Any]:
    """Return the table's row as a JSON Schema, with sorted lists and without an id."""
    fields = PUBLIC[record_type]
    return {
        "type": "object",
        "additionalProperties": True,
        "properties": {
            name: _schema(kind) for kind, names in fields.items() if kind != REQUIRED for name in names.split()
        },
        "required": sorted(fields[REQUIRED].split()),
    }


@cache
def public_validator(record_type: str) -> Draft202012Validator:
    return Draft202012Validator(public_schema(record_type), format_checker=FormatChecker())


def _schema(kind: str) -> dict[str, Any]:
    if kind.startswith("["):
        return {"type": "array", "items": {"type": _types(kind.strip("[]"))}}
    return _KINDS.get(kind, {"type": _types(kind)})


def _types(kinds: str) -> str | list[str]:
    return kinds.split("|") if "|" in kinds else kinds
