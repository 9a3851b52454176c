"""``weftline records``: text output."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from cli_support import CommandLine

ENVELOPE = {
    "schema_version": "0.1.0",
    "context_id": "turn-7",
    "scope": "turn",
    "lifecycle": "draft",
    "created_at": "2026-05-08T12:30:00Z",
    "item_refs": ["board:launch/goal/1.1"],
}


@pytest.fixture
def with_records(launch: CommandLine, tmp_path: Path) -> CommandLine:
    launch.run("board", "write", "goal", "ship\non Friday")
    launch.run("message", "add", "Ready \x1b[2J for review.")
    file = tmp_path / "envelope.json"
    file.write_text(json.dumps(ENVELOPE), "utf-8")
    assert launch.run("records", "add", f"@{file}").stdout == "Recorded: context_envelope turn-7 (event 4)\n"
    return launch


@pytest.mark.req("AC-01")
def test_a_list_prints_one_line_per_record(with_records: CommandLine) -> None:
    shown = with_records.run("records", "list").stdout
    time = r"20\d\d-\S+ \S+Z"
    assert re.fullmatch(
        rf"1  {time}  context_surface  session:launch\n    session\n"
        rf"2  {time}  context_item  board:launch/goal/1.1\n    goal: ship on Friday\n"
        rf"3  {time}  context_item  message:launch/1\n    message 1 of admin: Ready \\x1b\[2J for review\.\n"
        rf"4  {time}  context_envelope  turn-7\n    draft\n",
        shown,
    ), shown
    assert with_records.run("records", "list", "--limit", "1").stdout.endswith("\n\nMore: --after 1.0\n")
    assert with_records.run("records", "list", "--types", "context_budget").stdout == "No records.\n"
    assert with_records.json("records", "list", "--item-id", "board:launch/goal/1.1")["count"] == 2


def test_a_record_is_shown_with_its_content_and_references(with_records: CommandLine) -> None:
    shown = with_records.run("records", "show", "board:launch/goal/1.1", "--with-content").stdout
    assert shown.startswith("context_item board:launch/goal/1.1\n\n")
    assert re.search(r"^digest: +sha256:[0-9a-f]{64}$", shown, re.MULTILINE)
    assert re.search(r"^referenced by: +context_envelope turn-7$", shown, re.MULTILINE)
    assert shown.endswith("ship\non Friday\n")
    kept = with_records.run("records", "show", "turn-7").stdout
    assert re.search(r"^recorded: +\S+ \S+Z by human:admin$", kept, re.MULTILINE)
    assert '"lifecycle": "draft"' in kept
    assert with_records.run("records", "show", "nothing", code=1).stderr


@pytest.mark.req("AC-03")
def test_the_lifecycle_of_an_envelope_moves_forward_only(with_records: CommandLine) -> None:
    assert (
        with_records.run("records", "set-lifecycle", "turn-7", "injected").stdout
        == "turn-7: draft → injected (event 5)\n"
    )
    assert "cannot become 'draft'" in with_records.run("records", "set-lifecycle", "turn-7", "draft", code=1).stderr


def test_records_are_added_from_a_list_a_file_or_a_pipe(with_records: CommandLine) -> None:
    several = json.dumps([{**ENVELOPE, "context_id": name} for name in ("a", "b", "turn-7")])
    answer = with_records.run("records", "add", "-", stdin=several, code=0).stdout
    assert answer.splitlines() == [
        "Recorded: context_envelope a (event 5)",
        "Recorded: context_envelope b (event 6)",
        "Known: context_envelope turn-7 (event 4)",
    ]
    wrong = with_records.run("records", "add", json.dumps({**ENVELOPE, "scope": "never"}), code=1)
    assert "records[0].scope" in wrong.stderr


@pytest.mark.req("AC-09")
def test_compactions_are_listed_with_their_figures_and_shown_as_stale(with_records: CommandLine) -> None:
    coverage = {"items_covered": 1, "estimated_tokens_before": 1200, "estimated_tokens_after": 300}
    base = {
        "schema_version": "0.1.0",
        "created_at": "2026-05-08T12:30:00Z",
        "source_item_refs": ["board:launch/goal/1.1"],
    }
    made = [
        {**base, "compaction_id": "k", "scope": "session", "method": "rolling_summary", "coverage": coverage},
        {**base, "summary_id": "y", "content": "It ships."},
    ]
    with_records.run("records", "add", json.dumps(made))
    listed = with_records.run("records", "list", "--types", "context_compaction", "--types", "context_summary").stdout
    assert "    rolling_summary: 1 item, 1200 → 300 tokens\n" in listed
    assert "\n    It ships.\n" in listed
    assert "stale" not in with_records.run("records", "show", "y").stdout
    with_records.run("board", "write", "goal", "ship on Monday")
    assert "1 source changed since." in with_records.run("records", "show", "y").stdout
