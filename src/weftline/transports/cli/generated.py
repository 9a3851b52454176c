"""Commands generated from the registry: ``weftline <group> <verb>`` for each operation.

Groups list their commands from the generated command table; a command is built, and its operation imported, on use.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from weftline.transports.cli.base import JSON, LIMIT, YES, Command, OrderedGroup
from weftline.transports.cli.command_names import TOP_LEVEL, command_table, is_top_level

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import msgspec

    from weftline.kernel.operation import Operation
    from weftline.transports.cli.target import Target

# Operations whose formatters also take what was searched for, and the field of the request that has it.
_QUERY_FIELDS = {"search.query": "query", "search.find_similar": "text"}
# Refusals that ``force`` overrides: in a terminal, the command asks and tries again.
_OVERRIDABLE = {"session.delete": "SESSION_IN_USE"}
# Module with the formatters of a group's answers, or of one operation's.
_FORMATTERS = {
    "alerts": "formatters.alerts",
    "advise": "formatters.advice",
    "approval": "formatters.approvals",
    "trust": "formatters.trust",
    "compaction": "formatters.compactions",
    "context": "formatters.receipts",
    "context.compact": "formatters.compactions",
    "entity": "formatters.search",
    "history": "formatters.history",
    "knowledge": "formatters.knowledge",
    "missing": "formatters.missing_context",
    "pin": "formatters.search",
    "policy": "formatters.transfer",
    "receipt": "formatters.receipts",
    "records": "formatters.records",
    "search": "formatters.search",
    "usage": "formatters.usage",
    "window": "formatters.windows",
}
# Command of a group that its name alone stands for.
_DEFAULT = {"usage": "report", "advise": "list", "alerts": "list"}
# Module with the hand-written commands of a group.
_HAND_WRITTEN = {"agent": "agents", "gateway": "gateway_import", "records": "records", "knowledge": "knowledge_add"}
# Answers without an error that still mean failure: the command exits with 1.
_UNSUCCESSFUL: dict[str, Callable[[Any], bool]] = {
    "approval.approve": lambda answer: answer.failed_with is not None or answer.state == "pending",
    "history.merge": lambda answer: not answer.merged,
    "history.verify": lambda answer: not answer.intact,
    "knowledge.evaluate_domain": lambda answer: answer.found < len(answer.questions),
    "webhook.test": lambda answer: not answer.delivered,
}


class OperationGroup(OrderedGroup):
    """Group of operations, listed from the command table without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(command_table().get(self.name or "", ()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        default = _DEFAULT.get(self.name or "")
        if default is not None and not ctx.resilient_parsing and (not args or _is_option(args[0])):
            args = [default, *args]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        group = _underscored(self.name or "")
        hand_written = _hand_written(group).get(cmd_name)
        if hand_written is not None or cmd_name not in command_table().get(self.name or "", ()):
            return hand_written
        from weftline.app.registry import all_operations  # noqa: PLC0415 - listing the commands needs no operation

        return command_for(all_operations()[f"{group}.{_underscored(cmd_name)}"])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(command_table()[self.name or ""].items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        listed = command_table().get(self.name or "", {}).items()
        commands = [CompletionItem(name, help=summary) for name, summary in listed if name.startswith(incomplete)]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]


def group_of(name: str, summary: str) -> OperationGroup:
    """Return the command group of an operation group."""
    return OperationGroup(name, help=summary, no_args_is_help=True)


def top_level_command(name: str) -> click.Command:
    """Return the command of an operation outside of its group."""
    from weftline.app.registry import all_operations  # noqa: PLC0415 - listing the commands needs no operation

    return command_for(all_operations()[TOP_LEVEL[name]], name)


def operation_groups(operations: Iterable[Operation]) -> dict[str, dict[str, click.Command]]:
    """Return every command of every operation group in display order: hand-written ones and ``create`` first."""
    groups: dict[str, dict[str, click.Command]] = {}
    for operation in operations:
        if not is_top_level(operation.name):
            groups.setdefault(operation.group, {})[dashed(operation.verb)] = command_for(operation)
    for group, commands in groups.items():
        added = _hand_written(group)
        new = {name: command for name, command in added.items() if name not in commands}
        listed = {**new, **commands, **added}
        groups[group] = {name: listed[name] for name in sorted(listed, key=lambda name: name != "create")}
    return {dashed(group): commands for group, commands in groups.items()}


def _hand_written(group: str) -> dict[str, click.Command]:
    if group not in _HAND_WRITTEN:
        return {}
    commands = import_module(f"weftline.transports.cli.{_HAND_WRITTEN[group]}").COMMANDS
    return {command.name: command for command in commands}


def command_for(operation: Operation, name: str | None = None) -> click.Command:
    """Return the command of an operation, by default named by its verb."""
    from weftline.transports.cli.base import asks  # noqa: PLC0415 - likewise
    from weftline.transports.cli.params import parameters  # noqa: PLC0415 - listing the commands needs no parameters

    own = list(parameters(operation))
    extra = [YES, JSON] if asks(operation) else [JSON]
    if operation.verb.startswith("list") and not any(param.name == "limit" for param in own):
        extra = [LIMIT, *extra]
    return Command(
        name or dashed(operation.verb),
        params=[*own, *extra],
        callback=_callback(operation),
        help=operation.help.replace("``", "'"),
        short_help=operation.summary.replace("``", "'"),
        epilog=_epilog(operation),
    )


def dashed(name: str) -> str:
    return name.replace("_", "-")


def _is_option(argument: str) -> bool:
    return argument.startswith("-") and argument not in {"--help", "-h"}


def _underscored(name: str) -> str:
    return name.replace("-", "_")


def _callback(operation: Operation) -> Any:  # noqa: ANN401 - click wraps it
    @click.pass_context
    def call(ctx: click.Context, /, **options: Any) -> None:  # noqa: ANN401 - click hands over every parameter
        from weftline.transports.cli import (  # noqa: PLC0415 - only to run the command
            base,
            events,
            usage,
        )
        from weftline.transports.cli.errors import FAILED  # noqa: PLC0415 - likewise
        from weftline.transports.cli.params import LATEST, given  # noqa: PLC0415 - likewise
        from weftline.transports.cli.render import show  # noqa: PLC0415 - likewise

        target, request = ctx.obj, given(ctx, operation)
        if request.get("receipt_id") == LATEST:
            request["receipt_id"] = _latest_receipt(target)
        if events.is_export(operation, options):
            events.export(target, request)
            return
        if operation.name == "usage.export" and not options["as_json"]:
            usage.export(target, operation, request)
            return
        if base.asks(operation) and not (options["yes"] or base.is_dry_run(operation, request)):
            base.confirm(ctx, target, operation, request)
        answer = _answer(target, operation, request, ask=not options.get("yes"))
        if options.get("limit") and "limit" not in operation.request.__struct_fields__:
            answer = _first(answer, options["limit"])
        show(answer, as_json=options["as_json"], formatter=_formatter(operation, request))
        if getattr(answer, "api_key", None) and not options["as_json"]:
            click.echo("Store the API key: it is shown only once.", err=True)
        if operation.name in _UNSUCCESSFUL and _UNSUCCESSFUL[operation.name](answer):
            ctx.exit(FAILED)

    return call


def _latest_receipt(target: Target) -> str:
    from weftline.app.registry import all_operations  # noqa: PLC0415 - listing the commands needs no operation

    newest: Any = target.call(all_operations()["receipt.list"], {"limit": 1})
    return newest.receipts[0].receipt_id if newest.receipts else "latest"


def _answer(target: Target, operation: Operation, raw: dict[str, Any], *, ask: bool) -> Any:  # noqa: ANN401 - a response
    """Call an operation; if it is refused and ``force`` would override that, ask whether to."""
    from weftline.kernel.errors import Conflict  # noqa: PLC0415 - only to run the command
    from weftline.transports.cli import base  # noqa: PLC0415 - only to run the command

    try:
        return target.call(operation, raw)
    except Conflict as refusal:
        if not ask or not base.interactive() or _OVERRIDABLE.get(operation.name) != refusal.code:
            raise
        base.ask(f"{refusal.message} Delete it all the same?")
        return target.call(operation, {**raw, "force": True})


def _first(answer: msgspec.Struct, limit: int) -> msgspec.Struct:
    """Return an answer with the first items of its list, and without the cursor after the last one."""
    from msgspec import structs  # noqa: PLC0415 - only to run the command

    name = next(name for name in answer.__struct_fields__ if isinstance(getattr(answer, name), list))
    items = getattr(answer, name)
    if len(items) <= limit:
        return answer
    cursor = {"next_cursor": None} if "next_cursor" in answer.__struct_fields__ else {}
    return structs.replace(answer, **{name: items[:limit]}, **cursor)


def _formatter(operation: Operation, request: dict[str, Any]) -> Callable[[Any], str] | None:
    formatter: Callable[..., str] | None = None
    module = _FORMATTERS.get(operation.name) or _FORMATTERS.get(operation.group)
    if module is not None:
        formatters = import_module(f"weftline.transports.cli.{module}").FORMATTERS
        formatter = formatters.get(operation.name)
    if formatter is None and operation.destructive:
        from weftline.transports.cli import base  # noqa: PLC0415 - only to run the command

        return lambda answer: base.render_removed(operation, request, answer)
    if formatter is not None and operation.name in _QUERY_FIELDS:
        return partial(formatter, request.get(_QUERY_FIELDS[operation.name]) or "")
    return formatter


def _epilog(operation: Operation) -> str:
    needs = f"Needs the permission '{operation.permission}'. " if operation.permission else ""
    errors = ", ".join(sorted({error.code for error in operation.errors}))
    return needs + (f"Can fail with {errors}." if errors else "")
