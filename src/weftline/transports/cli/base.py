"""Base classes of all commands: global options, error reporting, order of listing, and ``--json``."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click
import msgspec

from weftline.kernel.errors import Rejected
from weftline.transports.cli import global_options, guesses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.operation import Operation
    from weftline.transports.cli.target import Target


_WHOLE_SENTENCE = 200
# Shared by all commands: ``params=[JSON]``.
JSON = click.Option(
    ["--json", "as_json"], is_flag=True, help="Print the answer, or the error, as JSON on standard output."
)

# Likewise, of commands that list everything.
LIMIT = click.Option(["--limit"], type=click.IntRange(min=1), help="Show at most this many.")
# Likewise, of destructive commands.
YES = click.Option(["--yes", "-y"], is_flag=True, help="Do not ask for confirmation; needed without a terminal.")


class Command(click.Command):
    """Command that reports a WeftlineError as one line and an exit code, never as a traceback."""

    # Global options that the command uses; it refuses the others.
    global_options = global_options.EVERY

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *global_options.repeated(ctx, self.params)]

    def get_short_help_str(self, limit: int = _WHOLE_SENTENCE) -> str:
        """Return the whole first sentence, which the list of commands wraps."""
        return super().get_short_help_str(max(limit, _WHOLE_SENTENCE))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            names = [name for param in self.params for name in param.opts if name.startswith(error.option_name)]
            if not names:
                raise
            meant = " or ".join(f"'{name}'" for name in names)
            raise click.UsageError(f"No such option '{error.option_name}'. Did you mean {meant}?", ctx) from None
        except click.MissingParameter as error:
            if error.param is None or error.param.name != "session_id":
                raise
            advice = "weftline session list shows yours."
            raise click.UsageError(f"{error.format_message()} {advice}", ctx) from None
        except click.UsageError as error:
            if not error.message.startswith("Got unexpected extra argument"):
                raise
            advice = "Put quotes around text with spaces, and single quotes around JSON."
            raise click.UsageError(f"{error.message}. {advice}", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - the return value of the command
        from weftline.kernel.errors import WeftlineError  # noqa: PLC0415 - help and completion need no errors

        global_options.check(ctx, self.global_options)
        global_options.apply_json(ctx)
        try:
            return super().invoke(ctx)
        except WeftlineError as error:
            from weftline.transports.cli.errors import exit_code, report  # noqa: PLC0415 - most commands succeed

            report(error, self.params, as_json=bool(ctx.params.get("as_json")))
            ctx.exit(exit_code(error))


class DataFolderCommand(Command):
    """Command that works on the data folder only, also if WEFTLINE_URL names a server."""

    global_options = global_options.DATA_FOLDER

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - the return value of the command
        global_options.note_unused_server(ctx, self.global_options)
        return super().invoke(ctx)


class OfflineCommand(Command):
    """Command that needs neither a server nor a data folder."""

    global_options = global_options.NONE


class OrderedGroup(click.Group):
    """Group that lists commands in definition order, knows other words for them, and explains them with ``help``."""

    command_class = Command

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *global_options.repeated(ctx, self.params)]

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *rest = args
        if ctx.resilient_parsing or not name[:1].isalnum() or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        if name == "help":
            click.echo(self._help(ctx, rest))
            ctx.exit()
        group, names = self.name or "" if ctx.parent else "", self.list_commands(ctx)
        meant = guesses.same_command(group, name, names)
        if meant is not None:
            return super().resolve_command(ctx, [*meant.split(), *rest])
        similar = guesses.similar_commands(group, name, names) or get_close_matches(name, names)
        raise click.UsageError(f"No such command '{name}'.{_did_you_mean(similar)}", ctx)

    def _help(self, ctx: click.Context, path: list[str]) -> str:
        """Return the help of a command below this group, given by its words."""
        if not path:
            return ctx.get_help()
        name, command, rest = self.resolve_command(ctx, path)
        assert command is not None  # noqa: S101 - an unknown one is an error
        inner = click.Context(command, parent=ctx, info_name=name)
        return command._help(inner, rest) if isinstance(command, OrderedGroup) else inner.get_help()  # noqa: SLF001


def _did_you_mean(names: Sequence[str]) -> str:
    """Return a question for one name or several, or nothing for none."""
    *others, last = [f"'{name}'" for name in names] or [""]
    return f" Did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if last else ""


class DataFolderGroup(OrderedGroup):
    """Group of commands that work on the data folder only."""

    command_class = DataFolderCommand


# Commands that destroy, replace or take away something: they ask first, or need ``--yes`` without a terminal.

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
