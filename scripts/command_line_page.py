"""Reference page of the command line: target, global options, destructive commands, output and exit codes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from weftline.transports.cli.command_names import command_name
from weftline.transports.cli.global_options import EVERY, FLAGS, NOT_ON_A_SERVER
from weftline.transports.cli.main import weftline

if TYPE_CHECKING:
    from weftline.kernel.operation import Operation

_TARGET = """\
# The command line

`weftline --help` lists all commands, `weftline COMMAND --help` the options of one. [Operations](operations.md) has the
command of each operation.

## Server or data folder

Commands work on a server, or directly on a data folder, also while a server uses it. `weftline doctor` says which, and
why, and checks it.

| given | commands work on |
|---|---|
| `--url`, or else `WEFTLINE_URL` | the server, as the owner of the key in `--key` or `WEFTLINE_API_KEY` |
| `--database-url`, or else `WEFTLINE_DATABASE_URL` | this SQLite file or PostgreSQL database |
| `--data-dir`, or else `WEFTLINE_DATA_DIR`, or else `~/.weftline` | the database in this folder |

- An option beats a variable. `--url ''` ignores `WEFTLINE_URL`, and `--data-dir` ignores `WEFTLINE_DATABASE_URL`.
- An option that a command would ignore is an error with exit code 2, and nothing is done. So `--data-dir`,
  `--database-url`, `--tenant` and `--as` are refused together with a server, from `--url` or from `WEFTLINE_URL`.
- On the data folder no key is needed: you act as `admin`, as the agent in `--as`, or as the owner of the key.
  `--key` excludes `--as` and `--tenant`; each of the three beats `WEFTLINE_API_KEY`.
"""
_DESTRUCTIVE = """\
## Commands that ask

These commands remove something that no other command brings back. In a terminal they name what and where, and ask.
Without a terminal they need `--yes`; otherwise they end with `CONFIRMATION_NEEDED` and change nothing. Afterwards they
say what they removed. `weftline session delete` also names the agents that depend on the session; `--force` deletes it
all the same.
"""
_OUTPUT = """\
## Input and output

- Text can be read from a file (`@FILE`) or from standard input (`-`).
- In a terminal, tables fit its width (or `COLUMNS`): the widest columns are shortened, ids never; rows that do not fit
  are printed as blocks. In a pipe and with `--json`, nothing is shortened.
- `--json` prints the answer, or the error, on standard output. Notes and questions are on standard error.
- `VERSION_CONFLICT` shows who changed the entry and when, and a short diff if you may read it.
- `NO_COLOR` turns colours off.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | failure |
| 2 | wrong usage; nothing was done |
| 3 | forbidden: the credential or a permission |
| 4 | unavailable: the server, the database or the disk |
"""


def command_line_page(operations: Sequence[Operation]) -> str:
    return (
        "\n".join([_TARGET, *_global_options(), "", _DESTRUCTIVE, *_destructive(operations), "", _OUTPUT]).rstrip()
        + "\n"
    )


def _global_options() -> Iterator[str]:
    yield "## Global options\n"
    yield "They come before the command: `weftline --as planner board read goal`.\n"
    yield "| option | variable | on a server | meaning |"
    yield "|---|---|---|---|"
    for param in weftline.params:
        if isinstance(param, click.Option) and param.name in FLAGS:
            meaning = (param.help or "").split("  [")[0]
            variable = f"`{param.envvar}`" if param.envvar else ""
            refused = "refused" if param.name in NOT_ON_A_SERVER else "used"
            yield f"| `{param.opts[0]}` | {variable} | {refused} | {meaning} |"
    yield "\nCommands that do not call operations use fewer of them and refuse the others:\n"
    yield "| commands | options |"
    yield "|---|---|"
    for used, commands in _by_options().items():
        options = ", ".join(f"`{flag}`" for name, flag in FLAGS.items() if name in used) or "none"
        yield f"| {', '.join(f'`weftline {command}`' for command in commands)} | {options} |"


def _by_options() -> dict[frozenset[str], list[str]]:
    """Return the commands that use fewer than all global options, by the options they use."""
    found: dict[frozenset[str], list[str]] = defaultdict(list)
    for path, command in commands(weftline, ()):
        used: frozenset[str] = getattr(command, "global_options", EVERY)
        if used != EVERY:
            found[used].append(" ".join(path))
    return found


def commands(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        elif command is not None:
            yield (*path, name), command


def _destructive(operations: Sequence[Operation]) -> Iterator[str]:
    yield "| command | what it does |"
    yield "|---|---|"
    for operation in sorted(operations, key=lambda each: each.name):
        if operation.destructive:
            yield f"| `weftline {command_name(operation.name)}` | {operation.summary.replace('``', '`')} |"
