"""Base classes of all commands: global options, error reporting, order of listing, and ``--json``."""

from __future__ import annotations

from typing import Any

import click

from weftline.transports.cli import global_options

# Shared by all commands: ``params=[JSON]``.
JSON = click.Option(
    ["--json", "as_json"], is_flag=True, help="Print the answer, or the error, as JSON on standard output."
)

# Likewise, of destructive commands.
YES = click.Option(["--yes", "-y"], is_flag=True, help="Do not ask for confirmation; needed without a terminal.")


class Command(click.Command):
    """Command that reports a WeftlineError as one line and an exit code, never as a traceback."""

    # Global options that the command uses; it refuses the others.
    global_options = global_options.EVERY

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if not error.message.startswith("Got unexpected extra argument"):
                raise
            advice = "Put quotes around text with spaces, and single quotes around JSON."
            raise click.UsageError(f"{error.message}. {advice}", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - the return value of the command
        from weftline.kernel.errors import WeftlineError  # noqa: PLC0415 - help and completion need no errors

        global_options.check(ctx, self.global_options)
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
    """Group that lists commands in definition order and suggests a name for a mistyped one."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and name[:1].isalnum() and self.get_command(ctx, name) is None:
            raise click.exceptions.NoSuchCommand(name, possibilities=self.list_commands(ctx), ctx=ctx)
        return super().resolve_command(ctx, args)


class DataFolderGroup(OrderedGroup):
    """Group of commands that work on the data folder only."""

    command_class = DataFolderCommand
