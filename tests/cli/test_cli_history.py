"""``weftline history``: text output."""

from __future__ import annotations

import json
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
    launch.run("board", "delete", "plan", "--yes")
    return launch


@pytest.mark.req("CE-F23")
def test_the_log_prints_version_hash_time_author_and_changes(board: CommandLine) -> None:
    shown = board.run("history", "log", BOARD).stdout
    assert re.search(
        r"^v4 [0-9a-f]{10}  20\d\d-\S+ \S+Z  human:admin\n    delete\n    - plan \(v1\)$", shown, re.MULTILINE
    )
    assert re.search(r"^v1 .*\n    kick-off \(step plan\)\n    \+ goal \(v1, \d+ tokens\)$", shown, re.MULTILINE)
    assert board.run("history", "log", BOARD, "--limit", "2").stdout.endswith("More: --before-version 3\n")
    assert board.run("history", "log", BOARD, "--before-version", "1").stdout == "No commits.\n"


@pytest.mark.req("WX-02")
def test_two_orchestrators_are_told_apart(launch: CommandLine) -> None:
    for name in ("a", "b"):
        launch.run("agent", "create", name, "--parent-id", "admin")
    launch.run("--as", "a", "board", "write", "plan", "ship", "--writable-by", "orchestrator:a")
    refused = launch.run("--as", "b", "board", "write", "plan", "wait", code=3)
    assert "PERMISSION_DENIED" in refused.output
    launch.run("--as", "b", "board", "write", "note", "wait")
    keys = launch.json("board", "list-keys")["keys"]
    assert {key["key"]: key["written_by"] for key in keys} == {"note": "orchestrator:b", "plan": "orchestrator:a"}
    assert re.findall(r"orchestrator:\w", launch.run("history", "log", BOARD).stdout) == [
        "orchestrator:b",
        "orchestrator:a",
    ]
    read = ("events", "read", "--after", "0")
    lines = launch.run(*read, "--format", "cloudevents", "--json").stdout.splitlines()
    assert [json.loads(line)["agentid"] for line in lines][-2:] == ["a", "b"]
    shown = launch.run(*read).stdout
    assert "orchestrator:b" in shown
    assert "agent_id" not in shown, "the actor ends with it"


def test_the_log_names_the_agent(launch: CommandLine) -> None:
    launch.run("agent", "create", "planner")
    launch.run("--as", "planner", "board", "write", "goal", "ship")
    assert launch.run("history", "log", BOARD).stdout.splitlines()[0].endswith("  orchestrator:planner")


@pytest.mark.req("CE-F24")
def test_a_diff_is_printed_in_unified_format(board: CommandLine) -> None:
    shown = board.run("history", "diff", BOARD, "2").stdout
    assert shown == (
        f"{BOARD} v2 .. {BOARD} v4\n\nremoved plan (was v1)\n@@ -1 +0,0 @@\n-one\n\n"
        "modified goal (v1 to v2, human:admin)\n@@ -1,2 +1,2 @@\n ship\n-on Friday\n+on Monday\n"
    )
    assert board.run("history", "diff", BOARD, "2", "--no-text").stdout.count("\n@@") == 0
    assert board.run("history", "diff", BOARD, "4").stdout.endswith("No differences.\n")


def test_a_commit_is_shown_with_its_parents_and_tags(board: CommandLine) -> None:
    board.run("history", "snapshot", BOARD, "done")
    shown = board.run("history", "show", BOARD).stdout
    parent = board.json("history", "show", BOARD, "--version", "3")["commit"]["hash"]
    assert shown.endswith(f"    - plan (v1)\n    parent {parent}\n    snapshots done\n")


def test_escape_sequences_written_by_agents_are_not_printed(launch: CommandLine) -> None:
    launch.run("board", "write", "goal", "x\x1b[2Jx")
    shown = launch.run("history", "diff", BOARD, "0").stdout
    assert "\x1b" not in shown
    assert "+x\\x1b[2Jx" in shown


@pytest.mark.req("CE-F22")
@pytest.mark.req("CE-F25")
@pytest.mark.req("CE-F26")
def test_a_board_is_branched_merged_and_rolled_back(board: CommandLine) -> None:
    board.run("history", "branch", BOARD, "try")
    board.run("history", "switch", BOARD, "try")
    board.run("board", "write", "goal", "tried")
    board.run("history", "switch", BOARD)
    assert board.json("board", "read", "goal")["value"] == "ship\non Monday"
    merged = board.run("history", "merge", BOARD, f"{BOARD}@try").stdout
    assert merged == f"Merged: {BOARD} is at v5. Keys taken over: goal.\n"
    assert f"merges {BOARD}@try v5" in board.run("history", "log", BOARD, "--limit", "1").stdout
    board.run("history", "rollback", BOARD, "4", "--yes")
    assert board.json("board", "read", "goal")["value"] == "ship\non Monday"
    board.run("history", "delete-branch", BOARD, "try", "--yes")
    assert board.run("history", "verify", BOARD).stdout.startswith(f"context_id: {BOARD}\nintact:     yes")
    assert "CONTEXT_NOT_FOUND" in board.run("history", "log", "board:nowhere", code=1).output


