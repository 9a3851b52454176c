"""Hints name operations; each interface renders them as its tools or commands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import weft.errors
from weft.app.registry import all_operations
from weft.kernel.errors import WeftError, render_hint, tool_reference

if TYPE_CHECKING:
    from weft.kernel.operation import Operation

REGISTRY = all_operations()
ERRORS = [kind for kind in vars(weft.errors).values() if isinstance(kind, type) and issubclass(kind, WeftError)]
TOOLS = set(REGISTRY.tools())


def _command(operation: Operation) -> str:
    return f"weft {operation.group} {operation.verb}"


def test_hints_for_agents_name_tools_and_actions() -> None:
    hint = "List them with `session.list`, then call `board.list_keys`."
    expected = "List them with list_sessions, then call shared_context (action list_keys)."
    assert render_hint(hint, REGISTRY, tool_reference) == expected


def test_each_interface_renders_operation_names() -> None:
    assert render_hint("Use `session.list`.", REGISTRY, _command) == "Use weft session list."


@pytest.mark.parametrize("hint", ["Use `this.thing` or `if_version`.", "Nothing to name."])
def test_text_without_operation_names_is_unchanged(hint: str) -> None:
    assert render_hint(hint, REGISTRY, tool_reference) == hint


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_operation_that_a_hint_names_exists(kind: type[WeftError]) -> None:
    known = {operation.name for operation in REGISTRY}
    assert set(re.findall(r"`([a-z_]+\.[a-z_]+)`", kind.hint)) <= known


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_no_hint_names_a_tool(kind: type[WeftError]) -> None:
    assert not TOOLS & set(re.findall(r"[a-z]+(?:_[a-z]+)+", kind.hint))
