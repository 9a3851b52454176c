"""Tables that are read without importing the operations: where each one is defined, and the commands of each group."""

from __future__ import annotations

from collections.abc import Sequence

import click

from weftline.kernel.operation import Operation

_SOURCE = "# Written by scripts/generate.py from the operation registry; change the operations instead.\n"
_PREFIX = "weftline."
_SUMMARY_CHARACTERS = 200


def operation_index(operations: Sequence[Operation]) -> str:
    """Return the source of the table from an operation to the module that defines it."""
    modules = {operation.name: operation.run.__module__.removeprefix(_PREFIX) for operation in operations}
    return (
        f'{_SOURCE}"""Module below {_PREFIX.rstrip(".")} that defines each operation."""\n\n'
        "from __future__ import annotations\n\n"
        f"MODULES: dict[str, str] = {modules!r}\n"
    )


def command_table(operations: Sequence[Operation]) -> str:
    """Return the source of the table of the commands and summaries of each command group."""
    from weftline.transports.cli.generated import operation_groups  # noqa: PLC0415 - needs the table itself

    groups = {name: _summaries(group) for name, group in operation_groups(operations).items()}
    return (
        f"{_SOURCE}# ruff: noqa: E501 - summaries are one line each\n"
        '"""Commands of each group with their summaries, in the order of the help text."""\n\n'
        "from __future__ import annotations\n\n"
        f"COMMANDS: dict[str, dict[str, str]] = {groups!r}\n"
    )


def _summaries(group: dict[str, click.Command]) -> dict[str, str]:
    return {name: command.get_short_help_str(_SUMMARY_CHARACTERS) for name, command in group.items()}
