"""Error output of the command line: one line, a hint with commands and flags, and an exit code."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from weftline.kernel.clock import SystemClock
from weftline.kernel.errors import AuthenticationError, Forbidden, Unavailable, WeftlineError
from weftline.transports.cli.command_names import command_name
from weftline.transports.cli.render import cell, escape_controls

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weftline.kernel.errors import ErrorBody
    from weftline.kernel.operation import Operation
    from weftline.transports.cli.target import Target

FAILED, FORBIDDEN, UNAVAILABLE = 1, 3, 4
# Hand-written commands that replace generated ones.
_HAND_WRITTEN = {"bundle.export": "export", "bundle.import": "import"}


def exit_code(error: WeftlineError) -> int:
    if isinstance(error, Forbidden):
        return FORBIDDEN
    return UNAVAILABLE if isinstance(error, Unavailable) else FAILED


def report(error: WeftlineError, params: Sequence[click.Parameter] = (), *, as_json: bool) -> None:
    """Print an error of a command with these parameters: text on standard error, or JSON on standard output."""
    timestamp = SystemClock().now().isoformat().replace("+00:00", "Z")
    body = _in_commands(error.body(timestamp, as_command), params)
    if isinstance(error, AuthenticationError):
        body = _about_credential(body, click.get_current_context(silent=True))
    if as_json:
        click.echo(msgspec.json.encode(body))
        return
    click.echo(f"{click.style(body.code, fg='red', bold=True)}: {escape_controls(body.error)}", err=True)
    for line in _changes(body.context):
        click.echo(escape_controls(line), err=True)
    alternatives = body.context.get("available_alternatives")
    if alternatives:
        click.echo(f"Did you mean: {cell(alternatives)}", err=True)
    for name, value in body.context.items():
        if f"'{name}'" in error.hint_template:
            click.echo(f"{name}: {cell(value)}", err=True)
    click.echo(f"Hint: {escape_controls(' '.join(body.suggestions))}", err=True)
    if body.related_resources:
        click.echo(f"See: {', '.join(body.related_resources)}", err=True)


def _in_commands(body: ErrorBody, params: Sequence[click.Parameter]) -> ErrorBody:
    """Return an error that names commands and flags instead of operations, tools and fields."""
    from weftline.app.registry import all_operations  # noqa: PLC0415 - most commands succeed

    version = body.context.get("current_version")
    hints = [_with_flags(hint, params).replace(" = current_version", f" {version}") for hint in body.suggestions]
    tools = all_operations().tools() if body.related_resources else {}
    related = list(_related(tools[name] for name in body.related_resources if name in tools))
    return msgspec.structs.replace(body, suggestions=hints, related_resources=related)


def _changes(context: dict[str, Any]) -> Iterator[str]:
    """Yield what changed since the version that the caller expected: who, when, and a diff of the value."""
    if "current_version" in context and "changed_at" in context:
        what = {"delete": "Deleted", "expire": "Expired"}.get(context.get("change", ""), "Changed")
        who = f" by {context['changed_by']}" if "changed_by" in context else ""
        fields = f": {', '.join(context['changed'])}" if "changed" in context else ""
        yield f"{what}{who} at {cell(_time(context['changed_at']))}{fields}"
    for line in context.get("diff", "").splitlines():
        yield f"  {line}"
    for entry in context.get("changed_since", ()):
        where = f"{entry['memory_type']}/{entry['key']}"
        yield f"  {entry['act']} {where} (version {entry['version']}) by {entry['by']} at {cell(_time(entry['at']))}"


def _time(at: str | datetime) -> datetime:
    """Return a time of an error's context, which is text if a server sent it."""
    return datetime.fromisoformat(at) if isinstance(at, str) else at


def _about_credential(body: ErrorBody, ctx: click.Context | None) -> ErrorBody:
    """Return an error about the caller's credential that says where the command takes it from."""
    target: Target | None = None if ctx is None else ctx.obj
    if target is None or ctx is None or ctx.command_path == "weftline token issue":
        return body
    *_, hint = body.suggestions
    if target.url and not target.key:
        hint = (
            "Set WEFTLINE_API_KEY to an API key or token of this server, or give a file with --key @FILE. "
            "An admin creates one with weftline key create AGENT."
        )
        return msgspec.structs.replace(body, error=f"The server {target.url} needs an API key.", suggestions=[hint])
    if target.url:
        # The command itself sends the header that the server's hint asks for.
        hint = "An admin creates one with weftline key create AGENT." if "Authorization" in hint else hint
        hint = f"The key comes from WEFTLINE_API_KEY or --key @FILE, and must be one of the server {target.url}. {hint}"
    elif target.key and not target.principal:
        hint = (
            "The key comes from WEFTLINE_API_KEY or --key @FILE. It is not one of this data folder, which needs none: "
            "unset it, or name an agent with --as."
        )
    return msgspec.structs.replace(body, suggestions=[hint])


def _with_flags(hint: str, params: Sequence[click.Parameter]) -> str:
    """Replace the fields of the request by the command's flags and arguments; single words stay, as English."""
    flags = {param.name: _flag(param) for param in params if param.name and "_" in param.name}
    return re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", lambda word: flags.get(word[0], word[0]), hint)


def _flag(param: click.Parameter) -> str:
    return param.opts[0] if isinstance(param, click.Option) else (param.name or "").upper()


def _related(tools: Iterator[list[Operation]]) -> Iterator[str]:
    """Yield the command of each tool, or the help of its group if the tool has several operations."""
    for first, *others in tools:
        yield f"weftline {command_name(first.group)} --help" if others else as_command(first.name)


def as_command(name: str) -> str:
    """Return the command of an operation."""
    return f"weftline {_HAND_WRITTEN.get(name) or command_name(name)}"
