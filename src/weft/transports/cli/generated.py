"""Commands derived from the registry: ``weft <group> <verb>`` for every operation there is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from weft.transports.cli import events, knowledge_sources, records
from weft.transports.cli import knowledge_add as documents
from weft.transports.cli.base import JSON, Command, GroupWithUsual, OrderedGroup
from weft.transports.cli.errors import FAILED
from weft.transports.cli.formatters import history, policies
from weft.transports.cli.formatters import missing_context as missing
from weft.transports.cli.formatters import records as record_forms
from weft.transports.cli.formatters import search as retrieval
from weft.transports.cli.params import given, parameters
from weft.transports.cli.render import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from weft.kernel.operation import Operation
    from weft.transports.cli.target import Target

# What cannot be taken back is asked about first, where somebody is there to answer.
IRREVERSIBLE = frozenset(
    {
        "session.delete",
        "history.delete_branch",
        "history.prune",
        "key.revoke",
        "signing_key.rotate",
        "webhook.delete",
        "knowledge.delete_domain",
    }
)
_FORMS = {
    **documents.FORMS,
    **history.FORMS,
    **knowledge_sources.FORMS,
    **missing.FORMS,
    **policies.FORMS,
    **records.FORMS,
    **record_forms.FORMS,
    **retrieval.FORMS,
}
# What was asked for was not done, or is not so, though nothing was refused.
_UNDONE: dict[str, Callable[[Any], bool]] = {
    "history.merge": lambda answer: not answer.merged,
    "history.verify": lambda answer: not answer.intact,
    "webhook.test": lambda answer: not answer.delivered,
}
# What is meant where no command of a group is named.
_USUAL = {"search": "everything"}
_YES = click.Option(["--yes", "-y"], is_flag=True, help="Do not ask whether you are sure.")


def group_of(name: str, summary: str, operations: Iterable[Operation]) -> OrderedGroup:
    """Return the group that holds these operations, in the order of their definition, what creates things first."""
    ordered = sorted(operations, key=lambda operation: operation.verb != "create")
    commands = {dashed(operation.verb): command_for(operation) for operation in ordered}
    if name not in _USUAL:
        return OrderedGroup(name, commands=commands, help=summary, no_args_is_help=True)
    group = GroupWithUsual(name, commands=commands, help=summary, no_args_is_help=True)
    group.usual = commands[_USUAL[name]]
    return group


def command_for(operation: Operation) -> click.Command:
    extra = [_YES, JSON] if operation.name in IRREVERSIBLE else [JSON]
    return Command(
        dashed(operation.verb),
        params=[*parameters(operation), *extra],
        callback=_callback(operation),
        help=operation.help.replace("``", "'"),
        short_help=operation.summary.replace("``", "'"),
        epilog=_epilog(operation),
    )


def dashed(name: str) -> str:
    return name.replace("_", "-")


def _callback(operation: Operation) -> Any:  # noqa: ANN401 - click wraps it
    @click.pass_context
    def call(ctx: click.Context, /, **options: Any) -> None:  # noqa: ANN401 - click hands over every parameter
        if operation.name in IRREVERSIBLE and not options["yes"] and interactive():
            click.confirm(f"{operation.summary} Are you sure?", abort=True, err=True)
        target: Target = ctx.obj
        if events.is_export(operation, options):
            events.export(target, given(ctx, operation))
            return
        answer = target.call(operation, given(ctx, operation))
        show(answer, as_json=options["as_json"], form=_FORMS.get(operation.name))
        if operation.name in _UNDONE and _UNDONE[operation.name](answer):
            ctx.exit(FAILED)

    return call


def interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _epilog(operation: Operation) -> str:
    needs = f"Needs the permission '{operation.permission}'. " if operation.permission else ""
    errors = ", ".join(sorted({error.code for error in operation.errors}))
    return needs + (f"Can fail with {errors}." if errors else "")
