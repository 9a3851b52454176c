"""``weftline init``: merge the MCP server entry, and hooks, into the configuration of an editor or coding agent."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import click

from weftline.access.steps import parse_tool_profile
from weftline.kernel.fields import is_name
from weftline.transports.cli.base import Command
from weftline.transports.cli.completion import complete_name
from weftline.transports.cli.global_options import DATA_FOLDER, check_server, given
from weftline.transports.cli.progress import server_packages
from weftline.transports.cli.text_params import Url
from weftline.transports.hooks.folder import HooksFolder
from weftline.transports.hooks.hook_input import HOOK_FILES, UnmergeableConfigError, hooks_in, plugin_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from weftline.transports.cli.target import Target

_SERVER = "weftline"


@dataclass(frozen=True, slots=True)
class _Editor:
    """MCP configuration file of an editor, and its syntax for an environment variable. Codex has none in JSON."""

    title: str
    file: str = ""
    section: str = ""
    variable: str = ""


_EDITORS = {
    "claude-code": _Editor("Claude Code", ".mcp.json", "mcpServers", "${WEFTLINE_API_KEY}"),
    "cursor": _Editor("Cursor", ".cursor/mcp.json", "mcpServers", "${env:WEFTLINE_API_KEY}"),
    "codex": _Editor("Codex"),
    "gemini": _Editor("Gemini CLI", ".gemini/settings.json", "mcpServers", "${WEFTLINE_API_KEY}"),
    "opencode": _Editor("opencode", "opencode.json", "mcp", "{env:WEFTLINE_API_KEY}"),
    "vscode": _Editor("VS Code", ".vscode/mcp.json", "servers", "${env:WEFTLINE_API_KEY}"),
}


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
@click.option(
    "--plugin", is_flag=True, help="Add hooks: what the agent does is recorded, and it is told what others know."
)
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
    plugin: bool,
    only_print: bool,
    replace: bool,
) -> None:
    """Connect an editor or coding agent to Weftline by writing its MCP configuration in this folder.

    Without --url, the editor starts 'weftline mcp', which works on the data folder. With --url, it connects to a
    running server with the API key in WEFTLINE_API_KEY; the key is not written to the file. Other servers in the file
    are kept. The editor lists about ten tools and finds all others through weftline_tools; --tools lists more, or
    others.

    With --plugin, hooks record what the agent does in the session of this folder's repository and branch, and its MCP
    server works there. weftline hooks off switches all hooks off.
    """
    if url is not None:
        check_server(ctx, url, ["url", *given(ctx)])
        if agent is not None:
            raise click.UsageError("--url and --agent exclude each other: a server knows the agent by its key.", ctx)
    if only_print and replace:
        raise click.UsageError("--print and --replace exclude each other: --print writes nothing.", ctx)
    if plugin and (agent or session or tools) is not None:
        raise click.UsageError("--plugin excludes --agent, --session and --tools: the repository says them.", ctx)
    target: Target = ctx.obj
    chosen = _EDITORS[editor]
    if plugin:
        if editor not in HOOK_FILES:
            raise click.UsageError(f"{chosen.title} has no hooks that Weftline knows: omit --plugin.", ctx)
        _write_plugin(target, editor, chosen, url, only_print=only_print, replace=replace)
        return
    name = _checked(agent or target.principal or editor, "--agent")
    entry = _entry(target, chosen, name, url, session, tools)
    if not chosen.file:
        click.echo(f"{chosen.title} keeps MCP servers in TOML. Run: {_codex_command(entry)}")
        return
    entry = _native(editor, entry)
    if only_print:
        click.echo(_text({chosen.section: {_SERVER: entry}}))
        return
    _write(chosen, entry, replace=replace)
    click.echo(f"{chosen.title} is connected: see {chosen.file}.")
    click.echo(
        "Next: " + (f"weftline agent create {name}" if url is None else "export WEFTLINE_API_KEY=<the agent's API key>")
    )
    click.echo(f"Then restart {chosen.title}.")


def _entry(
    target: Target, editor: _Editor, agent: str, url: str | None, session: str | None, tools: str | None
) -> dict[str, Any]:
    session = None if session is None else _checked(session, "--session")
    if tools is not None:
        parse_tool_profile(tools)
    if url is not None:
        return _http_entry(url, session, tools, editor)
    with server_packages("weftline mcp"):
        import_module("weftline.transports.stdio")
    return _stdio_entry(target, agent, session, tools)


def _write_plugin(
    target: Target, client: str, editor: _Editor, url: str | None, *, only_print: bool, replace: bool
) -> None:
    """Write the hooks of a coding agent, and an MCP server that works in the session of the repository."""
    hooks = HOOK_FILES[client]
    if only_print:
        click.echo(_text(hooks_in(client, {})) if client != "opencode" else _opencode_plugin())
        return
    folder = HooksFolder.of_user()
    data = {"WEFTLINE_DATA_DIR": _absolute(target.data_dir), "WEFTLINE_DATABASE_URL": target.database_url}
    variables = {"WEFTLINE_URL": url} if url is not None else data
    folder.write_program({name: value for name, value in variables.items() if value})
    if client == "opencode":
        _replace(Path(hooks.file), _opencode_plugin())
    else:
        _write_merged(Path(hooks.file), lambda content: hooks_in(client, content))
    click.echo(f"{editor.title} has the hooks of Weftline: see {hooks.file}.")
    # The plugin of Claude Code has its own, for a data folder.
    if client != "claude-code" or url is not None:
        entry = {"type": "stdio", "command": str(folder.program), "args": ["mcp", "--repository"]}
        entry = entry if url is None else _http_entry(url, None, None, editor)
        if editor.file:
            _write(editor, _native(client, entry), replace=replace)
        else:
            click.echo(f"For its tools, run: {_codex_command(entry)}")
    where = url or target.place
    click.echo(f"Prompts, tool calls and answers will be recorded in {where}, with secrets masked.")
    click.echo("Stop it: weftline hooks off. Delete it: weftline hooks delete.")
    click.echo(f"Next: {hooks.next_step}")


def _opencode_plugin() -> str:
    return (plugin_folder("opencode") / "weftline.js").read_text("utf-8")


def _native(client: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry as the client writes it; most write it alike."""
    if client == "gemini":
        kind = entry["type"]
        rest = {name: value for name, value in entry.items() if name not in {"type", "url"}}
        return rest if kind == "stdio" else {"httpUrl": entry["url"], **rest}
    if client == "opencode":
        if entry["type"] == "http":
            return {"type": "remote", "url": entry["url"], "headers": entry["headers"]}
        environment = {"environment": entry["env"]} if "env" in entry else {}
        return {"type": "local", "command": [entry["command"], *entry["args"]], **environment}
    return entry


