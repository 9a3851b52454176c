"""``weftline gateway import``: MCP servers in the configuration of clients become servers of the gateway."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.gateway import COMMAND

if TYPE_CHECKING:
    from cli_support import CommandLine

pytestmark = pytest.mark.req("WX-13")
PROGRAM, *ARGUMENTS = shlex.split(COMMAND)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WEFTLINE_GATEWAY_COMMANDS", "on")
    monkeypatch.setenv("WEFTLINE_SIGNING_SECRET", "a secret of the tests")
    return tmp_path / "home"


def write(file: Path, content: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))


def imported(cli: CommandLine, *arguments: str) -> dict[str, Any]:
    servers = json.loads(cli.run("gateway", "import", *arguments, "--json").stdout)["servers"]
    return {server["name"]: server for server in servers}


def test_servers_are_shown_first_and_added_with_yes(cli: CommandLine) -> None:
    entry = {"command": PROGRAM, "args": ARGUMENTS, "env": {"GIVEN": "hunter2-secret"}}
    write(Path(".mcp.json"), {"mcpServers": {"Up_Server": entry, "weftline": {"command": "weftline", "args": ["mcp"]}}})
    shown = cli.run("gateway", "import")
    assert "up-server: new" in shown.stdout
    assert COMMAND in shown.stdout
    assert "GIVEN: (a value)" in shown.stdout
    assert "weftline: left out, it is Weftline itself" in shown.stdout
    assert "Nothing was added" in shown.stderr
    cli.run("gateway", "list", code=1)
    added = imported(cli, "--yes")
    assert (added["up-server"]["state"], added["up-server"]["reason"]) == ("added", "6 tools")
    got = json.loads(cli.run("gateway", "get", "up-server", "--json").stdout)
    assert got["variables"] == {"GIVEN": "(stored encrypted)"}
    called = cli.run("gateway", "call", "up-server__variables", "--json").stdout
    assert "hunter2-secret" in called
    # What is there already stays as it is.
    assert imported(cli, "--yes")["up-server"]["reason"] == "the gateway has a server of this name"
    assert "hunter2" not in cli.run("gateway", "import").stdout


def test_the_files_of_each_client_are_read(cli: CommandLine, home: Path) -> None:
    cursor = {"url": "https://docs.example/mcp", "headers": {"Authorization": "Bearer ${env:DOCS_TOKEN}"}}
    write(Path(".cursor/mcp.json"), {"mcpServers": {"docs": cursor}})
    asks = {"command": "x", "env": {"KEY": "${input:key}"}}
    write(Path(".vscode/mcp.json"), {"servers": {"asks": asks, "old": {"type": "sse", "url": "https://x.example"}}})
    write(
        home / ".codex/config.toml",
        '[mcp_servers.search]\ncommand = "npx"\nargs = ["-y", "a search"]\nenv_vars = ["SEARCH_KEY"]\n'
        '[mcp_servers.notes]\nurl = "https://notes.example"\nbearer_token_env_var = "NOTES"\n',
    )
    write(
        home / ".config/Claude/claude_desktop_config.json", {"mcpServers": {"off": {"command": "x", "disabled": True}}}
    )
    write(home / ".claude.json", {"mcpServers": {"files": {"command": "npx", "env": {"ROOT": "/srv"}}}})
    found = imported(cli)
    assert {name: each["state"] for name, each in found.items()} == {
        "docs": "new", "asks": "left out", "old": "left out", "search": "new", "notes": "new", "off": "left out",
        "files": "new",
    }  # fmt: skip
    assert found["docs"]["variables"] == {"Authorization": "Bearer ${DOCS_TOKEN}"}
    assert found["notes"]["variables"] == {"Authorization": "Bearer ${NOTES}"}
    assert found["search"]["target"] == "npx -y 'a search'"
    assert found["search"]["variables"] == {"SEARCH_KEY": "${SEARCH_KEY}"}
    assert found["files"]["variables"] == {"ROOT": "(a value)"}
    assert imported(cli, "--refer")["files"]["variables"] == {"ROOT": "${ROOT}"}
    assert "made by the client" in found["asks"]["reason"]
    # One of them: its variables are not among those that the operator allows.
    failed = cli.run("gateway", "import", "--only", "search", "--yes", "--json", code=1)
    states = {each["name"]: each for each in json.loads(failed.stdout)["servers"]}
    assert states["search"]["state"] == "failed"
    assert states["search"]["reason"].startswith("GATEWAY_COMMANDS_OFF: 'SEARCH_KEY'")
    assert states["docs"]["reason"] == "it is not named by --only"


def test_a_file_that_is_no_configuration_is_named(cli: CommandLine) -> None:
    write(Path("servers.json"), "{")
    assert "servers.json cannot be read" in cli.run("gateway", "import", "servers.json", code=1).stderr
    write(Path("servers.json"), {})
    assert "No MCP servers are configured" in cli.run("gateway", "import", "servers.json").stdout
