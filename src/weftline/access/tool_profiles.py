"""Tool profiles: which tools an MCP client sees listed. A tool that is not listed still answers when it is called.

Steps (``steps``) are the access rule: what is not in a step is refused.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from weftline.kernel.errors import Rejected

DEFAULT, FULL = "default", "full"
# The tools most agents need, in the order of the list; shown with a short description and their main fields.
DEFAULT_TOOLS = (
    "assemble_context",
    "ingest_event",
    "shared_context",
    "add_message",
    "get_messages",
    "inbox",
    "search",
    "set_memory",
    "get_memory",
    "push_context",
    "create_session",
    "get_session_overview",
    "define_agent",
    "weftline_tools",
)
# Groups of tools, by name; every tool is in at least one.
GROUPS: dict[str, tuple[str, ...]] = {
    "collaboration": (
        "create_session",
        "get_session",
        "list_sessions",
        "add_message",
        "get_messages",
        "set_message_visibility",
        "search_context",
        "search_by_sender",
        "search_by_timerange",
        "set_memory",
        "get_memory",
        "list_memory",
        "delete_memory",
        "authenticate_agent",
        "refresh_token",
        "get_audit_log",
        "get_performance_metrics",
        "get_usage_guidance",
    ),
    "assembly": ("assemble_context", "ingest_event", "emit_metrics", "receipts", "get_context"),
    "board": ("shared_context", "get_board_guidance", "define_conventions", "list_conventions", "check_board"),
    "sessions": (
        "create_session",
        "get_session",
        "list_sessions",
        "get_session_overview",
        "session_members",
        "archive_session",
        "delete_session",
        "inspect_session",
    ),
    "messages": (
        "add_message",
        "get_messages",
        "inbox",
        "list_agents",
        "search_context",
        "search_by_sender",
        "search_by_timerange",
        "set_message_visibility",
        "inspect_messages",
    ),
    "search": ("search", "find_similar", "get_context", "list_entities"),
    "memory": (
        "set_memory",
        "get_memory",
        "list_memory",
        "delete_memory",
        "get_memory_overview",
        "inspect_memory",
        "push_context",
        "pull_context",
        "read_context",
        "get_context_status",
        "copy_context",
    ),
    "windows": ("ingest_event", "context_window", "compact_context", "compactions"),
    "history": ("context_history", "rollback_context"),
    "knowledge": ("knowledge",),
    "records": ("context_records", "missing_context", "export_context", "import_context", "export_policies"),
    "events": ("read_events", "webhooks"),
    "agents": (
        "define_agent",
        "read_definition",
        "context_layers",
        "guardrails",
        "teams",
        "create_agent",
        "list_agents",
        "update_agent",
    ),
    "access": (
        "authenticate_agent",
        "refresh_token",
        "revoke_token",
        "create_api_key",
        "list_api_keys",
        "rotate_key",
        "revoke_key",
        "rotate_signing_key",
    ),
    "admin": (
        "create_agent",
        "list_agents",
        "update_agent",
        "create_api_key",
        "list_api_keys",
        "rotate_key",
        "revoke_key",
        "rotate_signing_key",
        "get_audit_log",
        "get_performance_metrics",
        "inspect_session",
        "inspect_messages",
        "inspect_memory",
        "set_message_visibility",
        "define_conventions",
        "import_context",
        "export_policies",
        "trust",
        "webhooks",
    ),
    "insight": ("usage", "alerts", "budgets", "advice"),
    "trust": ("trust",),
    "pins": ("pins",),
    "approvals": ("approvals",),
    "discovery": ("weftline_tools", "get_usage_guidance", "tool_registry", "steps"),
}
PROFILES = (DEFAULT, FULL, *GROUPS)

ToolsField = Annotated[
    Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None,
    msgspec.Meta(
        description="Tool profile: the tools that MCP clients with this key see listed, such as full or "
        "board,messages. Default: the server's setting.",
    ),
]


class UnknownToolProfile(Rejected):
    """No tool profile has this name."""

    code = "UNKNOWN_TOOL_PROFILE"
    hint = f"Use one of these names, or several separated by commas: {', '.join(PROFILES)}."


class ToolProfile(NamedTuple):
    """Tools to list: ``lean`` ones in a short form, ``whole`` ones with all fields; ``everything`` lists every tool."""

    everything: bool
    lean: frozenset[str]
    whole: frozenset[str]


def parse_tool_profile(names: str) -> ToolProfile:
    """Return the profile of a name, or of several separated by commas."""
    given = [name.strip() for name in names.split(",")]
    unknown = next((name for name in given if name not in PROFILES), None)
    if unknown is not None:
        raise UnknownToolProfile(f"There is no tool profile named '{unknown[:100]}'.", profiles=list(PROFILES))
    return ToolProfile(
        everything=FULL in given,
        lean=frozenset(DEFAULT_TOOLS if DEFAULT in given else ()),
        whole=frozenset(tool for name in given for tool in GROUPS.get(name, ())),
    )
