"""How the command line ends when something goes wrong: one line, what to do next, and an exit code."""

from __future__ import annotations

import click
import msgspec

from weft.kernel.clock import SystemClock
from weft.kernel.errors import Forbidden, Unavailable, WeftError
from weft.transports.cli.render import cell, harmless

FAILED, FORBIDDEN, UNAVAILABLE = 1, 3, 4


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
    click.echo(f"{click.style(error.code, fg='red', bold=True)}: {harmless(error.message)}", err=True)
    alternatives = error.context.get("available_alternatives")
    if alternatives:
        click.echo(f"Did you mean: {cell(alternatives)}", err=True)
    click.echo(f"Hint: {error.hint}", err=True)
    commands = _commands_for(error.related)
    if commands:
        click.echo(f"See: {', '.join(commands)}", err=True)


def _commands_for(tools: tuple[str, ...]) -> list[str]:
    """Return the commands behind the tools an error names; hints are written for agents, who call tools."""
    from weft.app.operations import all_operations  # noqa: PLC0415 - most commands end well

    behind = all_operations().tools()
    found = [behind[tool][0].name for tool in tools if len(behind.get(tool, ())) == 1]
    return [f"weft {name.replace('.', ' ').replace('_', '-')}" for name in found]
