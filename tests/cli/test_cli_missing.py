"""``weftline missing``: text output."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli_support import CommandLine

pytestmark = pytest.mark.req("AC-10")

TIMESTAMP = r"20\d\d-\S+ \S+Z"


def test_missing_context_is_printed_as_a_list_of_questions(launch: CommandLine) -> None:
    assert launch.run("missing", "list").stdout == "No missing context.\n"
    launch.run("missing", "report", "Who writes the notes?", "--severity", "low", "--missing-id", "missing_notes")
    launch.run(
        *("missing", "report", "Which region?", "--severity", "blocking", "--missing-id", "missing_region"),
        *("--needed-for", "the schema", "--blocked-actions", "deploy", "--blocked-actions", "migrate"),
        *("--candidate-sources", '[{"kind": "document", "hint": "the data policy"}]'),
    )
    launch.run("missing", "request", "missing_region", "user_question")
    shown = launch.run("missing", "list").stdout
    assert re.fullmatch(
        r"blocking  Which region\? \(requested\)\n"
        r"  id:         missing_region\n"
        r"  needed for: the schema\n"
        r"  blocks:     deploy, migrate\n"
        r"  may be in:  document, the data policy\n"
        rf"  reported:   {TIMESTAMP} by human:admin in launch\n"
        rf"  requested:  {TIMESTAMP} user_question from user \(key question_region\)\n"
        r"\n"
        r"low  Who writes the notes\? \(detected\)\n"
        r"  id:       missing_notes\n"
        rf"  reported: {TIMESTAMP} by human:admin in launch\n",
        shown,
    )
    assert launch.run("missing", "list", "--limit", "1").stdout.endswith("More: --after missing_region\n")
    assert launch.run("missing", "list", "--severity", "high").stdout.count("?") == 1


def test_each_command_prints_the_next_step(launch: CommandLine) -> None:
    launch.run("agent", "create", "reviewer")
    output = launch.run("missing", "report", "Which region?", "--missing-id", "missing_region").stdout
    assert output == "Reported as missing_region (medium).\n"
    assert launch.run("missing", "report", "which region?").stdout.startswith("Already reported as missing_regi")
    assert launch.run("missing", "request", "missing_region", "user_question").stdout == (
        "Requested from user (user_question).\n"
        "The question is board key question_region; writing answer_region answers it.\n"
    )
    asked = launch.run("missing", "request", "missing_region", "peer_task", "--agent-id", "reviewer").stdout
    assert asked.endswith("The task is message 1; a reply to it resolves the question.\n")
    assert launch.run("missing", "request", "missing_region", "retrieval").stdout.endswith("No candidates.\n")
    launch.run("message", "add", "The region is Frankfurt.")
    found = launch.run("missing", "request", "missing_region", "retrieval").stdout
    assert "Candidates:\n  message, message 2 of admin, score 100.0, session://launch#message-2\n" in found


def test_a_text_answer_resolves_a_question(launch: CommandLine) -> None:
    launch.run("missing", "report", "Which region?", "--missing-id", "missing_region")
    assert "open_missing_context: 1" in launch.run("session", "get", "launch").stdout
    answered = launch.run("missing", "resolve", "missing_region", "--answer", "-", stdin="Frankfurt only.\n").stdout
    assert answered == "missing_region is resolved: board:launch/answer_region/1.1\n"
    again = launch.run("missing", "resolve", "missing_region", "--resolution-refs", "board:launch/answer_region/1.1")
    assert again.stdout.startswith("missing_region was already resolved: ")
    assert launch.json("board", "read", "answer_region")["value"] == "Frankfurt only."
    assert "missing" not in launch.run("session", "get", "launch").stdout
    shown = launch.run("missing", "list", "--status", "resolved").stdout
    assert re.search(rf"  resolved: {TIMESTAMP} by human:admin: board:launch/answer_region/1.1\n", shown)


def test_errors_name_the_invalid_field(launch: CommandLine) -> None:
    launch.run("missing", "report", "Which region?", "--missing-id", "missing_region")
    refused = launch.run("missing", "request", "missing_region", "peer_task", code=1)
    assert "agent_id: required for the form peer_task" in refused.output
    assert "missing_none" in launch.run("missing", "resolve", "missing_none", "--answer", "x", code=1).output
    launch.run("missing", "report", "Which region?", "--severity", "dire", code=2)


def test_escape_sequences_in_questions_are_not_printed(launch: CommandLine) -> None:
    launch.run("missing", "report", "Which \x1b[2J region?", "--needed-for", "a\x1b]0;b\x07")
    assert "\x1b" not in launch.run("missing", "list").stdout
