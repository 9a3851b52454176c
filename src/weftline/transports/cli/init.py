"""``weftline init``: merge the MCP server entry into an editor's configuration."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import click

from weftline.access.tool_profiles import parse_tool_profile
from weftline.kernel.fields import is_name
from weftline.transports.cli.base import Command
from weftline.transports.cli.completion import complete_name
from weftline.transports.cli.global_options import DATA_FOLDER, check_server, given
from weftline.transports.cli.server_packages import server_packages
from weftline.transports.cli.text_params import Url

if TYPE_CHECKING:
    from weftline.transports.cli.target import Target

_SERVER = "weftline"


@dataclass(frozen=True, slots=True)
class _Editor:
    """MCP configuration file of an editor, and its syntax for an environment variable."""

    title: str
    file: str
    section: str
    variable: str


_EDITORS = {
    "claude-code": _Editor("Claude Code", ".mcp.json", "mcpServers", "${WEFTLINE_API_KEY}"),
    "cursor": _Editor("Cursor", ".cursor/mcp.json", "mcpServers", "${env:WEFTLINE_API_KEY}"),
    "vscode": _Editor("VS Code", ".vscode/mcp.json", "servers", "${env:WEFTLINE_API_KEY}"),
}


class UnmergeableConfigError(Exception):
    """The configuration file cannot be changed without losing something."""


class InitCommand(Command):
    """Command that writes options of the data folder into a configuration; it has its own --url."""

    global_options = DATA_FOLDER | {"tenant", "principal"}


@click.command(cls=InitCommand)
@click.argument("editor", type=click.Choice(list(_EDITORS)), help="Editor to connect.")
@click.option("--url", type=Url(), help="Connect to this server over HTTP instead of starting weftline mcp.")
@click.option(
    "--agent", shell_complete=complete_name, help="Agent that the editor acts as.  [default: the editor's name]"
)
@click.option("--session", "-s", shell_complete=complete_name, help="Work in this session only.")
@click.option("--tools", help="Tool profile to list, such as full or board,messages.  [default: about ten tools]")
@click.option("--print", "only_print", is_flag=True, help="Print the configuration instead of writing it.")
@click.option("--replace", is_flag=True, help="Replace an existing entry named weftline.")
@click.pass_context
def init(
    ctx: click.Context,
    editor: str,
    url: str | None,
    agent: str | None,
    session: str | None,
    tools: str | None,
    *,
    only_print: bool,
    replace: bool,
) -> None:
    """Connect an editor to Weftline by writing its MCP configuration in this folder.

    Without --url, the editor starts 'weftline mcp', which works on the data folder. With --url, it connects to a
    running server with the API key in WEFTLINE_API_KEY; the key is not written to the file. Other servers in the file
    are kept. The editor lists about ten tools and finds all others through weftline_tools; --tools lists more, or
    others.
    """
    if url is not None:
        check_server(ctx, url, ["url", *given(ctx)])
        if agent is not None:
            raise click.UsageError("--url and --agent exclude each other: a server knows the agent by its key.", ctx)
    if only_print and replace:
        raise click.UsageError("--print and --replace exclude each other: --print writes nothing.", ctx)
    target: Target = ctx.obj
    chosen = _EDITORS[editor]
    name = _checked(agent or target.principal or editor, "--agent")
    session = None if session is None else _checked(session, "--session")
    if tools is not None:
        parse_tool_profile(tools)
    if url is None:
        with server_packages("weftline mcp"):
            import_module("weftline.transports.stdio")
        entry = _stdio_entry(target, name, session, tools)
    else:
        entry = _http_entry(url, session, tools, chosen)
    if only_print:
        click.echo(_text({chosen.section: {_SERVER: entry}}))
        return
    _write(chosen, entry, replace=replace)
    click.echo(f"{chosen.title} is connected: see {chosen.file}.")
    click.echo(
        "Next: " + (f"weftline agent create {name}" if url is None else "export WEFTLINE_API_KEY=<the agent's API key>")
    )
    click.echo(f"Then restart {chosen.title}.")


def _stdio_entry(target: Target, agent: str, session: str | None, tools: str | None) -> dict[str, Any]:
    arguments = [] if target.tenant == "default" else ["--tenant", target.tenant]
    arguments += ["mcp", "--as", agent, *(["--session", session] if session else [])]
    arguments += ["--tools", tools] if tools else []
    # If weftline is not on the PATH, the editor would not find it either: name the Python that has it.
    command, *prefix = ["weftline"] if shutil.which("weftline") else [sys.executable, "-m", "weftline"]
    entry: dict[str, Any] = {"type": "stdio", "command": command, "args": [*prefix, *arguments]}
    variables = {"WEFTLINE_DATA_DIR": _absolute(target.data_dir), "WEFTLINE_DATABASE_URL": target.database_url}
    environment = {name: value for name, value in variables.items() if value}
    return {**entry, "env": environment} if environment else entry


def _absolute(folder: str | None) -> str | None:
    return None if folder is None else str(Path(folder).expanduser().absolute())


def _http_entry(url: str, session: str | None, tools: str | None, editor: _Editor) -> dict[str, Any]:
    if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).netloc:
        raise click.BadParameter("give a URL such as http://127.0.0.1:8787", param_hint="'--url'")
    base = url.rstrip("/").removesuffix("/mcp")
    path = f"/mcp/session/{quote(session, safe='')}" if session else "/mcp"
    path += f"/tools/{quote(tools, safe=',')}" if tools else ""
    return {"type": "http", "url": base + path, "headers": {"Authorization": f"Bearer {editor.variable}"}}


def _write(editor: _Editor, entry: dict[str, Any], *, replace: bool) -> None:
    path = Path(editor.file)
    try:
        merged = _merged(path, editor.section, entry, replace=replace)
    except UnmergeableConfigError as problem:
        click.echo(f"{path} was not changed: {problem}. Add this by hand:\n", err=True)
        click.echo(_text({editor.section: {_SERVER: entry}}))
        raise click.exceptions.Exit(1) from None
    _replace(path, _text(merged) + "\n")


def _merged(path: Path, section: str, entry: dict[str, Any], *, replace: bool) -> dict[str, Any]:
    """Return the content of the file with our entry added to the servers."""
    try:
        content = json.loads(path.read_text("utf-8")) if path.exists() else {}
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UnmergeableConfigError("it is not plain JSON (comments would be lost)") from error
    servers = content.get(section, {}) if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        raise UnmergeableConfigError(f"its '{section}' is not an object")
    if servers.get(_SERVER, entry) != entry and not replace:
        raise UnmergeableConfigError(f"it has another server named '{_SERVER}' (--replace replaces it)")
    return {**content, section: {**servers, _SERVER: entry}}


def _replace(path: Path, text: str) -> None:
    """Replace the file atomically, following a symbolic link and keeping its mode."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(partial).chmod(mode)
        Path(partial).replace(path)
    finally:
        Path(partial).unlink(missing_ok=True)


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False)


def _checked(name: str, option: str) -> str:
    if not is_name(name):
        raise click.BadParameter("use letters, digits, underscores and dashes", param_hint=f"'{option}'")
    return name
