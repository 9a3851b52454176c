"""Short views of the tools in the default list: what most callers need, in as few tokens as possible.

Fields and actions that are not shown still work; weftline_tools describes them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.kernel.data_files import JsonFile
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
    resolved: Sequence[str] = ()


_lean_tools = JsonFile("app/tools/lean_tools.json", dict[str, dict[str, Any]])


@cache
def lean_tools() -> dict[str, LeanTool]:
    """Return the short view of each tool of the default list."""
    return {name: LeanTool(**view) for name, view in _lean_tools().items()}


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
