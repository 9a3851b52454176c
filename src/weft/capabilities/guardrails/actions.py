"""Names of actions that guardrails prohibit: an operation, its tool, and the action of a grouped tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.kernel.operation import Operation


def names_of(operation: Operation) -> tuple[str, ...]:
    """Return the names of an operation, such as board.write, shared_context and shared_context.write."""
    if operation.action is None:
        return operation.name, operation.tool
    return operation.name, operation.tool, f"{operation.tool}.{operation.action}"


def action_names(operations: Iterable[Operation]) -> frozenset[str]:
    return frozenset(name for operation in operations for name in names_of(operation))
