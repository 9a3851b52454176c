"""Operations as MCP tools: what a caller sees listed, full descriptions, and the operation of a tool call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from weftline.access.steps import is_in_step, parse_tool_profile
from weftline.app.dispatch import LINE_FIELDS, authorise, may_use, works_in_session
from weftline.kernel.data_files import JsonFile
from weftline.kernel.errors import InvalidInput, UnknownOperation, close_names
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Audience, Effect
from weftline.kernel.schema import ACTION, request_schema, standalone, tool_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weftline.kernel.identity import Actor
    from weftline.kernel.operation import Operation, Registry


# Short views of the tools in the default list: what most callers need, in as few tokens as possible.
#
# Fields and actions that are not shown still work; weftline_tools describes them.

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


# The tool that finds, describes and calls all others; ``call`` is no operation: it resolves to the one that is called.
WEFTLINE_TOOLS, CALL = "weftline_tools", "call"
WEFTLINE_TOOLS_CALL = f"{WEFTLINE_TOOLS}.{CALL}"
_CALL_FIELDS = {ACTION, "name", "arguments"}
_SESSION = "session_id"
# Steps may name any set of actions, so there may be very many views.
_MAX_VIEWS = 4_096


@dataclass(frozen=True, slots=True)
class ToolView:
    """Tool as one caller sees it."""

    name: str
    description: str
    input_schema: dict[str, Any]
    read_only: bool

    def as_json(self) -> dict[str, Any]:
        """Return what a client passes on to its model."""
        return {"name": self.name, "description": self.description, "inputSchema": self.input_schema}


class ToolEntry(NamedTuple):
    """A tool, or an action of a grouped tool, as weftline_tools finds and describes it."""

    name: str
    operation: Operation

    @property
    def summary(self) -> str:
        return self.operation.summary.replace("``", "`")


class _ViewKey(NamedTuple):
    """What the view of a tool depends on: the operations the caller may use, its length, and the endpoint."""

    tool: str
    allowed: tuple[str, ...]
    lean: bool
    in_session: bool


class Toolbox:
    """All tools. Lists depend on the caller, its step and session and the profile; views are cached."""

    def __init__(self, registry: Registry, profile: str = "default") -> None:
        self._registry = registry
        self._profile = profile
        self._views: dict[_ViewKey, ToolView] = {}
        parse_tool_profile(profile)

    @cached_property
    def _tools(self) -> dict[str, list[Operation]]:
        return self._registry.tools()

    def listed(self, actor: Actor, profile: str | None = None, *, in_session: bool = False) -> list[ToolView]:
        """Return the tools to list: those of the endpoint's profile, or else of the caller's key, or of the server.

        Inside a session they need no session_id.
        """
        if actor.step is not None:
            return self._listed_in_step(actor, in_session=in_session)
        chosen = parse_tool_profile(profile or actor.tools or self._profile)
        views = []
        for tool, operations in self._tools.items():
            lean = tool in chosen.lean and not chosen.everything and tool not in chosen.whole
            if lean or chosen.everything or tool in chosen.whole:
                allowed = tuple(operation.name for operation in operations if may_use(operation, actor))
                views.append(self._view(_ViewKey(tool, allowed, lean, in_session)))
        return [view for view in views if view is not None]

    def _listed_in_step(self, actor: Actor, *, in_session: bool) -> list[ToolView]:
        """Return the tools of the caller's step, with every action that it may use: what is hidden is forbidden."""
        views = []
        for tool, operations in self._tools.items():
            allowed = [each for each in operations if is_in_step(each, actor) and may_use(each, actor)]
            actions = lean_tools()[tool].actions if tool in lean_tools() else None
            lean = actions is not None and all(each.action is None or each.action in actions for each in allowed)
            views.append(self._view(_ViewKey(tool, tuple(each.name for each in allowed), lean, in_session)))
        return [view for view in views if view is not None]

    def listed_without_credential(self) -> list[ToolView]:
        """Return the tools for callers that have no credential yet."""
        tools = self._tools.values()
        first = [operations for operations in tools if operations[0].audience is Audience.ANONYMOUS]
        return [_whole_view(operations, in_session=False) for operations in first]

    def entries(self, actor: Actor) -> Iterator[ToolEntry]:
        """Return every tool and action that the caller may use, except weftline_tools itself."""
        return (entry for entry in self.all_entries() if may_use(entry.operation, actor))

    def all_entries(self) -> list[ToolEntry]:
        """Return every tool and action except weftline_tools itself."""
        return [
            ToolEntry(entry_name(operation), operation)
            for tool, operations in self._tools.items()
            for operation in operations
            if tool != WEFTLINE_TOOLS
        ]

    def own_names(self) -> frozenset[str]:
        """Return the names of all tools, and of their actions as TOOL.ACTION."""
        operations = [each for operations in self._tools.values() for each in operations]
        return frozenset({*self._tools, *map(entry_name, operations), WEFTLINE_TOOLS_CALL})

    def describe(self, actor: Actor, name: str, *, in_session: bool = False) -> tuple[ToolView, dict[str, Any] | None]:
        """Return the full view of a tool or of one action, and its output schema if it has only one.

        Raises the error of a call if the caller may not use it.
        """
        tool, _, action = name.partition(".")
        operations = self._operations_of(tool)
        if action:
            operations = [_by_action(operations, {ACTION: action})]
        allowed = [operation for operation in operations if may_use(operation, actor)]
        if not allowed:
            authorise(operations[0], actor)
            raise UnknownOperation(f"The tool '{name[:100]}' is not for callers with this kind of credential.")
        view = (_action_view if action else _whole_view)(allowed, in_session=in_session)
        return view, standalone(allowed[0].response) if len(operations) == 1 else None

    def resolve(self, name: str, arguments: Mapping[str, Any]) -> tuple[Operation, Mapping[str, Any]]:
        """Return the operation of a tool call and its request; a call through weftline_tools is the inner one."""
        tool, given = called_tool(name, arguments)
        operation = _by_action(self._operations_of(tool), given)
        raw = {key: value for key, value in given.items() if key != ACTION} if operation.action else given
        return operation, raw

    def _operations_of(self, tool: str) -> list[Operation]:
        operations = self._tools.get(tool)
        if operations is None:
            near = close_names(tool, list(self._tools))
            hint = f"Did you mean {' or '.join(near)}? " if near else ""
            raise UnknownOperation(
                f"There is no tool named '{tool[:100]}'.", hint=f"{hint}weftline_tools finds the tool for a task."
            )
        return operations

    def _view(self, key: _ViewKey) -> ToolView | None:
        if not key.allowed:
            return None
        view = self._views.get(key)
        if view is None:
            allowed = [operation for operation in self._tools[key.tool] if operation.name in key.allowed]
            build = _lean_view if key.lean or key.tool == WEFTLINE_TOOLS else _whole_view
            if len(self._views) >= _MAX_VIEWS:
                self._views.clear()
            view = self._views[key] = build(allowed, in_session=key.in_session)
        return view