def _codex_command(entry: dict[str, Any]) -> str:
    if entry["type"] == "http":
        return f"codex mcp add {_SERVER} --url {entry['url']} --bearer-token-env-var WEFTLINE_API_KEY"
    variables = [part for name, value in entry.get("env", {}).items() for part in ("--env", f"{name}={value}")]
    return shlex.join(["codex", "mcp", "add", _SERVER, *variables, "--", entry["command"], *entry["args"]])


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
    shown = _text({editor.section: {_SERVER: entry}})
    _write_merged(Path(editor.file), lambda content: _merged(content, editor.section, entry, replace=replace), shown)


def _write_merged(path: Path, merge: Callable[[dict[str, Any]], dict[str, Any]], shown: str | None = None) -> None:
    """Change a file of JSON and keep what else is in it; show what to add by hand if that cannot be done."""
    try:
        merged = merge(_read(path))
    except UnmergeableConfigError as problem:
        click.echo(f"{path} was not changed: {problem}. Add this by hand:\n", err=True)
        click.echo(_text(merge({})) if shown is None else shown)
        raise click.exceptions.Exit(1) from None
    _replace(path, _text(merged) + "\n")


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8")) if path.exists() else {}
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UnmergeableConfigError("it is not plain JSON (comments would be lost)") from error
    return content


def _merged(content: dict[str, Any], section: str, entry: dict[str, Any], *, replace: bool) -> dict[str, Any]:
    """Return the content of the file with our entry added to the servers."""
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