@pytest.fixture
def conflicting(board: CommandLine) -> CommandLine:
    """Return a command line with a board and a branch that conflict."""
    board.run("history", "branch", BOARD, "try")
    board.run("board", "write", "goal", "ship\non Tuesday")
    board.run("board", "delete", "goal", "--branch", "try", "--yes")
    return board


@pytest.mark.req("CE-F26")
def test_a_conflict_shows_every_side_and_how_to_resolve_it(conflicting: CommandLine) -> None:
    conflicting.run("board", "write", "plan", "ours")
    conflicting.run("board", "write", "plan", "theirs", "--branch", "try")
    shown = conflicting.run("history", "merge", BOARD, f"{BOARD}@try", code=1).stdout
    review = re.search(r"review_\w+", shown)
    assert review is not None
    commit_line = r"20\d\d-\S+ \S+Z  human:admin"
    assert shown.startswith(f"Not merged: both sides changed 2 keys. Review {review[0]} is open for a human decision.")
    for key, base, ours, theirs in (
        (
            "goal",
            f"v2  {commit_line}\n      ship\n      on Monday",
            f"v3  {commit_line}\n      ship\n      on Tuesday",
            "absent",
        ),
        ("plan", "absent", f"v2  {commit_line}\n      ours", f"v2  {commit_line}\n      theirs"),
    ):
        pattern = rf"^{key}\n  base    {base}\n  ours    {ours}\n  theirs  {theirs}$"
        assert re.search(pattern, shown, re.MULTILINE), shown
    command = f"weftline history resolve {review[0]} '" + '{"goal":{"take":"ours"},"plan":{"take":"ours"}}\'\n'
    assert shown.endswith(command)
    reviews = conflicting.run("history", "reviews").stdout
    assert conflicting.run("history", "review", review[0]).stdout == reviews
    assert reviews.startswith(f"{review[0]} (open)\n  merge:  {BOARD}@try into {BOARD}\n")
    assert all(f"  {line}" in reviews for line in shown.splitlines()[2:] if line)
    conflicting.run(*command.split()[1:4], '{"goal": {"take": "base"}, "plan": {"take": "theirs"}}')
    assert conflicting.json("board", "read", "goal")["value"] == "ship\non Monday"
    assert re.search(r"^  decided: .* by human:admin$", conflicting.run("history", "reviews").stdout, re.MULTILINE)


def test_a_merge_waiting_for_review_exits_with_a_failure(conflicting: CommandLine) -> None:
    answer = conflicting.json("history", "merge", BOARD, f"{BOARD}@try", code=1)
    assert answer["merged"] is False
    assert answer["conflicts"][0]["ours"]["value"] == "ship\non Tuesday"


def test_an_empty_list_of_reviews_prints_a_message(launch: CommandLine) -> None:
    assert launch.run("history", "reviews").stdout == "No reviews.\n"


def test_a_revision_is_given_after_the_context_id_or_by_option(board: CommandLine) -> None:
    for command in ("show", "state", "blame"):
        by_argument = board.json("history", command, BOARD, "2")
        assert by_argument == board.json("history", command, BOARD, "--version", "2")
    assert board.json("history", "diff", BOARD, "1", "2")["to_version"] == 2
    assert board.json("history", "branch", BOARD, "early", "1")["version"] == 1
    assert "given twice" in board.run("history", "show", BOARD, "2", "--version", "3", code=2).stderr
    assert "Same as --version." in board.run("history", "show", "--help").stdout


@pytest.mark.req("CE-F57")
def test_retention_is_set_by_days(cli: CommandLine) -> None:
    assert cli.json("history", "set-retention", "work_artifacts", "--days", "30")["days"] == 30
    assert "'31' is not one of" in cli.run("history", "set-retention", "board", "--days", "31", code=2).stderr


def test_counts_of_one_are_singular(launch: CommandLine) -> None:
    launch.run("board", "write", "goal", "ship")
    assert "+ goal (v1, 1 token)\n" in launch.run("history", "log", BOARD).stdout


@pytest.mark.req("CE-U3")
def test_a_push_prints_one_sentence(cli: CommandLine) -> None:
    assert cli.run("push", "limit", "null").stdout == "Pushed: v0 -> v1\n  wrote learned_knowledge/limit\n"
    assert cli.run("push", "limit", "null").stdout == "Nothing to push: v1 already contains it.\n"
    assert cli.run("push", "--remove", "limit").stdout == "Pushed: v1 -> v2\n  removed learned_knowledge/limit\n"
    for wrong in (["limit"], ["limit", "1", "--file", __file__], []):
        assert "Give a KEY" in cli.run("push", *wrong, code=2).stderr


def test_create_comes_first_in_the_help_of_agent(cli: CommandLine) -> None:
    listed = cli.run("agent", "--help").stdout.partition("Commands:\n")[2]
    assert listed.split()[0] == "create"
