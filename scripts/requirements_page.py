"""The page that lists each requirement as shown, partly shown or open, from the ``req`` marks of the tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from requirements_lines import FAMILIES, LINES, MISSING

_NOTE = "<!-- Written by scripts/generate.py; run it again rather than editing this page. -->\n"
_INTRODUCTION = """Each requirement, and the tests that show it. A requirement is *shown* if its tests would fail
without it, *partly* shown if its tests cover only the parts they name, and *open* if no test shows it."""
_PLACES = ("tests",)


class Mark(NamedTuple):
    """A test marked with a requirement; ``part`` names the part that the test shows, if not all."""

    requirement: str
    part: str
    test: str


def requirements_page(root: Path) -> str:
    marks = sorted(set(_all_marks(root)), key=lambda mark: (mark.requirement, mark.test))
    by_requirement = {key: list(group) for key, group in groupby(marks, key=lambda mark: mark.requirement)}
    _check(by_requirement)
    lines = [_NOTE, "# Requirements", "", _INTRODUCTION, "", _summary(by_requirement)]
    for family, title in FAMILIES.items():
        lines += ["", f"## {title}", "", "| id | requirement | state | tests |", "|---|---|---|---|"]
        for requirement in (name for name in LINES if name.partition("-")[0] == family):
            lines.append(_row(requirement, by_requirement.get(requirement, [])))
    return "\n".join(lines) + "\n"


def _check(by_requirement: dict[str, list[Mark]]) -> None:
    for requirement, marks in by_requirement.items():
        if requirement not in LINES:
            raise LookupError(f"{marks[0].test} is marked {requirement}: add it to requirements_lines.py")
        if _is_partial(marks) != (requirement in MISSING):
            raise LookupError(f"{requirement}: either each mark has a part and MISSING names the rest, or neither")


def _is_partial(marks: list[Mark]) -> bool:
    return bool(marks) and all(mark.part for mark in marks)


def _state(marks: list[Mark]) -> str:
    if not marks:
        return "open"
    return "partly" if _is_partial(marks) else "shown"


def _summary(by_requirement: dict[str, list[Mark]]) -> str:
    states = [_state(by_requirement.get(requirement, [])) for requirement in LINES]
    return ", ".join(f"{states.count(state)} {state}" for state in ("shown", "partly", "open")) + "."


def _row(requirement: str, marks: list[Mark]) -> str:
    state = _state(marks)
    if state == "partly":
        shown = "; ".join(sorted({mark.part for mark in marks}))
        state = f"partly. Shown: {shown}. Missing: {MISSING[requirement]}."
    tests = "<br>".join(dict.fromkeys(f"`{mark.test}`" for mark in marks))
    return f"| {requirement} | {LINES[requirement]} | {state} | {tests} |"


def _all_marks(root: Path) -> Iterator[Mark]:
    for place in _PLACES:
        for path in sorted((root / place).rglob("*.py")):
            text = path.read_text("utf-8")
            if "pytest.mark.req(" in text:
                yield from _of_module(ast.parse(text), path.relative_to(root).as_posix())


def _of_module(tree: ast.Module, path: str) -> Iterator[Mark]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and _is_named(node.targets[0], "pytestmark"):
            yield from _marks(node.value, path)
    yield from _of_body(tree.body, path)


def _of_body(body: list[ast.stmt], prefix: str) -> Iterator[Mark]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}::{node.name}"
            for decorator in node.decorator_list:
                yield from _marks(decorator, name)
            if isinstance(node, ast.ClassDef):
                yield from _of_body(node.body, name)


def _marks(expression: ast.expr, test: str) -> Iterator[Mark]:
    """Yield each id in every ``pytest.mark.req(...)`` of an expression."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "req":
            parts = [ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg == "part"]
            yield from (Mark(ast.literal_eval(argument), "".join(parts), test) for argument in node.args)


def _is_named(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Name) and target.id == name
