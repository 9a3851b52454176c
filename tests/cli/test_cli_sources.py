"""Resolving source refs by command, with and without a database."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import to_builtins

from weftline.records import source_ref

if TYPE_CHECKING:
    from pathlib import Path

    from cli_support import CommandLine

pytestmark = pytest.mark.req("AC-05")

TEXT = "First think.\nThen ship on Friday.\n"


@pytest.fixture
def ref(tmp_path: Path) -> Path:
    return written_ref(
        tmp_path, to_builtins(source_ref("limit", "file:///s", TEXT, start=18, end=32, source_kind="file"))
    )


def written_ref(folder: Path, ref: Any) -> Path:
    path = folder / "ref.json"
    path.write_text(json.dumps(ref))
    return path


def write_source(folder: Path, text: str, name: str = "story.md") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_passage_is_found_in_a_file_without_a_database(cli: CommandLine, ref: Path, tmp_path: Path) -> None:
    shown = cli.run("records", "resolve", str(ref), "--against", write_source(tmp_path, TEXT)).stdout
    assert shown.startswith("exact: The passage is unchanged, at the same position.\n")
    assert shown.endswith("\n  ship on Friday\n")
    moved = cli.json("records", "resolve", str(ref), "--against", write_source(tmp_path, f"Wait. {TEXT}"))
    assert (moved["outcome"], moved["now"]) == ("moved", {"type": "text_position", "start": 24, "end": 38})
    lost = cli.run("records", "resolve", str(ref), "--against", write_source(tmp_path, "Gone."), code=1).stdout
    assert lost.startswith("lost: ")
    assert not cli.data.exists()


def test_a_ref_may_come_from_standard_input(cli: CommandLine, ref: Path, tmp_path: Path) -> None:
    against = write_source(tmp_path, TEXT)
    assert cli.json("records", "resolve", "-", "--against", against, stdin=ref.read_text())["outcome"] == "exact"


def test_the_media_type_is_inferred_from_the_file_name(cli: CommandLine, tmp_path: Path) -> None:
    source_ref_data = {"schema_version": "0.1.0", "source_id": "a", "uri": "x:y", "source_kind": "page"}
    source_ref_data |= {"selector": [{"type": "css", "selector": "p"}, {"type": "text_quote", "exact": "Ship"}]}
    page = write_source(tmp_path, "<h1>x</h1><p>Ship</p>", "page.html")
    assert (
        cli.json("records", "resolve", str(written_ref(tmp_path, source_ref_data)), "--against", page)["found_by"]
        == "css"
    )


def test_sources_stored_in_weftline_are_read_from_the_database(launch: CommandLine, tmp_path: Path) -> None:
    launch.run("board", "write", "plan", TEXT)
    source_ref_data = {
        "schema_version": "0.1.0",
        "source_id": "limit",
        "uri": "board://launch/plan",
        "source_kind": "board_entry",
    }
    source_ref_data |= {"selector": {"type": "text_quote", "exact": "ship on Friday"}}
    path = written_ref(tmp_path, source_ref_data)
    assert launch.json("records", "resolve", str(path))["outcome"] == "exact"
    launch.run("records", "add", json.dumps([source_ref_data]), "--session", "launch")
    assert launch.json("records", "resolve", "limit")["text"] == "ship on Friday"
    assert launch.json("records", "resolve", "--source-id", "limit")["outcome"] == "exact"
    assert launch.json("records", "resolve", "--source-ref", f"@{path}")["outcome"] == "exact"
    resolved = launch.json("records", "resolve", "limit", "--against", write_source(tmp_path, "Ship."), code=1)
    assert resolved["outcome"] == "lost"
    assert "RECORD_NOT_FOUND" in launch.run("records", "resolve", "nothing", code=1).output


def test_invalid_source_refs_and_unreadable_files_are_refused(cli: CommandLine, tmp_path: Path) -> None:
    wrong = written_ref(tmp_path, {"source_id": "a"})
    against = write_source(tmp_path, TEXT)
    assert "source_ref" in cli.run("records", "resolve", str(wrong), "--against", against, code=1).output
    cli.run("records", "resolve", str(wrong), "--against", str(tmp_path / "nowhere"), code=2)
    cli.run("records", "resolve", "--against", against, code=2)
    cli.run("records", "resolve", str(wrong), "--source-id", "a", code=2)
