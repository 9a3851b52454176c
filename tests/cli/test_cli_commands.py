"""Every operation is a command, every command explains itself, and help is quick."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

from weftline.app.registry import all_operations
from weftline.transports.cli.command_names import command_name
from weftline.transports.cli.main import weftline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli_support import CommandLine

    from weftline.kernel.operation import Operation

OPERATIONS = list(all_operations())
HEAVY = [
    "apsw",
    "asyncpg",
    "httpx2",
    "joserfc",
    "limits",
    "mcp",
    "obstore",
    "prometheus_client",
    "starlette",
    "uvicorn",
    "valkey",
]


def _path(operation: Operation) -> tuple[str, ...]:
    return tuple(command_name(operation.name).split())


def _all_commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _all_commands(command, *path, name)
        else:
            yield (*path, name), command


COMMANDS = dict(_all_commands(weftline))


def test_every_operation_is_a_command_with_a_parameter_for_each_field(subtests: pytest.Subtests) -> None:
    for operation in OPERATIONS:
        with subtests.test(operation.name):
            names = {parameter.name for parameter in COMMANDS[_path(operation)].params}
            assert {*operation.request.__struct_fields__, "as_json"} <= names


def test_every_command_that_answers_can_answer_as_json() -> None:
    without = {path for path, command in COMMANDS.items() if "as_json" not in {p.name for p in command.params}}
    hooks = {("hooks", name) for name in ("on", "off", "serve", "send")}
    assert without == {("console",), ("demo",), ("serve",), ("proxy",), ("wrap",), ("mcp",), ("init",), *hooks}


def test_every_command_and_every_parameter_has_help(cli: CommandLine, subtests: pytest.Subtests) -> None:
    for path, command in COMMANDS.items():
        with subtests.test(" ".join(path)):
            assert command.help
            assert [p.name for p in command.params if not getattr(p, "help", None)] == []
            assert cli.run(*path, "--help").stdout.startswith(f"Usage: weftline {' '.join(path)} ")


def test_required_fields_are_positional_and_the_session_is_an_option(cli: CommandLine) -> None:
    usage = cli.run("board", "write", "--help").stdout
    assert "Usage: weftline board write [OPTIONS] KEY VALUE" in usage
    assert "-s, --session TEXT" in usage
    assert "WEFTLINE_SESSION" in usage


def test_session_commands_take_the_session_id_as_an_argument(cli: CommandLine) -> None:
    assert "Usage: weftline session get [OPTIONS] SESSION_ID" in cli.run("session", "get", "--help").stdout


def test_help_shows_type_range_default_and_choices(cli: CommandLine) -> None:
    listing = " ".join(cli.run("session", "list", "--help").stdout.split())
    assert "--limit INTEGER RANGE At most this many. [default: 50; 1<=x<=1000]" in listing
    creating = " ".join(cli.run("agent", "create", "--help").stdout.split())
    assert "[default: read, write]" in creating
    assert "--kind [agent|human]" in creating


def test_an_optional_flag_has_a_negative_form(cli: CommandLine) -> None:
    assert "--disabled / --no-disabled" in cli.run("agent", "update", "--help").stdout
    assert "--no-include-archived" not in cli.run("session", "list", "--help").stdout


def test_help_names_the_permission_and_the_errors(cli: CommandLine) -> None:
    text = " ".join(cli.run("board", "read", "--help").stdout.split())
    assert "Needs the permission 'read'." in text
    assert "KEY_NOT_FOUND" in text


def test_weftline_alone_prints_help_with_every_group_examples_and_completion(cli: CommandLine) -> None:
    text = cli.run(code=2).output
    assert text == cli.run("--help").output
    listed = {line.split()[0] for line in text.splitlines() if line.startswith("  ") and line.strip()}
    assert {path[0] for path in COMMANDS} <= listed
    assert "weftline board write goal" in text
    assert "_WEFTLINE_COMPLETE=bash_source" in text


def test_a_mistyped_command_is_answered_with_the_nearest_one(cli: CommandLine) -> None:
    assert "Did you mean 'board'?" in cli.run("boar", code=2).stderr
    assert "Did you mean 'write'?" in cli.run("board", "wriet", code=2).stderr


def test_help_loads_no_database_server_or_http_client() -> None:
    program = (
        "import sys\nfrom weftline.transports.cli.main import weftline\n"
        "try: weftline(['--help'])\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=180, check=True)
    assert ended.stderr.strip() == "[]"


def test_completion_offers_commands(cli: CommandLine) -> None:
    ended = cli.process(_WEFTLINE_COMPLETE="bash_complete", COMP_WORDS="weftline bo", COMP_CWORD="1")
    assert ended.stdout.strip() == "plain,board"


def test_version_names_weftline_python_and_sqlite(cli: CommandLine) -> None:
    assert set(cli.json("version")) == {"weftline", "python", "sqlite"}
    assert cli.run("--version").stdout.startswith("weftline ")


def test_common_commands_come_first_with_full_summaries(cli: CommandLine) -> None:
    listed = cli.run("knowledge", "--help").stdout.partition("Commands:")[2]
    names = [line.split()[0] for line in listed.splitlines() if line.startswith("  ") and line[2] != " "]
    assert names[:2] == ["add", "watch"]
    assert "..." not in listed


def test_help_of_search_names_the_query_and_no_session_variable(cli: CommandLine) -> None:
    shown = cli.run("search", "--help").stdout
    assert shown.startswith("Usage: weftline search [OPTIONS] QUERY\n")
    assert "QUERY  A question or keywords." in shown
    assert "--top-k" in shown
    assert "WEFTLINE_SESSION" not in shown
