"""Global options: each is used by a command or refused by it, and a flag beats the environment."""

from __future__ import annotations

import os
import shlex
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Flag of each parameter of the root command.
FLAGS: Final = {
    "url": "--url",
    "key": "--key",
    "data_dir": "--data-dir",
    "database_url": "--database-url",
    "tenant": "--tenant",
    "principal": "--as",
    "turn": "--turn",
    "task": "--task",
}
# Commands that call operations use every option; which ones apply depends on the target.
EVERY: Final = frozenset(FLAGS)
# Options of commands that work on the data folder only.
DATA_FOLDER: Final = frozenset({"data_dir", "database_url"})
NONE: Final[frozenset[str]] = frozenset()
# Options that have no meaning on a server, and why.
NOT_ON_A_SERVER: Final = {
    "data_dir": "has its own data",
    "database_url": "has its own database",
    "tenant": "knows the tenant by your key",
    "principal": "knows you by your key",
}
# Where the root context notes that an option of any level asked for JSON.
_JSON_ASKED = "weftline.json"
# Pairs that say the same thing twice, and why.
_EXCLUSIVE = {
    ("key", "principal"): "a key belongs to one agent",
    ("key", "tenant"): "a key belongs to one tenant",
}


def given(ctx: click.Context) -> list[str]:
    """Return the global options on the command line; an empty --url means no server and is none."""
    root = ctx.find_root()
    return [name for name in FLAGS if on_command_line(root, name) and not (name == "url" and not root.params["url"])]


def on_command_line(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def repeated(ctx: click.Context, own: Sequence[click.Parameter]) -> Iterator[click.Parameter]:
    """Yield the global options, and ``--json``, which every command also takes after its name unless it has its own."""
    taken = {flag for param in own for flag in param.opts}
    root = ctx.find_root()
    for param in root.command.params if ctx is not root else ():
        flag = FLAGS.get(param.name or "")
        if flag is not None and flag not in taken:
            keep = partial(_set, str(param.name))
            yield click.Option(
                [flag, f"global_{param.name}"], type=param.type, hidden=True, expose_value=False, callback=keep
            )
    if "--json" not in taken:
        yield click.Option(
            ["--json", "global_json"], is_flag=True, hidden=True, expose_value=False, callback=_ask_for_json
        )


def _set(name: str, ctx: click.Context, param: click.Parameter, value: Any) -> None:  # noqa: ANN401 - of the option
    if not on_command_line(ctx, param.name or ""):
        return
    root = ctx.find_root()
    if on_command_line(root, name):
        raise click.UsageError(f"{FLAGS[name]} is given twice.", ctx)
    root.params[name] = value
    root.set_parameter_source(name, click.core.ParameterSource.COMMANDLINE)
    set_target(ctx)


def set_target(ctx: click.Context) -> None:
    """Set the target of a context, and of those above it, from the global options."""
    from weftline.transports.cli.target import Target  # noqa: PLC0415 - help and completion need no target

    root = ctx.find_root()
    target, each = Target.from_options(_by_flags(root)), ctx
    while each is not root:
        each.obj, each = target, each.parent or root
    root.obj = target


def _by_flags(root: click.Context) -> dict[str, str | None]:
    """Drop variables that contradict a flag: the database of another folder, the key of another tenant."""
    overridden = {"database_url": "data_dir", "key": "tenant"}
    dropped = [
        name for name, flag in overridden.items() if on_command_line(root, flag) and not on_command_line(root, name)
    ]
    return {**root.params, **dict.fromkeys(dropped, "")}


def _ask_for_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: FBT001 - as click calls it
    del param
    if value:
        ctx.meta[_JSON_ASKED] = True


def apply_json(ctx: click.Context) -> None:
    """Pass a ``--json`` before the command, or raise UsageError if the command prints no JSON."""
    if ctx.meta.get(_JSON_ASKED):
        if "as_json" not in ctx.params:
            raise click.UsageError(f"'{ctx.command_path}' does not use --json.", ctx)
        ctx.params["as_json"] = True


def check(ctx: click.Context, used: frozenset[str]) -> None:
    """Raise UsageError for an option on the command line that the command would ignore."""
    flags = given(ctx)
    for name in flags:
        if name not in used:
            raise click.UsageError(f"'{ctx.command_path}' does not use {FLAGS[name]}{_reason(ctx, name, used)}.", ctx)
    for (one, other), why in _EXCLUSIVE.items():
        if one in flags and other in flags:
            raise click.UsageError(f"{FLAGS[one]} and {FLAGS[other]} exclude each other: {why}.", ctx)
    url = ctx.find_root().params["url"]
    if url and "url" in used:
        check_server(ctx, url, flags)


def check_server(ctx: click.Context, url: str, flags: list[str]) -> None:
    """Raise UsageError for options of the data folder if the command would call a server."""
    for name, why in NOT_ON_A_SERVER.items():
        if name not in flags:
            continue
        flag = FLAGS[name]
        if "url" in flags:
            raise click.UsageError(f"--url and {flag} exclude each other: a server {why}. Leave one of them out.", ctx)
        raise click.UsageError(
            f"WEFTLINE_URL is set, so this would call the server {url}, which {why}: {flag} is not for it. "
            f"Nothing was done. To use the data folder, add --url '' or unset WEFTLINE_URL: "
            f"{_without_server(ctx)}. To call the server, leave out {flag}.",
            ctx,
        )


def check_once(ctx: click.Context, name: str) -> None:
    """Raise UsageError if an option of the command is also given as the global option of the same name."""
    if name in given(ctx) and on_command_line(ctx, name):
        raise click.UsageError(f"{FLAGS[name]} is given twice.", ctx)


def note_unused_server(ctx: click.Context, used: frozenset[str]) -> None:
    """Say that a command works on the data folder although WEFTLINE_URL names a server."""
    if "url" not in used and os.environ.get("WEFTLINE_URL") and not DATA_FOLDER & set(given(ctx)):
        click.echo(
            f"WEFTLINE_URL is set, but '{ctx.command_path}' works on the data folder, not on a server.", err=True
        )


def note_unused_database(data_dir: str | None, database_url: str | None) -> None:
    """Say that a server keeps its data in the folder of --data-dir although WEFTLINE_DATABASE_URL names a database."""
    if data_dir is not None and database_url is None and os.environ.get("WEFTLINE_DATABASE_URL"):
        click.echo(
            f"WEFTLINE_DATABASE_URL is set but not used, because --data-dir names a folder: the data is in {data_dir}. "
            "To use both, name the folder in WEFTLINE_DATA_DIR.",
            err=True,
        )


def _reason(ctx: click.Context, name: str, used: frozenset[str]) -> str:
    if any(param.name == name for param in ctx.command.params):
        return f" before the command: put {FLAGS[name]} after it"
    if name in {"url", "key"} and used >= DATA_FOLDER:
        return ": it works on the data folder, not on a server"
    return ""


def _without_server(ctx: click.Context) -> str:
    """Return the beginning of the command that uses the data folder."""
    root = ctx.find_root()
    options = [f"{FLAGS[name]} {shlex.quote(str(root.params[name]))}" for name in given(ctx) if name != "key"]
    return f"weftline --url '' {' '.join(options)} COMMAND"
