"""Hints name operations, and each interface renders them as what its callers can call."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from weftline.app.registry import all_operations
from weftline.client._client import Client
from weftline.client._wire import _template
from weftline.kernel.errors import WeftlineError, method_reference, render_hint
from weftline.transports.references import route_reference, tool_reference

if TYPE_CHECKING:
    from collections.abc import Callable

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from error_tree import all_errors

REGISTRY = all_operations()
ERRORS = all_errors()
TOOLS = set(REGISTRY.tools())
SOURCE = Path(__file__).parents[2] / "src" / "weftline"
# Operations in backticks anywhere in the source: also hints that are given where an error is raised.
NAMED = re.compile(r"(?<!`)`([a-z_]+\.[a-z_]+)`(?!`)")


def named_in_source() -> set[str]:
    return {
        name
        for path in SOURCE.rglob("*.py")
        if path != SOURCE / "kernel" / "errors.py"
        for line in path.read_text("utf-8").splitlines()
        for name in NAMED.findall(line)
    }


HINTS = [
    *(error.hint for error in ERRORS),
    *sorted({f"Use `{name}`." for name in named_in_source()} | {f"Use `{each.name}`." for each in REGISTRY}),
]


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (tool_reference, "List them with list_sessions, then call shared_context (action list_keys)."),
        (route_reference, "List them with `GET /v1/sessions`, then call `GET /v1/sessions/{session_id}/context`."),
        (method_reference, "List them with weftline.session.list(), then call weftline.board.list_keys()."),
    ],
)
def test_each_interface_renders_operation_names(reference: Callable[[str], str | None], expected: str) -> None:
    assert render_hint("List them with `session.list`, then call `board.list_keys`.", reference) == expected


@pytest.mark.parametrize("hint", ["Use `this.thing` or `if_version`.", "Nothing to name."])
def test_text_without_operation_names_is_unchanged(hint: str) -> None:
    assert render_hint(hint, tool_reference) == hint
    assert render_hint(hint, route_reference) == hint


def test_a_raised_error_names_methods_and_keeps_its_template() -> None:
    error = WeftlineError("No.", hint="Use `bundle.import`.")
    assert error.hint == "Use weftline.bundle.import_()."
    assert error.body("").suggestions == [error.hint]
    assert error.body("", tool_reference).suggestions == ["Use import_context."]


def test_every_operation_that_a_hint_names_exists() -> None:
    known = {operation.name for operation in REGISTRY}
    assert named_in_source() <= known
    for error in ERRORS:
        assert set(re.findall(r"`([^`]*)`", error.hint)) <= known, error


def test_no_hint_names_a_tool() -> None:
    for error in ERRORS:
        assert not TOOLS & set(re.findall(r"[a-z]+(?:_[a-z]+)+", error.hint)), error


def test_each_interface_names_only_what_it_has() -> None:
    routes = {f"{each.route.method} {re.sub(r':[a-z]+}', '}', each.route.path)}" for each in REGISTRY}
    client = Client("http://127.0.0.1:8787", api_key="x")
    for hint in HINTS:
        named = re.findall(r"`([^`]*)`", hint)
        assert "`" not in render_hint(hint, tool_reference)
        assert set(re.findall(r"`([^`]*)`", rest := render_hint(hint, route_reference))) <= routes
        # The Python clients receive the hint of REST.
        assert _template(rest) == hint
        methods = re.findall(r"weftline\.([a-z_]+)\.([a-z_]+)\(\)", render_hint(hint, method_reference))
        assert len(methods) == len(named)
        for group, verb in methods:
            assert callable(getattr(getattr(client, group), verb))
