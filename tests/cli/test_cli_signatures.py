"""Signed layers on the command line: doctor, backup and restore, signing with a new secret; the kill switch."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from cli_support import CommandLine, free_port

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("CE-F34")


@pytest.fixture
def signed(launch: CommandLine) -> CommandLine:
    launch.env["WEFTLINE_PORT"] = str(free_port())
    launch.run("layer", "define", "tenant", "--text", "Be kind.")
    launch.run("agent", "create", "scout")
    launch.run("agent", "define", "scout", "--role", "scout")
    return launch


def signatures(cli: CommandLine, code: int = 0) -> dict[str, Any]:
    report = cli.json("doctor", code=code)
    return next(check for check in report["checks"] if check["check"] == "Signatures")


def test_the_doctor_and_a_restored_backup_know_the_signatures(signed: CommandLine, tmp_path: Path) -> None:
    assert signatures(signed)["state"] == "ok"
    file = tmp_path / "backup.zip"
    signed.run("db", "backup", str(file))
    other = CommandLine(tmp_path / "other", dict(signed.env))
    other.run("db", "restore", str(file))
    assert signatures(other)["state"] == "ok"
    assert other.json("history", "verify", "layer:tenant")["intact"] is True
    other.run("layer", "define", "tenant", "--text", "Be kinder.")
    assert "Be kinder." in other.run("--as", "scout", "layer", "show").stdout


def test_a_new_secret_needs_new_signatures(signed: CommandLine) -> None:
    signed.env["WEFTLINE_SIGNING_SECRET"] = "a secret of at least 32 characters"
    found = signatures(signed, code=1)
    assert found["state"] == "problem"
    assert "layer:tenant" in found["detail"]
    assert "LAYER_VIOLATION" in signed.run("--as", "scout", "layer", "show", code=3).stderr
    assert signed.json("db", "sign") == {"signed": 2, "damaged": []}
    assert signatures(signed)["state"] == "ok"
    assert "Be kind." in signed.run("--as", "scout", "layer", "show").stdout


@pytest.mark.req("CE-F58")
@pytest.mark.parametrize("line", ["agent:scout", "layer:tenant"])
def test_the_doctor_names_what_was_altered_and_how_to_repair_it(signed: CommandLine, line: str) -> None:
    """A value that was edited in the database file: its signature is right, its hash is not."""
    with closing(sqlite3.connect(signed.data / "weftline.db")) as database, database:
        database.execute(
            "UPDATE blobs SET content = CAST('\"Obey.\"' AS BLOB) WHERE hash IN "
            "(SELECT blob_hash FROM changes WHERE line_id = ?)",
            (line,),
        )
    assert "LAYER_VIOLATION" in signed.run("--as", "scout", "layer", "show", code=3).stderr
    found = signatures(signed, code=1)
    assert (found["state"], found["detail"]) == ("problem", f"1 altered in the database: {line} of default")
    assert f"weftline history verify {line}" in found["next_step"]
    assert signed.json("history", "verify", line, code=1)["intact"] is False
    repair = (
        ("agent", "define", "scout", "--role", "Scouts") if line == "agent:scout" else ("layer", "define", "tenant")
    )
    signed.run(*repair, *(() if line == "agent:scout" else ("--text", "Stay kind.")))
    assert signatures(signed)["state"] == "ok"
    signed.run("--as", "scout", "layer", "show")


def test_an_agent_is_disabled_and_enabled_by_commands_of_their_own(signed: CommandLine) -> None:
    assert signed.json("agent", "disable", "scout")["disabled"] is True
    assert "AUTHENTICATION_ERROR" in signed.run("--as", "scout", "session", "list", code=3).stderr
    assert signed.json("agent", "enable", "scout")["disabled"] is False
    signed.run("--as", "scout", "session", "list")


@pytest.mark.parametrize("line", ["agent:scout", "layer:tenant"])
def test_the_doctor_names_what_was_removed_from_the_database(signed: CommandLine, line: str) -> None:
    with closing(sqlite3.connect(signed.data / "weftline.db")) as database, database:
        for table in ("line_signatures", "changes", "commits", "pins", "lines"):
            database.execute(f"DELETE FROM {table} WHERE line_id = ?", (line,))
    assert "LAYER_VIOLATION" in signed.run("--as", "scout", "layer", "show", code=3).stderr
    found = signatures(signed, code=1)
    assert found["detail"].startswith("1 removed from the database")
    assert line in found["detail"]
    signed.run("db", "sign")
    assert signatures(signed)["state"] == "ok"
    signed.run("--as", "scout", "layer", "show")
