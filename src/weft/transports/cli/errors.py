"""How the command line ends when something goes wrong: one line, what to do next, and an exit code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
import msgspec

from weft.kernel.clock import SystemClock
from weft.kernel.errors import Forbidden, Unavailable, WeftError
from weft.kernel.hints import render_hint
from weft.transports.cli.render import cell, escape_controls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.kernel.operation import Operation

FAILED, FORBIDDEN, UNAVAILABLE = 1, 3, 4
# Commands that are written by hand, in the place of those of these operations.
_WRITTEN = {"bundle.export": "weft export", "bundle.import": "weft import"}
_ACTION = re.compile(r"the action (\w+)(?: of \w+)?")


def exit_code(error: WeftError) -> int:
    if isinstance(error, Forbidden):
        return FORBIDDEN
    return UNAVAILABLE if isinstance(error, Unavailable) else FAILED


def report(error: WeftError, *, as_json: bool) -> None:
    """Tell a human on standard error, or a program on standard output."""
    if as_json:
        timestamp = SystemClock().now().isoformat().replace("+00:00", "Z")
        click.echo(msgspec.json.encode(error.body(timestamp)))
        return
    click.echo(f"{click.style(error.code, fg='red', bold=True)}: {escape_controls(error.message)}", err=True)
    alternatives = error.context.get("available_alternatives")
    if alternatives:
        click.echo(f"Did you mean: {cell(alternatives)}", err=True)
    for name, value in error.context.items():
        if f"'{name}'" in error.hint:
            click.echo(f"{name}: {cell(value)}", err=True)
    behind = _operations_behind(error.related)
    click.echo(f"Hint: {_in_commands(error.hint, behind)}", err=True)
    if behind:
        click.echo(f"See: {', '.join(_commands(behind))}", err=True)


def _operations_behind(tools: tuple[str, ...]) -> list[list[Operation]]:
    """Return the operations of the tools that an error names: it is written for agents, who call tools."""
    from weft.app.registry import all_operations  # noqa: PLC0415 - most commands end well

    known = all_operations().tools()
    return [known[tool] for tool in tools if tool in known]


def _in_commands(hint: str, behind: list[list[Operation]]) -> str:
    """Return a hint with commands in the place of actions of tools."""
    if "`" in hint:
        from weft.app.registry import all_operations  # noqa: PLC0415 - most commands end well

        hint = render_hint(hint, all_operations(), _command)
    by_action = {operation.action: _command(operation) for operations in behind for operation in operations}
    return _ACTION.sub(lambda found: by_action.get(found[1], found[0]), hint)


def _commands(behind: list[list[Operation]]) -> Iterator[str]:
    """Yield the command behind each tool, or where there are several, what lists them."""
    for first, *others in behind:
        yield f"weft {_dashed(first.group)} --help" if others else _command(first)


def _command(operation: Operation) -> str:
    return _WRITTEN.get(operation.name, f"weft {_dashed(operation.group)} {_dashed(operation.verb)}")


def _dashed(name: str) -> str:
    return name.replace("_", "-")
