"""Errors of commands: output, stream and exit code."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from cli_support import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from cli_support import CommandLine


def test_an_error_prints_code_message_alternatives_and_hint_on_standard_error(launch: CommandLine) -> None:
    launch.run("board", "write", "goal", "Ship")
    result = launch.run("board", "read", "gaol", code=1)
    assert result.stdout == ""
    assert result.stderr.splitlines()[:2] == ["KEY_NOT_FOUND: The board has no key 'gaol'.", "Did you mean: goal"]
    assert result.stderr.splitlines()[2].startswith("Hint: ")


def test_an_error_names_the_commands_that_help(launch: CommandLine) -> None:
    stderr = launch.run("session", "get", "nothing", code=1).stderr
    assert "See: weftline session list, weftline session create" in stderr


def test_forgotten_quotes_are_explained(launch: CommandLine) -> None:
    stderr = launch.run("context", "assemble", "Who", "owns", "it?", code=2).stderr
    assert "Put quotes around text with spaces" in stderr


def test_json_output_prints_the_error_body_on_standard_output(launch: CommandLine) -> None:
    result = launch.run("board", "read", "gaol", "--json", code=1)
    assert result.stderr == ""
    body = launch.json("board", "read", "gaol", code=1)
    assert (body["success"], body["code"]) == (False, "KEY_NOT_FOUND")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["session", "get", "nothing"], 1),
        (["session", "create", "again", "--session-id", "launch"], 1),
        (["board", "write", "Not A Key", "x"], 1),
        (["board", "write", "goal"], 2),
        (["session", "list", "--limit", "0"], 2),
        (["session", "list", "--nonsense"], 2),
        (["--as", "nobody", "session", "list"], 3),
        (["--data-dir", "/dev/null/nowhere", "session", "create", "x"], 4),
        (["--database-url", "mysql://x", "session", "list"], 1),
    ],
)
def test_the_exit_code_depends_on_the_kind_of_error(command: list[str], code: int, launch: CommandLine) -> None:
    launch.run(*command, code=code)


def test_a_missing_session_is_a_usage_error(cli: CommandLine) -> None:
    assert "Missing option '--session' / '-s'" in cli.run("board", "list-keys", code=2).stderr


@pytest.mark.req("WX-08")
@pytest.mark.parametrize(
    ("line", "code", "advice"),
    [
        ("board list-keys", 2, "weftline session list shows yours."),
        ("board write goal x --ttl 5", 2, "Did you mean '--ttl-seconds'?"),
        ('context ingest [{"id":"q1"}] -s s1', 1, "did you mean `event_id`?"),
        ("context ingest hello -s s1", 2, "is not JSON: invalid character"),
        ("knowledge show-domain handbook", 1, "or create it with weftline knowledge create-domain."),
        (
            "--url http://127.0.0.1:9 session list",
            4,
            "cannot be reached at http://127.0.0.1:9 (All connection attempts",
        ),
    ],
)
def test_a_first_mistake_is_answered_with_what_to_do(line: str, code: int, advice: str, cli: CommandLine) -> None:
    cli.run("session", "create", "Plan", "--session-id", "s1")
    assert advice in cli.run(*line.split(), code=code).stderr


def test_a_refused_command_prints_no_traceback_and_no_log_line(launch: CommandLine) -> None:
    ended = launch.process("--as", "nobody", "session", "list")
    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr.startswith("AUTHENTICATION_ERROR: ")
    assert len(ended.stderr.splitlines()) <= 3


def test_a_damaged_database_is_reported_with_a_hint(cli: CommandLine, tmp_path: Path) -> None:
    cli.data.mkdir()
    (cli.data / "weftline.db").write_bytes(b"not a database at all" * 1_000)
    assert "weftline db restore" in cli.run("session", "list", code=1).stderr


def test_error_context_is_printed(launch: CommandLine) -> None:
    envelope = {
        "schema_version": "0.1.0",
        "context_id": "turn-7",
        "scope": "turn",
        "lifecycle": "expired",
        "created_at": "2026-05-08T12:30:00Z",
    }
    launch.run("records", "add", json.dumps(envelope))
    refused = launch.run("records", "set-lifecycle", "turn-7", "draft", code=1).stderr.splitlines()
    assert refused[1] == "allowed: archived"
    launch.run("missing", "report", "Which day?", "--missing-id", "day")
    launch.run("missing", "resolve", "day", "--resolution-refs", "board:launch/day/1.1")
    again = launch.run("missing", "resolve", "day", "--answer", "Friday", code=1).stderr.splitlines()
    assert again[1] == "resolution_refs: board:launch/day/1.1"


def test_hints_name_commands_instead_of_tools(launch: CommandLine) -> None:
    missing = launch.run("missing", "resolve", "day", "--answer", "Friday", code=1).stderr
    assert "Hint: See what is missing with weftline missing list.\nSee: weftline missing --help\n" in missing
    unknown = launch.run("export", "--policy", "nothing", code=1).stderr
    assert "Hint: List the policies you may use with weftline policy list.\nSee: weftline policy --help\n" in unknown
    assert "See: weftline import, weftline export\n" in launch.run("import", "-", stdin="no bundle\n", code=1).stderr


def test_an_undelivered_webhook_test_is_a_failure(launch: CommandLine) -> None:
    launch.env["WEFTLINE_WEBHOOK_PRIVATE_HOSTS"] = "127.0.0.1"
    made = launch.json("webhook", "create", f"http://127.0.0.1:{free_port()}/")
    assert "delivered: no" in launch.run("webhook", "test", made["webhook_id"], code=1).stdout


@pytest.mark.req("WX-08")
def test_a_version_conflict_shows_who_changed_what(launch: CommandLine) -> None:
    launch.run("board", "write", "goal", "Ship on Friday")
    launch.run("board", "write", "goal", "Ship on Monday")
    shown = launch.run("board", "write", "goal", "Ship now", "--if-version", "1", code=1).stderr.splitlines()
    assert shown[0] == "VERSION_CONFLICT: The key 'goal' is at version 2, not 1."
    assert "and write with --if-version 2." in " ".join(shown)
    assert re.fullmatch(r"Changed by human:admin at \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", shown[1])
    assert shown[2:5] == ["  @@ -1 +1 @@", "  -Ship on Friday", "  +Ship on Monday"]
    launch.run("board", "delete", "goal", "--yes")
    gone = launch.run("board", "write", "goal", "Ship now", "--if-version", "2", code=1).stderr
    assert "Deleted by human:admin at " in gone


@pytest.mark.req("WX-08")
def test_a_conflict_of_a_push_lists_what_changed(launch: CommandLine) -> None:
    launch.run("agent", "create", "planner")
    launch.run("--as", "planner", "push", "limit", "100")
    launch.run("--as", "planner", "push", "limit", "200")
    refused = launch.run("--as", "planner", "push", "limit", "300", "--if-version", "1", code=1).stderr
    assert re.search(r"\n  write learned_knowledge/limit \(version 2\) by orchestrator:planner at \d{4}-", refused)


def test_a_new_key_is_said_to_be_shown_only_once(cli: CommandLine) -> None:
    made = cli.run("agent", "create", "planner")
    assert "api_key:" in made.stdout
    assert "it is shown only once" in made.stderr
    assert "shown only once" not in cli.run("key", "create", "planner", "--json").stderr
