"""Command of each operation: ``weftline GROUP VERB``, or one of its own at the top level."""

from __future__ import annotations

from weftline.kernel.data_files import JsonFile

# Commands of each group with their summaries, in the order of the help text.
command_table = JsonFile("generated/commands.json", dict[str, dict[str, str]])

# Commands of their own, so that any word can follow: `weftline search list` searches for "list".
TOP_LEVEL = {
    "search": "search.query",
    "get-context": "search.get_context",
    "similar": "search.find_similar",
    "entities": "entity.list",
    "inbox": "message.inbox",
    "compact": "context.compact",
}
_TOP_LEVEL_OPERATIONS = {operation: command for command, operation in TOP_LEVEL.items()}


def is_top_level(operation: str) -> bool:
    """Return whether an operation has a command outside of its group."""
    return operation in _TOP_LEVEL_OPERATIONS


def command_name(operation: str) -> str:
    """Return the command of an operation, given by name, without ``weftline``."""
    return _TOP_LEVEL_OPERATIONS.get(operation) or operation.replace(".", " ").replace("_", "-")
