"""Global options: each is used by a command or refused by it, and a flag beats the environment."""

from __future__ import annotations

import os
import shlex
from typing import Final

import click

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
        click.echo(f"WEFTLINE_URL is set, but '{ctx.command_path}' works on the data folder, not on a server.", err=True)


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
