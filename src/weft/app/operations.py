"""Every operation of the product, gathered from the capabilities."""

from __future__ import annotations

from types import ModuleType

import weft.capabilities.access.audit
import weft.capabilities.access.operations
import weft.capabilities.board.guidance
import weft.capabilities.board.hygiene
import weft.capabilities.board.inspection
import weft.capabilities.board.operations
import weft.capabilities.events.operations
import weft.capabilities.sessions.operations
from weft.kernel.operation import Operation, Registry

_MODULES: tuple[ModuleType, ...] = (
    weft.capabilities.board.operations,
    weft.capabilities.board.guidance,
    weft.capabilities.board.hygiene,
    weft.capabilities.sessions.operations,
    weft.capabilities.board.inspection,
    weft.capabilities.events.operations,
    weft.capabilities.access.operations,
    weft.capabilities.access.audit,
)


def all_operations() -> Registry:
    """Return the registry that every face is derived from."""
    registry = Registry()
    for module in _MODULES:
        for value in vars(module).values():
            if isinstance(value, Operation):
                registry.add(value)
    return registry
