"""Commands that destroy, replace or take away something: they ask first, or need ``--yes`` without a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from weftline.kernel.errors import Rejected

if TYPE_CHECKING:
    from weftline.kernel.operation import Operation
    from weftline.transports.cli.target import Target

# What an operation did, by the first word of its name.
_DONE = {
    "delete": "Deleted",
    "remove": "Removed",
    "revoke": "Revoked",
    "rotate": "Replaced",
    "prune": "Pruned",
    "cancel": "Cancelled",
    "discard": "Discarded",
}
# Fields of requests that name nothing that the operation changes.
_REMARKS = frozenset({"reason", "step"})
_REPLACES = "replaces what is there now, which stays in history"
# Operations that lose nothing, or nothing yet, but take something away from those who work with it: what each does.
_TAKING = {
    "board.delete": "deletes the key for everyone, and keeps its history",
    "board.restore_snapshot": _REPLACES,
    "context.copy": _REPLACES,
    "history.clear_retention": "may let retention remove more",
    "history.rollback": _REPLACES,
    "session.archive": "makes the session read-only for good",
    "session.remove_members": "takes away their access at once",
    "step.remove": "leaves credentials that are bound to the step without calls",
    "team.remove_member": "takes away access at once",
    "tools.remove": "takes the tool away from every agent",
    "window.restore": _REPLACES,
}


class ConfirmationNeeded(Rejected):
    """The command removes or replaces something, and there is no terminal to ask in."""

    code = "CONFIRMATION_NEEDED"
    hint = "Nothing was changed. Repeat the command with --yes."


def asks(operation: Operation) -> bool:
    """Tell whether the command of an operation asks first."""
    return operation.destructive or operation.name in _TAKING


def confirm(ctx: click.Context, target: Target, operation: Operation, request: dict[str, Any]) -> None:
    """Ask whether to run an operation of which ``asks`` is true; raise ConfirmationNeeded without a terminal."""
    subject = f"{_subject(operation, request)}, on {target.place}"
    effect = _TAKING.get(operation.name, "cannot be undone")
    if not interactive():
        raise ConfirmationNeeded(f"'{ctx.command_path}' {effect}: {subject}.")
    ask(f"{operation.summary}\nThis {effect}: {subject}. Are you sure?")


def is_dry_run(operation: Operation, request: dict[str, Any]) -> bool:
    """Tell whether a request only shows what the operation would do."""
    fields = {field.name: field.default for field in msgspec.structs.fields(operation.request)}
    return request.get("dry_run", fields.get("dry_run", False)) is True


def ask(question: str) -> None:
    """Ask on standard error; anything but yes ends the command."""
    click.confirm(question, abort=True, err=True)


def interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def render_removed(operation: Operation, request: dict[str, Any], answer: msgspec.Struct) -> str:
    """Say what a destructive operation removed, then what else it returned."""
    from weftline.transports.cli.render import escape_controls, render_rest  # noqa: PLC0415 - only to run the command

    done = f"{_DONE[operation.verb.partition('_')[0]]} {_subject(operation, request)}."
    return "\n".join(filter(None, [escape_controls(done), render_rest(answer, without=request.keys())]))


def _subject(operation: Operation, request: dict[str, Any]) -> str:
    """Return what an operation removes: the noun of its name, and the ids in the request."""
    noun = operation.verb.partition("_")[2] or operation.group
    ids = [value for name, value in request.items() if isinstance(value, str) and name not in _REMARKS]
    return " ".join([noun.replace("_", " "), *ids])
