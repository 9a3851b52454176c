"""The page on events documents every event type and class."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weft.capabilities.records.vocabulary import EVENT_CLASSES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts" / "events.md"
# Event types as literals where events are published; those of boards are composed of `board` or `branch` and an action.
LITERAL = re.compile(r'(?:announce|event|type)(?:=|\(\s*)"([a-z]+\.[a-z_]+)"')
BOARD_ACTION = re.compile(r'_(?:named|key_event)\("([a-z_]+)"')


CLASSES = re.compile(r"`(context\.[a-z]+\.[a-z]+|context\.exported)`")


def published_types() -> set[str]:
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "src" / "weft" / "capabilities").rglob("*.py"))
    actions = {*BOARD_ACTION.findall(source), "expired"}
    return {*LITERAL.findall(source), *(f"{place}.{act}" for place in ("board", "branch") for act in actions)}


@pytest.mark.req("AC-13")
def test_exactly_the_defined_event_classes_are_documented() -> None:
    assert set(CLASSES.findall(PAGE.read_text("utf-8"))) == set(EVENT_CLASSES)


def test_every_type_of_event_is_documented() -> None:
    assert {
        "board.written",
        "branch.expired",
        "history.merged",
        "context.pushed",
        "history.pruned",
    } <= published_types()
    page = PAGE.read_text("utf-8")
    assert {name for name in published_types() if f"`{name}`" not in page} == set()
