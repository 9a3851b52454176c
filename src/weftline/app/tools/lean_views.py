"""Short views of the tools in the default list: what most callers need, in as few tokens as possible.

Fields and actions that are not shown still work; weftline_tools describes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.kernel.schema import ACTION, tool_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.kernel.operation import Operation

_NULL = {"type": "null"}
# Parts of a definition that a short one keeps.
_KEPT = ("type", "enum", "items")


class LeanTool(NamedTuple):
    """A short description, the fields to show with what to say about each, and the actions of a grouped tool.

    A text may be empty; a mapping is the whole schema of a field. ``resolved`` are actions that are no operations.
    """

    description: str
    fields: Mapping[str, str | Mapping[str, Any]]
    actions: Mapping[str, str] = {}
    resolved: tuple[str, ...] = ()


LEAN_TOOLS: Mapping[str, LeanTool] = {
    "assemble_context": LeanTool(
        "Build the prompt for your next model call within a token budget: rules, pins, your conversation, and what is "
        "relevant from memory, documents and the board.",
        {
            "session_id": "",
            "task_description": "What the model is to do next.",
            "token_budget": "",
            "model": "Model that gets the prompt.",
            "form": "",
        },
    ),
    "ingest_event": LeanTool(
        "Record turns of your conversation, tool calls and results, for assemble_context. Safe to repeat.",
        {
            "session_id": "",
            "events": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "event_id": {"type": "string", "description": "Unique; repeats are ignored."},
                        "role": {"type": "string", "enum": ["system", "user", "assistant", "tool"]},
                        "content": {"type": "string"},
                    },
                    "required": ["event_id"],
                },
            },
        },
    ),
    "shared_context": LeanTool(
        "The session's board: short facts, decisions and open questions that all its agents share. Look at the keys "
        "first, update a key instead of adding another. No raw data, no secrets.",
        {
            "session_id": "",
            "key": "a-z, 0-9 and _",
            "value": {"description": "Text or JSON."},
            "if_version": "Refuse if it changed meanwhile.",
        },
        {
            "list_keys": "keys and sizes",
            "read": "one key",
            "write": "key and value",
            "delete": "one key",
        },
    ),
    "add_message": LeanTool(
        "Send a message to the other agents of a session, or to one of them.",
        {
            "session_id": "",
            "content": "",
            "recipient_id": "Only this agent gets it.",
            "visibility": "private: only you; agent_only: your type.",
            "parent_message_id": "Message you reply to.",
        },
    ),
    "get_messages": LeanTool(
        "Read a session's messages in order, oldest first. To find messages about something use search.",
        {"session_id": "", "after_id": "Only newer ones: the last id you have seen.", "limit": ""},
    ),
    "inbox": LeanTool(
        "Messages addressed to you, from all sessions. They stay until you acknowledge them.",
        {"acknowledge": "Handles of those you have dealt with.", "sender": "Only from this agent."},
    ),
    "search": LeanTool(
        "Find what is known about something, by meaning and keywords: in documents, messages, boards, your memory and "
        "earlier sessions. The first choice for any question.",
        {
            "query": "A question or keywords.",
            "session_id": "Only this session, and documents.",
            "sources": "",
            "domains": "Only these knowledge domains.",
            "top_k": "",
            "low_confidence": "Also weaker matches.",
        },
    ),
    "set_memory": LeanTool(
        "Keep a private note under a key that you will look up again. Others cannot read it.",
        {"key": "", "value": "Any JSON.", "session_id": "Note of one session.", "expires_in": "Seconds."},
    ),
    "get_memory": LeanTool(
        "Read a private note by its exact key. Without the key use search.",
        {"key": "", "session_id": "Note of one session."},
    ),
    "push_context": LeanTool(
        "Save knowledge for later sessions: facts, preferences, lessons. It is found by meaning and used in prompts. "
        "All entries or none.",
        {
            "knowledge": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"key": {"type": "string"}, "value": {"description": "Any JSON."}},
                    "required": ["key"],
                },
            },
            "session_id": "",
            "if_version": "Version you know; needed to replace a key.",
        },
    ),
    "create_session": LeanTool(
        "Create a session: a workspace with a board and messages for several agents.",
        {"purpose": "", "session_id": "Your own id for it.", "members": "Who else may see it."},
    ),
    "get_session_overview": LeanTool(
        "Where a session stands: state, latest messages, figures.",
        {"session_id": ""},
    ),
    "define_agent": LeanTool(
        "Set role, system prompt and guardrails of an agent below you.",
        {"agent_id": "", "role": "", "system_prompt": "", "guardrails": ""},
    ),
    "weftline_tools": LeanTool(
        "All other tools: history, snapshots and rollback, documents, windows, records, exact message search, events, "
        "access and more. search finds tools for a task, describe returns a tool's fields, call runs it.",
        {
            "query": "For search: what you want to do.",
            "name": "For describe and call: a name from search.",
            "arguments": {"type": "object", "description": "For call."},
        },
        {"search": "", "describe": ""},
        ("call",),
    ),
}


def lean_schema(lean: LeanTool, operations: Sequence[Operation], *, without: frozenset[str]) -> dict[str, Any]:
    """Return the input schema of a short view, for these operations of the tool; ``without`` names fields to omit."""
    whole = tool_schema(operations, without=without)
    known = whole["properties"]
    shown = {
        name: dict(text) if not isinstance(text, str) else _short(known[name], text)
        for name, text in lean.fields.items()
        if name in known or not isinstance(text, str)
    }
    if lean.actions:
        shown = {ACTION: _action_field(lean, operations), **shown}
    return {
        "type": "object",
        "properties": shown,
        "required": [name for name in shown if name in whole.get("required", ())],
    }


def _action_field(lean: LeanTool, operations: Sequence[Operation]) -> dict[str, Any]:
    offered = [*(str(operation.action) for operation in operations), *lean.resolved]
    texts = "; ".join(f"{action}: {lean.actions[action]}" for action in offered if lean.actions.get(action))
    return {"type": "string", "enum": offered, **({"description": texts} if texts else {})}


def _short(definition: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return a definition without bounds, defaults and null, with a short description."""
    chosen = next((part for part in definition.get("anyOf", ()) if part != _NULL), definition)
    kept = {name: chosen[name] for name in _KEPT if name in chosen}
    if "enum" in kept:
        kept["type"] = "string"
    if "items" in kept:
        kept["items"] = _short(kept["items"], "")
    return {**kept, "description": text} if text else kept
