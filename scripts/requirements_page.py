"""The page that says which test shows which requirement, read off the marks in the tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from requirements_lines import FAMILIES, LINES

_NOTE = "<!-- Written by scripts/generate.py; run it again rather than editing this page. -->\n"
_PLACES = ("tests", "src/weft/testing")


class Shown(NamedTuple):
    """A test that shows a requirement."""

    requirement: str
    test: str


def requirements_page(root: Path) -> str:
    lines = [_NOTE, "# Requirements", "", "What holds, and the tests that show it."]
    shown = sorted(set(_all_shown(root)), key=lambda mark: (_position(mark), mark.test))
    for family, of_family in groupby(shown, key=lambda mark: mark.requirement.partition("-")[0]):
        lines += ["", f"## {FAMILIES[family]}", "", "| id | what holds | shown by |", "|---|---|---|"]
        for requirement, marks in groupby(of_family, key=lambda mark: mark.requirement):
            tests = "<br>".join(f"`{mark.test}`" for mark in marks)
            lines.append(f"| {requirement} | {LINES[requirement]} | {tests} |")
    return "\n".join(lines) + "\n"


def _position(mark: Shown) -> int:
    try:
        return list(LINES).index(mark.requirement)
    except ValueError:
        raise LookupError(f"{mark.test} is marked {mark.requirement}: add it to requirements_lines.py") from None


def _all_shown(root: Path) -> Iterator[Shown]:
    for place in _PLACES:
        for path in sorted((root / place).rglob("*.py")):
            tree = ast.parse(path.read_text("utf-8"))
            yield from _of_module(tree, path.relative_to(root).as_posix())


def _of_module(tree: ast.Module, path: str) -> Iterator[Shown]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and _is_named(node.targets[0], "pytestmark"):
            yield from (Shown(requirement, path) for requirement in _marks(node.value))
    yield from _of_body(tree.body, path)


def _of_body(body: list[ast.stmt], prefix: str) -> Iterator[Shown]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}::{node.name}"
            yield from (Shown(requirement, name) for mark in node.decorator_list for requirement in _marks(mark))
            if isinstance(node, ast.ClassDef):
                yield from _of_body(node.body, name)


def _marks(expression: ast.expr) -> Iterator[str]:
    """Yield the ids in every ``pytest.mark.req(...)`` an expression holds."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.req":
            yield from (str(argument.value) for argument in node.args if isinstance(argument, ast.Constant))


def _is_named(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Name) and target.id == name
