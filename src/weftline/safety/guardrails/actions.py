"""Names of actions that guardrails prohibit: an operation, its tool, and the action of a grouped tool."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.kernel.operation import Operation


def names_of(operation: Operation) -> tuple[str, ...]:
    """Return the names of an operation, such as board.write, shared_context and shared_context.write."""
    if operation.action is None:
        return operation.name, operation.tool
    return operation.name, operation.tool, f"{operation.tool}.{operation.action}"


class KnownActions:
    """The operations and tools of Weftline by name. All of them are loaded on first use."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._operations = operations

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for operation in self._operations for name in names_of(operation))

    def find(self, action: str) -> Operation | None:
        """Return the operation with this name; None for a tool of others, and for a tool with several actions."""
        return self._by_name.get(action)

    @cached_property
    def groups(self) -> frozenset[str]:
        """Return the first parts of the names."""
        return frozenset(name.partition(".")[0] for name in self.names)

    def names_for(self, action: str) -> tuple[str, ...]:
        """Return all names of an action; mcp__github__create_issue of a coding agent is github.create_issue too."""
        operation = self.find(action)
        if operation is not None:
            return names_of(operation)
        server, dots, tool = action.removeprefix("mcp__").partition("__")
        return (action, f"{server}.{tool}") if dots else (action,)

    @cached_property
    def _by_name(self) -> dict[str, Operation]:
        named: dict[str, Operation] = {}
        for operation in self._operations:
            unique = [name for name in names_of(operation) if operation.action is None or name != operation.tool]
            named |= dict.fromkeys(unique, operation)
        return named
