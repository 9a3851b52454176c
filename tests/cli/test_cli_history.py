"""History by command, as people read it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli_support import CommandLine

BOARD = "board:launch"


@pytest.fixture
def board(launch: CommandLine) -> CommandLine:
    launch.run("board", "write", "goal", "ship\non Friday", "--reason", "kick-off", "--step", "plan")
    launch.run("board", "write", "plan", "one")
    launch.run("board", "write", "goal", "ship\non Monday")
    launch.run("board", "delete", "plan")
    return launch


@pytest.mark.req("CE-F23")
def test_the_log_reads_like_a_log(board: CommandLine) -> None:
    shown = board.run("history", "log", BOARD).stdout
    assert re.search(
        r"^v4 [0-9a-f]{10}  20\d\d-\S+ \S+Z  human:admin\n    delete\n    - plan \(v1\)$", shown, re.MULTILINE
    )
    assert re.search(r"^v1 .*\n    kick-off \(step plan\)\n    \+ goal \(v1, \d+ tokens\)$", shown, re.MULTILINE)
    assert board.run("history", "log", BOARD, "--limit", "2").stdout.endswith("There is more: --before-version 3\n")
    assert board.run("history", "log", BOARD, "--before-version", "1").stdout == "Nothing was done yet.\n"


@pytest.mark.req("CE-F24")
def test_a_diff_looks_like_a_diff(board: CommandLine) -> None:
    shown = board.run("history", "diff", BOARD, "2").stdout
    assert shown == (
        f"{BOARD} v2 .. {BOARD} v4\n\nremoved plan (was v1)\n@@ -1 +0,0 @@\n-one\n\n"
        "modified goal (v1 to v2, human:admin)\n@@ -1,2 +1,2 @@\n ship\n-on Friday\n+on Monday\n"
    )
    assert board.run("history", "diff", BOARD, "2", "--no-text").stdout.count("\n@@") == 0
    assert board.run("history", "diff", BOARD, "4").stdout.endswith("Nothing differs.\n")


def test_a_commit_is_shown_with_what_it_followed_and_its_names(board: CommandLine) -> None:
    board.run("history", "snapshot", BOARD, "done")
    shown = board.run("history", "show", BOARD).stdout
    parent = board.json("history", "show", BOARD, "--version", "3")["commit"]["hash"]
    assert shown.endswith(f"    - plan (v1)\n    after {parent}\n    named done\n")


def test_nothing_that_agents_wrote_reaches_the_terminal_as_a_command(launch: CommandLine) -> None:
    launch.run("board", "write", "goal", "x\x1b[2Jx")
    shown = launch.run("history", "diff", BOARD, "0").stdout
    assert "\x1b" not in shown
    assert "+x\\x1b[2Jx" in shown


@pytest.mark.req("CE-F22")
@pytest.mark.req("CE-F25")
@pytest.mark.req("CE-F26")
def test_a_board_is_branched_merged_and_taken_back(board: CommandLine) -> None:
    board.run("history", "branch", BOARD, "try")
    board.run("history", "switch", BOARD, "--branch", "try")
    board.run("board", "write", "goal", "tried")
    board.run("history", "switch", BOARD)
    assert board.json("board", "read", "goal")["value"] == "ship\non Monday"
    merged = board.run("history", "merge", BOARD, f"{BOARD}@try").stdout
    assert re.search(r"^merged: +yes$", merged, re.MULTILINE)
    assert f"brings in {BOARD}@try v5" in board.run("history", "log", BOARD, "--limit", "1").stdout
    board.run("history", "rollback", BOARD, "4")
    assert board.json("board", "read", "goal")["value"] == "ship\non Monday"
    board.run("history", "delete-branch", BOARD, "try", "--yes")
    assert board.run("history", "verify", BOARD).stdout.startswith(f"context_id: {BOARD}\nintact:     yes")
    assert "LINE_NOT_FOUND" in board.run("history", "log", "board:nowhere", code=1).output
