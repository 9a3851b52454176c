"""The page on events names every event there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weft.capabilities.records.vocabulary import EVENT_CLASSES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts" / "events.md"
# Types stand where events are made; those of boards are put together from what was done and where.
WHOLE = re.compile(r'(?:announce|event|type)(?:=|\(\s*)"([a-z]+\.[a-z_]+)"')
DONE_TO_BOARDS = re.compile(r'_(?:named|key_event)\("([a-z_]+)"')


CLASSES = re.compile(r"`(context\.[a-z]+\.[a-z]+|context\.exported)`")


def published() -> set[str]:
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "src" / "weft" / "capabilities").rglob("*.py"))
    done = {*DONE_TO_BOARDS.findall(source), "expired"}
    return {*WHOLE.findall(source), *(f"{where}.{act}" for where in ("board", "branch") for act in done)}


@pytest.mark.req("AC-13")
def test_every_class_of_event_is_documented_and_no_other() -> None:
    assert set(CLASSES.findall(PAGE.read_text("utf-8"))) == set(EVENT_CLASSES)


def test_every_type_of_event_is_documented() -> None:
    assert {"board.written", "branch.expired", "history.merged", "context.pushed", "history.pruned"} <= published()
    page = PAGE.read_text("utf-8")
    assert {name for name in published() if f"`{name}`" not in page} == set()
