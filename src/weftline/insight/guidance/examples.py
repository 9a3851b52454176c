"""Valid example arguments for every operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Operation

_ABOUT_CALLER = frozenset({"memory.overview"})
_VALUES_BY_FIELD: dict[str, Any] = {
    "session_id": "session_a1b2c3d4e5f60718",
    "purpose": "Plan the release",
    "content": "The schema is ready for review.",
    "query": "database schema",
    "body": {"messages": [{"role": "user", "content": "Summarise the incident."}]},
    "question": "Which region may customer data be stored in?",
    "alert_id": "alert_0123456789abcdef0123456789ab",
    "digest_id": "alert_0123456789abcdef0123456789ab",
    "approval_id": "approval_0123456789abcdef0123456789ab",
    "missing_id": "missing_0123456789abcdef",
    "form": "user_question",
    "sender": "planner",
    "start_time": "2026-01-15T10:00:00Z",
    "end_time": "2026-01-15T11:00:00Z",
    "key": "current_phase",
    "keys": ["current_phase", "open_questions"],
    "value": "Implementation: two of five services done.",
    "label": "before_release",
    "from_label": "before_release",
    "message_id": 42,
    "visibility": "admin_only",
    "agent_id": "reviewer",
    "agent_type": "claude",
    "members": ["reviewer", "team:research"],
    "layer": "team:research",
    "tool": "github.create_issue",
    "team": "research",
    "description": "Finds and checks sources",
    "text": "Cite the source of every figure.",
    "context_id": "board:session_a1b2c3d4e5f60718",
    "from_context_id": "board:session_a1b2c3d4e5f60718@try_postgres",
    "branch": "try_postgres",
    "from_version": "12",
    "target_version": "before_release",
    "contains": "PostgreSQL",
    "review_id": "review_0123456789abcdef",
    "resolutions": {"current_phase": {"take": "theirs"}},
    "subject": "work_artifacts",
    "days": 90,
    "period": "day",
    "knowledge": [{"key": "billing/limit", "value": "100 calls a minute"}],
    "events": [{"event_id": "turn-42", "role": "user", "content": "Which database did we choose?"}],
    "task_description": "Write the release notes of version 2.",
    "compaction_id": "18aef3c2b1d09f44a1b2c3d4e5f6",
    "ids": ["turn-42"],
    "event_ids": ["turn-42"],
    "receipt_id": "receipt_0123456789abcdef",
    "recommendation_id": "analysis.tools.1f9a3c",
    "settings": {"compaction": {"strategy": "key_facts", "threshold": 0.5}},
    "usage": {"prompt_tokens": 5200, "completion_tokens": 180, "prompt_tokens_details": {"cached_tokens": 4096}},
    "from_agent_id": "planner",
    "with_agent_id": "planner",
    "categories": ["CONTEXT"],
    "key_id": "key_0123456789abcdef",
    "name": "release",
    "type": "context_item",
    "record_id": "board:session_a1b2c3d4e5f60718/current_phase/1.3",
    "lifecycle": "injected",
    "item_id": "board:session_a1b2c3d4e5f60718/current_phase/1.3",
    "state": "masked",
    "reason": "It names a customer.",
    "definition": {"description": "For partners", "who": ["*"], "sensitivity": "internal", "mask": ["secrets", "pii"]},
    "records": [
        {
            "schema_version": "0.1.0",
            "context_id": "turn-42",
            "scope": "turn",
            "lifecycle": "assembled",
            "created_at": "2026-01-15T10:00:00Z",
        }
    ],
    "bundle": '{"digest":"sha256:...","entry":{"kind":"header", ...}}',
    "texts": ["Refunds take ten days."],
    "model": "all-MiniLM-L6-v2-int8",
    "models": ["all-MiniLM-L6-v2-int8"],
    "domain": "handbook",
    "document_id": "guides/start.md",
    "item": "knowledge://handbook/guides/start.md",
    "version": 1,
    "documents": [{"document_id": "guides/start.md", "text": "# Start\n\nAsk for an account first."}],
    "url": "https://example.com/weftline-events",
    "webhook_id": "webhook_0123456789abcdef",
    "enabled": True,
    "kind": "folder",
    "source_id": "source_0123456789abcdef",
    "tools": ["shared_context.read", "get_messages"],
    "groups": [{"title": "Where the work stands", "keys": [{"key": "current_phase", "purpose": "the phase now"}]}],
}
# Arguments that an operation requires although no single field is required.
_EXTRA_ARGUMENTS: dict[str, dict[str, Any]] = {
    "search.get_context": {"query": "Which database did we choose, and why?", "max_tokens": 2000},
    "search.find_similar": {"text": "Invoices are written in the first week of a month."},
    "knowledge.add_source": {"folder": "/srv/knowledge/handbook", "watch": True},
    "knowledge.update_source": {"every_seconds": 3600},
    "context.push": {"if_version": 0},
    "knowledge.add_document": {"text": "# Start\n\nAsk for an account first."},
    "knowledge.update_domain": {"description": "How we work"},
    "bundle.export": {"session_id": "session_a1b2c3d4e5f60718"},
    "webhook.replay": {"dead": True},
    "budget.set": {"subject": "agent:reviewer", "tokens": 1_000_000},
    "budget.delete": {"subject": "agent:reviewer"},
    "window.route": {"to_types": ["review"]},
    "window.unroute": {"to_types": ["review"]},
    "agent.define": {"role": "Reviews what others wrote"},
    "records.set_lifecycle": {"record_id": "turn-42"},
    "tools.describe": {"name": "context_history.log"},
    "guardrail.check": {"arguments": {"title": "Release notes of version 2"}},
    "tools.register": {
        "tools": [
            {
                "name": "github.create_issue",
                "description": "Create an issue in a repository.",
                "input_schema": {"type": "object", "properties": {"title": {"type": "string"}}},
            }
        ]
    },
    "tools.remove": {"name": "github.create_issue"},
    "step.define": {"name": "review"},
    "step.remove": {"name": "review"},
    "missing.resolve": {"answer": "Frankfurt only."},
    "records.resolve": {
        "source_ref": {
            "schema_version": "0.1.0",
            "source_id": "limit",
            "uri": "board://release/goal",
            "source_kind": "board_entry",
            "selector": {"type": "text_quote", "exact": "Ship on Friday"},
        }
    },
}


def example_request(operation: Operation, actor: Actor) -> dict[str, Any]:
    """Return the required arguments of the operation's tool with example values."""
    required = [field.name for field in msgspec.structs.fields(operation.request) if field.required]
    arguments = {name: _VALUES_BY_FIELD[name] for name in required} | _EXTRA_ARGUMENTS.get(operation.name, {})
    if operation.name in _ABOUT_CALLER:
        arguments["agent_id"] = actor.principal_id
    return {"action": operation.action, **arguments} if operation.action else arguments
