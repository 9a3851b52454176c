"""What people type before they read the help: other verbs, options after the command, ``help``, a mistyped folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from weftline.app.registry import all_operations
from weftline.transports.cli import base, guesses
from weftline.transports.cli.generated import command_for
from weftline.transports.cli.main import weftline

if TYPE_CHECKING:
    from pathlib import Path

    from cli_support import CommandLine

pytestmark = pytest.mark.req("WX-08")


def test_other_verbs_run_the_command_that_they_certainly_mean(launch: CommandLine) -> None:
    launch.run("board", "set", "goal", "Ship")
    assert launch.json("board", "get", "goal")["value"] == "Ship"
    assert [key["key"] for key in launch.json("board", "ls")["keys"]] == ["goal"]
    assert launch.json("session", "show", "launch") == launch.json("session", "get", "launch")
    assert launch.json("session", "show")["session"]["id"] == "launch"
    assert launch.json("knowledge", "list")["domains"] == []
    assert launch.json("board", "rm", "goal", "--yes")["deleted"] == "goal"
    for word in ("reject", "refuse"):
        assert "APPROVAL_NOT_FOUND" in launch.run("approval", word, "approval_1", code=1).stderr


@pytest.mark.parametrize(
    ("line", "suggested"),
    [
        ("agent delete ada", "'disable'?"),
        ("agent show ada", "'list' or 'read-definition'?"),
        ("knowledge rm x", "'delete-document', 'delete-domain' or 'remove-source'?"),
        ("session close launch", "'archive'?"),
        ("run", "'serve'?"),
        ("history find x", None),
    ],
)
def test_words_that_may_mean_much_are_suggested_and_do_nothing(
    line: str, suggested: str | None, launch: CommandLine
) -> None:
    error = launch.run(*line.split(), code=2).stderr
    assert "No such command" in error
    assert (f"Did you mean {suggested}" in error) if suggested else ("Did you mean" not in error)


def test_every_guess_names_a_command_that_exists_and_hides_none() -> None:
    root = click.Context(weftline)
    for table in (guesses._IN_GROUP, guesses._SUGGESTED):
        for group, words in table.items():
            command = weftline.get_command(root, group) if group else weftline
            assert isinstance(command, click.Group), group
            names = command.list_commands(click.Context(command, parent=root if group else None))
            for word, meant in words.items():
                assert word not in names, (group, word)
                assert {meant.split()[0]} <= {*names} if isinstance(meant, str) else {*meant} <= {*names}, (group, word)


@pytest.mark.parametrize(
    ("word", "group"),
    [("sessions", "session"), ("agents", "agent"), ("policies", "policy"), ("record", "records"), ("tool", "tools")],
)
def test_a_group_is_found_in_the_singular_and_in_the_plural(word: str, group: str) -> None:
    assert guesses.same_command("", word, weftline.list_commands(click.Context(weftline))) == group


def test_assemble_is_found_without_its_group(launch: CommandLine) -> None:
    assert launch.run("assemble", "--help").stdout == launch.run("context", "assemble", "--help").stdout
    assert launch.json("sessions", "list") == launch.json("session", "list")


def test_every_list_takes_a_limit(launch: CommandLine) -> None:
    for each in all_operations():
        if each.verb.startswith("list"):
            assert "limit" in {param.name for param in command_for(each).params}, each.name
    for key in ("goal", "scope", "status"):
        launch.run("board", "write", key, "text")
    assert [each["key"] for each in launch.json("board", "list-keys", "--limit", "2")["keys"]] == ["goal", "scope"]
    assert "status" not in launch.run("board", "ls", "--limit", "2").stdout
    assert len(launch.json("board", "list-keys", "--limit", "9")["keys"]) == 3


def test_to_sends_a_message_to_an_agent_and_limit_bounds_a_search(launch: CommandLine) -> None:
    launch.run("agent", "create", "writer")
    launch.run("message", "send", "For you.", "--to", "writer")
    assert [each["content"] for each in launch.json("inbox", "--as", "writer")["messages"]] == ["For you."]
    assert len(launch.json("search", "you", "--limit", "1", "--low-confidence")["results"]) <= 1


@pytest.mark.parametrize(
    "line",
    [
        ["--as", "writer", "--json", "session", "list"],
        ["session", "--as", "writer", "--json", "list"],
        ["session", "list", "--json", "--as", "writer"],
        ["session", "ls", "--as=writer", "--limit", "5", "--json"],
    ],
    ids=" ".join,
)
def test_global_options_and_json_stand_anywhere(line: list[str], launch: CommandLine) -> None:
    launch.run("agent", "create", "writer")
    launch.run("session", "create", "Mine", "--session-id", "mine", "--as", "writer")
    assert '"created_by":"writer"' in launch.run(*line).stdout


def test_an_option_after_the_command_still_beats_the_environment_and_is_refused_twice(
    launch: CommandLine, tmp_path: Path
) -> None:
    launch.env["WEFTLINE_DATABASE_URL"] = str(tmp_path / "other.db")
    assert "There is no Weftline data in the database" in launch.run("session", "list", code=1).stderr
    assert len(launch.json("session", "list", "--data-dir", str(launch.data))["sessions"]) == 1
    assert "--as is given twice" in launch.run("--as", "a", "session", "list", "--as", "b", code=2).stderr
    assert "does not use --tenant" in launch.run("version", "--tenant", "x", code=2).stderr
    assert "does not use --json" in launch.run("--json", "init", "cursor", "--print", code=2).stderr


def test_help_and_status_are_words_too(launch: CommandLine) -> None:
    assert launch.run("help").stdout == launch.run("--help").stdout
    assert launch.run("help", "board").stdout == launch.run("board", "help").stdout == launch.run("board", "-h").stdout
    assert launch.run("help", "board", "set").stdout == launch.run("board", "write", "--help").stdout
    assert launch.run("help", "search").stdout == launch.run("search", "--help").stdout
    assert "No such command 'bard'. Did you mean 'board'?" in launch.run("help", "bard", code=2).stderr
    assert launch.json("status")["healthy"]


def test_the_latest_receipt_needs_no_id(launch: CommandLine) -> None:
    assert "RECEIPT_NOT_FOUND" in launch.run("receipt", "show", "latest", code=1).stderr
    for task in ("First", "Second"):
        launch.run("context", "assemble", task, "--budget", "2000")
    newest = launch.json("receipt", "list", "--limit", "1")["receipts"][0]["receipt_id"]
    assert launch.json("receipt", "show", "latest")["receipt_id"] == newest
    assert launch.json("receipt", "replay", "latest")["receipt_id"] == newest


def test_tools_may_be_auto_or_json(launch: CommandLine) -> None:
    tool = '{"name": "mail_send", "description": "Send a mail to somebody.", "input_schema": {"type": "object"}}'
    launch.run("tools", "register", f"[{tool}]")
    chosen = launch.json("context", "assemble", "Send a mail to Ada", "--tools", "auto")
    assert [each["name"] for each in chosen["body"]["tools"]] == ["mail_send"]
    given = launch.json("context", "assemble", "Send a mail to Ada", "--tools", f"[{tool}]")
    assert [each["name"] for each in given["body"]["tools"]] == ["mail_send"]
    assert "is not JSON" in launch.run("context", "assemble", "x", "--tools", "[", code=2).stderr


@pytest.mark.parametrize("stdin", ["", "\n"], ids=["nothing", "a line feed"])
def test_an_empty_standard_input_overwrites_nothing(stdin: str, launch: CommandLine) -> None:
    launch.run("board", "write", "goal", "Ship")
    launch.run("memory", "set", "note", "Mine")
    for line in (["board", "write", "goal", "-"], ["memory", "set", "note", "-"]):
        assert "standard input is empty" in launch.run(*line, stdin=stdin, code=2).stderr
    assert launch.json("board", "read", "goal")["value"] == "Ship"
    launch.run("board", "write", "goal", "")
    assert launch.json("board", "read", "goal")["value"] == ""
    launch.run("knowledge", "create-domain", "handbook")
    adding = ["knowledge", "add", "handbook", "-", "--name", "a.md", "--no-wait"]
    assert "Standard input is empty" in launch.run(*adding, stdin=stdin, code=2).stderr


def test_a_read_makes_no_installation(cli: CommandLine) -> None:
    for line in (
        ["session", "list"],
        ["board", "read", "goal", "-s", "launch"],
        ["search", "x"],
        ["events", "read"],
        ["export", "-s", "launch"],
        ["audit", "list"],
        ["tenant", "list"],
        ["db", "backup", "copy.weftline"],
    ):
        result = cli.run(*line, code=1)
        assert f"INSTALLATION_NOT_FOUND: There is no Weftline data in the data folder {cli.data}." in result.stderr
    assert not cli.data.exists()
    cli.run("session", "create", "Plan")
    assert len(cli.json("session", "list")["sessions"]) == 1


def test_a_read_makes_no_tenant_in_an_empty_database(cli: CommandLine) -> None:
    cli.run("db", "migrate")
    assert "INSTALLATION_NOT_FOUND" in cli.run("session", "list", code=1).stderr
    assert cli.json("tenant", "list")["tenants"] == []


def test_replacing_a_whole_state_asks(launch: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    launch.run("board", "write", "goal", "Ship")
    launch.run("board", "snapshot", "before")
    launch.run("board", "write", "goal", "Wait")
    for line in (["history", "rollback", "board:launch", "1"], ["board", "restore-snapshot", "before"]):
        refusal = launch.run(*line, code=1).stderr
        assert "CONFIRMATION_NEEDED" in refusal
        assert "replaces what is there now" in refusal
    assert launch.json("board", "read", "goal")["value"] == "Wait"
    monkeypatch.setattr(base, "interactive", lambda: True)
    line = ("history", "rollback", "board:launch", "1", "--reason", "It was better")
    assert "board:launch 1, on" in launch.run(*line, stdin="n\n", code=1).stderr
    assert launch.json("board", "read", "goal")["value"] == "Wait"
    launch.run(*line, stdin="y\n")
    assert launch.json("board", "read", "goal")["value"] == "Ship"
