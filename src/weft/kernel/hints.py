"""Hints of errors: operations in the words of each interface, and guesses at mistyped names.

A hint names operations in backticks: "List them with `session.list`." That is the name of the method of the Python
client and of the operation in the OpenAPI document. Other interfaces replace it: MCP with tool and action, the command
line with the command.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.kernel.operation import Operation, Registry

# Above this number of names a list is more useful than a guess, and comparing them takes too long.
MAX_COMPARED = 200
_MAX_MATCHES = 5
_MIN_SIMILARITY = 0.5
_REFERENCE = re.compile(r"`([a-z_]+\.[a-z_]+)`")


def render_hint(hint: str, registry: Registry, name: Callable[[Operation], str]) -> str:
    """Return a hint in which operations are called by ``name``; what names no operation stays as it is."""
    if "`" not in hint:
        return hint
    known = {operation.name: operation for operation in registry}
    return _REFERENCE.sub(lambda found: name(known[found[1]]) if found[1] in known else found[0], hint)


def tool_reference(operation: Operation) -> str:
    """Return what agents call: the tool, with its action if it has several."""
    return operation.tool if operation.action is None else f"{operation.tool} (action {operation.action})"


def close_names(name: str, known: Sequence[str]) -> list[str]:
    """Return the known names that are most similar to a mistyped one, best first."""
    return get_close_matches(name, known, n=_MAX_MATCHES, cutoff=_MIN_SIMILARITY)
