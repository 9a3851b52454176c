"""What all commands share: how they report errors, how they are listed, and ``--json``."""

from __future__ import annotations

from typing import Any

import click

from weft.kernel.errors import WeftError
from weft.transports.cli.failures import exit_code, report

# One object serves every command: ``params=[JSON]``.
JSON = click.Option(
    ["--json", "as_json"], is_flag=True, help="Print the answer, or the error, as JSON on standard output."
)


class Command(click.Command):
    """A command that ends with a line and an exit code, never a traceback, when Weft refuses."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - whatever the command returns
        try:
            return super().invoke(ctx)
        except WeftError as error:
            report(error, as_json=bool(ctx.params.get("as_json")))
            ctx.exit(exit_code(error))


class Group(click.Group):
    """Commands in the order they were defined, with a suggestion for a mistyped one.

    Where there is a ``usual`` one, whatever is no command is meant for it.
    """

    command_class = Command
    usual: str | None = None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {*self.commands, *ctx.help_option_names}
        if self.usual is not None and args and args[0] not in known:
            args = [self.usual, *args]
        return super().parse_args(ctx, args)

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
