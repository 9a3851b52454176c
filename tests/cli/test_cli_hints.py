"""Hints of errors: each interface names what its callers can call."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click
import pytest

from weftline.app.registry import all_operations
from weftline.kernel.errors import WeftlineError
from weftline.transports.cli.errors import report
from weftline.transports.cli.main import weftline

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from error_tree import all_errors

# Tools of one word, such as search, are commands too.
TOOLS = {tool for tool in all_operations().tools() if "_" in tool}
ERRORS = all_errors()
_COMMAND = re.compile(r"weftline ([a-z-]+) ([a-z][a-z-]*)")


def named_in(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+(?:_[a-z]+)+", text))


def printed_by(error: type[WeftlineError], capsys: pytest.CaptureFixture[str], *, as_json: bool) -> str:
    report(error(), as_json=as_json)
    return "".join(capsys.readouterr())


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_the_command_line_names_no_tool_and_no_operation(capsys: pytest.CaptureFixture[str], *, as_json: bool) -> None:
    for error in ERRORS:
        printed = printed_by(error, capsys, as_json=as_json)
        hint = printed if as_json else printed.partition("Hint: ")[2]
        assert not named_in(hint) & TOOLS, error.code
        assert "`" not in hint, error.code


def test_commands_in_hints_exist(capsys: pytest.CaptureFixture[str]) -> None:
    for error in ERRORS:
        for group, verb in _COMMAND.findall(printed_by(error, capsys, as_json=False)):
            command = weftline.get_command(click.Context(weftline), group)
            assert command is not None, error.code
            if isinstance(command, click.Group):
                assert verb in command.list_commands(click.Context(command)), error.code


def test_fields_are_named_as_flags_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [click.Option(["--session", "-s", "session_id"]), click.Argument(["agent_id"])]
    report(WeftlineError("No.", hint="Check the session_id and the agent_id."), flags, as_json=False)
    assert "Hint: Check the --session and the AGENT_ID." in capsys.readouterr().err
