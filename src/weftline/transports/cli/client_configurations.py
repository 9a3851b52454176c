"""MCP servers in the configuration files of clients: Claude Desktop and Code, Cursor, VS Code, Codex."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The keys that servers are below, by client.
_SECTIONS = ("mcpServers", "servers", "mcp_servers")
_REFERENCE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_WHOLE = re.compile(r"(?:[A-Za-z]+ )?\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_MAX_NAME = 31


class Found(NamedTuple):
    """A server of a file as the gateway would have it; ``problem`` says why it cannot."""

    name: str
    file: Path
    command: str | None = None
    url: str | None = None
    variables: Mapping[str, str] = {}
    problem: str = ""

    @property
    def target(self) -> str:
        return self.url or self.command or ""

    def request(self) -> dict[str, Any]:
        """Return the request that adds it."""
        where = {"url": self.url} if self.url else {"command": self.command}
        return {"name": self.name, **where, "variables": dict(self.variables)}

    def shown_variables(self) -> dict[str, str]:
        """Return its variables without their values."""
        return {name: value if _WHOLE.fullmatch(value) else "(a value)" for name, value in self.variables.items()}


def default_files() -> list[Path]:
    """Return the files that there are: those of this folder come first."""
    home = Path.home()
    desktop = {
        "darwin": home / "Library/Application Support/Claude",
        "win32": Path(os.environ.get("APPDATA", str(home))) / "Claude",
    }.get(sys.platform, home / ".config/Claude")
    here = [Path(".mcp.json"), Path(".cursor/mcp.json"), Path(".vscode/mcp.json"), Path(".codex/config.toml")]
    there = [
        home / ".claude.json",
        desktop / "claude_desktop_config.json",
        home / ".cursor/mcp.json",
        home / ".codex/config.toml",
    ]
    return [file for file in (*here, *there) if file.is_file()]


def read_servers(file: Path, *, refer: bool = False) -> Iterator[Found]:
    """Yield the servers of a file; with ``refer``, variables of programs are references to those of the same name."""
    for name, entry in _entries(file).items():
        if isinstance(entry, dict):
            yield _found(file, name, entry, refer=refer)


def _entries(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text("utf-8")
        content = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{file} cannot be read: {error}") from None
    sections = [content.get(section) for section in _SECTIONS] if isinstance(content, dict) else []
    return next((section for section in sections if isinstance(section, dict)), {})


def _found(file: Path, name: str, entry: dict[str, Any], *, refer: bool) -> Found:
    found = Found(_name(name), file)
    if entry.get("disabled") is True or entry.get("enabled") is False:
        return found._replace(problem="it is switched off")
    if entry.get("type") == "sse":
        return found._replace(problem="it speaks the transport SSE of 2024, which the gateway does not")
    url = entry.get("url") or entry.get("serverUrl") or entry.get("httpUrl")
    command = entry.get("command")
    if isinstance(url, str):
        found = found._replace(url=url, variables=_headers(entry))
    elif isinstance(command, str):
        line = shlex.join([command, *map(str, entry.get("args") or ())])
        found = found._replace(command=line, variables=_environment(entry, refer=refer))
    else:
        return found._replace(problem="it has neither a command nor a URL")
    return found._replace(problem=_problem(found, entry))


def _problem(found: Found, entry: Mapping[str, Any]) -> str:
    if found.name == "weftline" or "weftline mcp" in found.target:
        return "it is Weftline itself"
    if entry.get("cwd"):
        return "it runs in a folder of its own, which the gateway does not know"
    if "${" in found.target:
        return "its command or URL refers to variables; add it with 'weftline gateway add'"
    odd = next((name for name, value in found.variables.items() if "${" in value and not _WHOLE.fullmatch(value)), None)
    return "" if odd is None else f"the value of {odd} is made by the client; add it with 'weftline gateway add'"


def _environment(entry: Mapping[str, Any], *, refer: bool) -> dict[str, str]:
    given = {str(name): _portable(value) for name, value in (entry.get("env") or {}).items()}
    named = {name: f"${{{name}}}" for name in entry.get("env_vars") or () if isinstance(name, str)}
    if refer:
        given = {name: f"${{{name}}}" if _VARIABLE.fullmatch(name) else value for name, value in given.items()}
    return {**named, **given}


def _headers(entry: Mapping[str, Any]) -> dict[str, str]:
    given = entry.get("headers") or entry.get("http_headers") or {}
    headers = {str(name): _portable(value) for name, value in given.items()}
    headers |= {str(name): f"${{{variable}}}" for name, variable in (entry.get("env_http_headers") or {}).items()}
    token = entry.get("bearer_token_env_var")
    return {**headers, "Authorization": f"Bearer ${{{token}}}"} if token else headers


def _portable(value: object) -> str:
    """Return a value with references as the gateway writes them."""
    return _REFERENCE.sub(r"${\1}", str(value))


def _name(name: str) -> str:
    """Return a name as the gateway has them: lower-case letters, digits and '-'."""
    plain = _NOT_IN_NAMES.sub("-", name.lower()).strip("-")[:_MAX_NAME].rstrip("-") or "server"
    return plain if plain[0].isalpha() else f"s{plain}"[:_MAX_NAME]