def entry_name(operation: Operation) -> str:
    """Return the name of an operation in weftline_tools: its tool, with the action if the tool has several."""
    return operation.tool if operation.action is None else f"{operation.tool}.{operation.action}"


def called_tool(name: str, arguments: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the tool that a call runs, and its arguments: through weftline_tools, those of the inner call."""
    if name != WEFTLINE_TOOLS or arguments.get(ACTION) != CALL:
        return name, arguments
    inner, given = arguments.get("name"), arguments.get("arguments", {})
    if not isinstance(inner, str) or inner.partition(".")[0] == WEFTLINE_TOOLS:
        raise InvalidInput("name: required, the name of another tool, such as list_memory", field="name")
    misplaced = sorted(set(arguments) - _CALL_FIELDS)
    if misplaced or not isinstance(given, dict):
        raise InvalidInput("arguments: put the tool's arguments into this object", field="arguments")
    tool, _, action = inner.partition(".")
    return tool, {**given, ACTION: action} if action else given


def _by_action(operations: Sequence[Operation], arguments: Mapping[str, Any]) -> Operation:
    if operations[0].action is None:
        return operations[0]
    action = arguments.get(ACTION)
    found = next((operation for operation in operations if operation.action == action), None)
    if found is None:
        actions = [operation.action for operation in operations]
        actions += [CALL] if operations[0].tool == WEFTLINE_TOOLS else []
        problem = "is required" if ACTION not in arguments else f"'{str(action)[:60]}' is not one of them"
        raise InvalidInput(
            f"action: {problem}; use one of {', '.join(map(str, actions))}", field=ACTION, actions=actions
        )
    return found


def _lean_view(operations: Sequence[Operation], *, in_session: bool) -> ToolView:
    """Return a short view; grouped tools show their main actions."""
    tool = operations[0].tool
    lean = lean_tools()[tool]
    shown = [operation for operation in operations if operation.action is None or operation.action in lean.actions]
    return ToolView(
        name=tool,
        description=lean.description,
        input_schema=lean_schema(lean, shown, without=_filled_in(shown, in_session=in_session)),
        read_only=tool != WEFTLINE_TOOLS and all(map(_only_reads, shown)),
    )


def _whole_view(operations: Sequence[Operation], *, in_session: bool) -> ToolView:
    """Return a tool with all its allowed actions and fields."""
    first = operations[0]
    grouped = first.action is not None
    description = _grouped_help(first.tool) if grouped else first.help.replace("``", "`")
    return ToolView(
        name=first.tool,
        description=_with_own_board(description, operations, in_session=in_session),
        input_schema=tool_schema(operations, without=_filled_in(operations, in_session=in_session)),
        read_only=all(map(_only_reads, operations)),
    )


def _action_view(operations: Sequence[Operation], *, in_session: bool) -> ToolView:
    """Return one action of a grouped tool with its own fields."""
    (operation,) = operations
    return ToolView(
        name=entry_name(operation),
        description=_with_own_board(operation.help.replace("``", "`"), operations, in_session=in_session),
        input_schema=request_schema(operation, without=_filled_in(operations, in_session=in_session)),
        read_only=_only_reads(operation),
    )


def _with_own_board(description: str, operations: Sequence[Operation], *, in_session: bool) -> str:
    names_lines = any(field in LINE_FIELDS for o in operations for field in o.request.__struct_fields__)
    return f"{description} {_OWN_BOARD}" if in_session and names_lines else description


def _filled_in(operations: Sequence[Operation], *, in_session: bool) -> frozenset[str]:
    """Return the fields that the endpoint of a session fills in."""
    naming = [operation for operation in operations if _SESSION in operation.request.__struct_fields__]
    return frozenset({_SESSION} if in_session and all(map(works_in_session, naming)) else ())


def _only_reads(operation: Operation) -> bool:
    """Return whether an operation changes nothing; with its own transactions, only if it is not audited."""
    if operation.effect is Effect.OWN_TRANSACTIONS:
        return not operation.audited and operation.permission is not Permission.WRITE
    return operation.effect is not Effect.WRITE


_OWN_BOARD = "The context_id of your session's board is board, or board@BRANCH for a branch of it."
# Descriptions of tools with several operations; others use the help of their operation. They name no action and no
# other tool, since not every caller may use it; the field ``action`` says what each allowed action does.
grouped_help = JsonFile("app/tools/grouped_help.json", dict[str, str])


def _grouped_help(tool: str) -> str:
    return lean_tools()[tool].description if tool == WEFTLINE_TOOLS else grouped_help()[tool]
