"""What all commands share: how they report errors, how they are listed, and ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from weft.kernel.errors import WeftError
from weft.transports.cli.errors import exit_code, report

if TYPE_CHECKING:
    from collections.abc import Iterable

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


class OrderedGroup(click.Group):
    """Commands in the order they were defined, with a suggestion for a mistyped one."""

    command_class = Command

    def lead_with(self, commands: Iterable[click.Command]) -> None:
        """Put commands before the others; one that takes the place of another stands where that stood."""
        added = {command.name or "": command for command in commands}
        new = {name: command for name, command in added.items() if name not in self.commands}
        self.commands = {**new, **self.commands, **added}

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


class GroupWithUsual(OrderedGroup):
    """A group with a ``usual`` command: what is no command is meant for it, and help shows it as the group's own."""

    usual: click.Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = [self.usual.name or "", *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, " ".join(self.usual.collect_usage_pieces(ctx)))
        formatter.write_usage(ctx.command_path, self.subcommand_metavar, prefix="   or: ")

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.usual.format_arguments(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.usual.format_options(ctx, formatter)
        self.format_commands(ctx, formatter)
