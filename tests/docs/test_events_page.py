"""The page on events documents every event type and class."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from weftline.kernel.events import EventType, NewEvent
from weftline.records.vocabulary import EVENT_CLASSES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts" / "events.md"
SOURCE = ROOT / "src" / "weftline"
PUBLISHED = frozenset(get_args(EventType))
CLASSES = re.compile(r"`(context\.[a-z]+\.[a-z]+|context\.exported)`")
TYPE = re.compile(r"`([a-z_]+(?:\.[a-z_]+)+)`")


def documented() -> set[str]:
    """Return the types in the first column of the table of event types."""
    section = PAGE.read_text("utf-8").split("## Event types", 1)[1].split("\n## ", 1)[0]
    return {name for row in section.splitlines() if row.startswith("|") for name in TYPE.findall(row.split("|")[1])}


def sources() -> dict[Path, str]:
    kernel = SOURCE / "kernel" / "events.py"
    return {path: path.read_text("utf-8") for path in SOURCE.rglob("*.py") if path != kernel}


@cache
def nodes() -> dict[Path, list[ast.AST]]:
    """Return the parts of the syntax trees of the sources that name an event: parsing all takes seconds."""
    names = re.compile("|".join(map(re.escape, {"NewEvent", *PUBLISHED})))
    return {path: list(ast.walk(ast.parse(text))) for path, text in sources().items() if names.search(text)}


@pytest.mark.req("AC-13")
def test_every_class_of_event_is_documented_and_no_other() -> None:
    assert set(CLASSES.findall(PAGE.read_text("utf-8"))) == set(EVENT_CLASSES)


def test_every_type_of_event_is_documented_and_no_other() -> None:
    assert documented() == PUBLISHED


def test_only_listed_types_can_be_published() -> None:
    """The type checker rejects any other, computed ones too, unless a cast or an ignored error hides it."""
    assert get_type_hints(NewEvent)["type"] == EventType
    text = "\n".join(sources().values())
    assert not re.search(r'cast\(\s*"?EventType', text)
    for path, parts in nodes().items():
        for call in (node for node in parts if isinstance(node, ast.Call)):
            if getattr(call.func, "id", None) == "NewEvent":
                lines = path.read_text("utf-8").splitlines()[call.lineno - 1 : call.end_lineno]
                assert not any("type: ignore" in line for line in lines), path


def test_every_listed_type_is_used() -> None:
    literals = {
        node.value
        for in_source in nodes().values()
        for node in in_source
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert literals >= PUBLISHED
