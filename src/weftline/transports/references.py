"""How each interface names the operations that a hint refers to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.app.registry import all_operations
from weftline.kernel.data_files import operation_index
from weftline.kernel.errors import shown_path

if TYPE_CHECKING:
    from weftline.kernel.operation import Operation


def tool_reference(name: str) -> str | None:
    """Return the MCP tool of an operation, with its action if the tool has several."""
    operation = _find(name)
    if operation is None:
        return None
    return operation.tool if operation.action is None else f"{operation.tool} (action {operation.action})"


def route_reference(name: str) -> str | None:
    """Return the REST route of an operation."""
    operation = _find(name)
    return None if operation is None else f"`{operation.route.method} {shown_path(operation.route.path)}`"


def _find(name: str) -> Operation | None:
    return all_operations()[name] if name in operation_index() else None
