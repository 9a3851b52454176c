"""``weftline export`` and ``weftline import``: files between folders and servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from cli_support import CommandLine

from support.bundles import entries, items, seal_of
from support.forked_python import server_process

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("AC-14")


@pytest.fixture
def filled(launch: CommandLine) -> CommandLine:
    launch.run("board", "write", "goal", "Ship — ü 漢字")
    launch.run("board", "write", "goal", "Ship later")
    launch.run("message", "add", "Ready.")
    return launch


@pytest.fixture
def other(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "other")


def test_an_exported_session_is_imported_into_another_folder(
    filled: CommandLine, other: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "launch.weftline"
    exported = filled.run("export", "-o", str(file))
    digest = seal_of(file.read_bytes())
    assert digest in exported.stderr
    assert "records" in exported.stderr
    made = other.run("import", str(file), "--digest", digest)
    assert "Imported 2 versions, 1 message," in made.stdout
    assert other.json("board", "read", "goal", "--session", "launch")["value"] == "Ship later"
    assert "imported before" in other.run("import", str(file)).stdout


def test_an_export_goes_to_standard_output_and_an_import_comes_from_standard_input(
    filled: CommandLine, other: CommandLine
) -> None:
    exported = filled.process("export")
    assert exported.returncode == 0
    assert set(items(exported.stdout.encode())) >= {"board:launch/goal/1.2"}
    assert other.process("import", "-", stdin=exported.stdout).returncode == 0
    assert other.json("board", "list-keys", "--session", "launch")["keys"][0]["key"] == "goal"


def test_options_set_the_scope(filled: CommandLine, tmp_path: Path) -> None:
    filled.run("--turn", "t1", "--task", "k1", "board", "write", "plan", "in three steps")
    for options, scope in ((["--turn", "t1"], "turn"), (["--task", "k1"], "task"), (["--to", "b"], "handoff")):
        file = tmp_path / scope
        filled.run("export", *options, "-o", str(file))
        assert entries(file.read_bytes())[0].scope == scope
    assert set(items((tmp_path / "turn").read_bytes())) == {"board:launch/plan/1.1"}
    filled.run("export", "--to", "b", "--task", "k1", "-o", str(tmp_path / "task of b"))
    assert set(items((tmp_path / "task of b").read_bytes())) == {"board:launch/plan/1.1"}


@pytest.mark.parametrize("form", ["ndjson", "json", "prov"])
def test_every_format_is_written(filled: CommandLine, tmp_path: Path, form: str) -> None:
    file = tmp_path / "out"
    exported = filled.json("export", "--format", form, "-o", str(file))
    assert exported["bytes"] == file.stat().st_size
    if form != "ndjson":
        assert msgspec.json.decode(file.read_bytes())


def test_validate_accepts_exports_and_finds_altered_bytes(filled: CommandLine, tmp_path: Path) -> None:
    for form in ("ndjson", "json"):
        file = tmp_path / form
        exported = filled.json("export", "--format", form, "-o", str(file))
        checked = filled.json("records", "validate", str(file))
        assert checked["files"][0] == {"file": str(file), "valid": True, "records": exported["records"], "problems": []}
        content = file.read_bytes()
        place = len(content) // 2
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        (problem,) = filled.json("records", "validate", str(file), code=1)["files"][0]["problems"]
        assert problem["line"] == content[:place].count(b"\n") + 1


def test_a_second_handoff_is_imported_as_another_session(
    filled: CommandLine, other: CommandLine, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    filled.run("export", "--to", "bob", "-o", str(first))
    other.run("import", str(first))
    filled.run("board", "write", "goal", "Ship today")
    filled.run("export", "--to", "bob", "-o", str(second))
    refused = other.run("import", str(second), code=1)
    assert "--as-session" in refused.stderr
    made = other.run("import", str(second), "--as-session", "launch-2")
    assert "into the session launch-2" in made.stdout
    for session, value in (("launch", "Ship later"), ("launch-2", "Ship today")):
        assert other.json("board", "read", "goal", "--session", session)["value"] == value


def test_a_dry_run_changes_nothing(filled: CommandLine, other: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "bundle"
    filled.run("export", "-o", str(file))
    assert "Would import" in other.run("import", str(file), "--dry-run").stdout
    other.run("board", "list-keys", "--session", "launch", code=1)


def test_a_refused_export_prints_one_line_and_leaves_no_file(filled: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "bundle"
    refused = filled.run("export", "--session", "nowhere", "-o", str(file), code=1)
    assert "SESSION_NOT_FOUND" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    file.write_bytes(b"not a bundle\n")
    damaged = filled.run("import", str(file), code=1)
    assert "line 1" in damaged.stderr
    assert filled.json("import", str(file), code=1)["code"] == "BUNDLE_DAMAGED"
    filled.run("import", str(tmp_path / "missing"), code=2)
    filled.run("export", "-o", str(tmp_path / "no" / "folder"), code=2)


def test_a_failed_export_keeps_the_existing_file(filled: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "bundle"
    file.write_text("before")
    filled.run("export", "--session", "nowhere", "-o", str(file), code=1)
    assert file.read_text() == "before"


def test_sessions_are_exported_from_and_imported_into_a_server(filled: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "bundle"
    key = filled.json("key", "create", "admin")["api_key"]
    with server_process(filled.data) as server:
        remote = CommandLine(tmp_path / "unused", {"WEFTLINE_URL": server.url, "WEFTLINE_API_KEY": key})
        remote.run("export", "--session", "launch", "-o", str(file))
        remote.run("session", "delete", "launch", "--yes")
        remote.run("import", str(file))
        assert remote.json("board", "read", "goal", "--session", "launch")["value"] == "Ship later"
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize("option", ["--turn", "--task", "--tool-call"])
def test_exporting_an_unknown_turn_or_task_prints_a_warning(filled: CommandLine, tmp_path: Path, option: str) -> None:
    assert "check the id" in filled.run("export", option, "none", "-o", str(tmp_path / "bundle")).stderr


def test_correlation_options_have_the_same_names_everywhere(filled: CommandLine, tmp_path: Path) -> None:
    filled.run("--turn", "t1", "--task", "k1", "board", "write", "plan", "in three steps")
    for option in (["--turn", "t1"], ["--task", "k1"]):
        assert [each["id"] for each in filled.json("records", "list", *option)["records"]] == ["board:launch/plan/1.1"]
        assert "check the id" not in filled.run("export", *option, "-o", str(tmp_path / "bundle")).stderr


def test_validate_recognises_a_prov_export(filled: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "launch.prov.json"
    filled.run("export", "--format", "prov", "-o", str(file))
    (problem,) = filled.json("records", "validate", str(file), code=1)["files"][0]["problems"]
    assert problem["reason"].startswith("is PROV-JSON")


@pytest.mark.req("AC-11")
def test_policies_are_listed_with_their_rules(filled: CommandLine) -> None:
    definition = {
        "description": "For the customer.",
        "who": ["human:*"],
        "exclude_kinds": ["message"],
        "content": "reference",
        "mask": ["secrets", "pii"],
    }
    filled.run("policy", "set", "customer", msgspec.json.encode(definition).decode())
    listed = filled.run("policy", "list").stdout
    assert listed.startswith("standard (default)\n  Everything you may read, without secrets.\n")
    shown = listed[listed.index("customer\n") :].splitlines()
    assert shown[1:6] == [
        "  For the customer.",
        "  for:           human:*",
        "  content:       digest only",
        "  masked:        secrets, pii",
        "  kinds:         all except message",
    ]
    assert "sha256:" not in listed
