"""The measures of the code: what counts as a line of code, and that every figure can be had."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import house  # noqa: E402 - a script, found by the line above

from support.full_run import FULL  # noqa: E402 - beside the next one

_MEASURE = "import sys, house; house.PACKAGE /= sys.argv[1]; sys.exit(house.main([]))"
SOURCE = '''"""What it is for."""

# Why.
from weftline.history.model import Commit  # kept


def first(
    commit: Commit,
) -> str:
    """Return a text."""
    return """two
lines"""
'''


def module(name: str, source: str) -> house.Module:
    return house.Module(name, source, ast.parse(source), is_package=False)


def test_blank_lines_comments_and_docstrings_are_no_code() -> None:
    assert module("board.service", SOURCE).code_lines() == 6


def test_an_import_of_another_room_is_an_arrow() -> None:
    found = [module("board.service", SOURCE), module("history.model", "class Commit: ..."), module("app.app", SOURCE)]
    assert house.arrows(found) == {("board", "history"): 1}


def test_a_protocol_is_implemented_by_classes_with_its_methods() -> None:
    source = (
        "class Store(Protocol):\n    def get(self, key): ...\n    def put(self, key, value): ...\n"
        "class Base:\n    def get(self, key): ...\n"
        "class Sql(Base):\n    def put(self, key, value): ...\n"
        "class Other(Base):\n    def put(self, key): ...\n"
        "class Call(Protocol):\n    def __call__(self): ...\n"
    )
    assert house.implementations([module("board.store", source)]) == {"board.store.Store": ["Sql"]}


def test_every_figure_is_printed() -> None:
    """All code is measured in a full run only: that takes fifteen seconds."""
    script = [sys.executable, "-c", _MEASURE, "" if FULL else "history"]
    printed = subprocess.run(script, capture_output=True, text=True, check=True, cwd=ROOT / "scripts").stdout
    traced = re.findall(r"^(.+): modules crossed / calls +(\d+) / ([\d,]+)$", printed, re.MULTILINE)
    assert [name for name, _, _ in traced] == [
        "board write over MCP",
        "search over REST",
        "assemble",
        "compaction run",
        "console page",
    ]
    assert all(int(crossed) > 20 for _, crossed, _ in traced)
    assert len(printed.splitlines()) == 16
