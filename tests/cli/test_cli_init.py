"""``weftline init``: the MCP configuration of editors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cli_support import CommandLine

EDITORS = {
    "claude-code": (".mcp.json", "mcpServers", "${WEFTLINE_API_KEY}"),
    "cursor": (".cursor/mcp.json", "mcpServers", "${env:WEFTLINE_API_KEY}"),
    "vscode": (".vscode/mcp.json", "servers", "${env:WEFTLINE_API_KEY}"),
}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(autouse=True)
def _weftline_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")


def _read(file: str) -> Any:
    return json.loads(Path(file).read_text())


@pytest.mark.parametrize("editor", EDITORS)
def test_an_editor_is_configured_to_start_weftline(editor: str, cli: CommandLine) -> None:
    file, section, _ = EDITORS[editor]
    result = cli.run("init", editor, "--session", "launch")
    assert _read(file) == {
        section: {
            "weftline": {
                "type": "stdio",
                "command": "weftline",
                "args": ["mcp", "--as", editor, "--session", "launch"],
                "env": {"WEFTLINE_DATA_DIR": str(cli.data)},
            }
        }
    }
    assert f"weftline agent create {editor}" in result.stdout


def test_the_python_interpreter_is_used_if_weftline_is_not_on_the_path(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    cli.run("init", "cursor")
    entry = _read(".cursor/mcp.json")["mcpServers"]["weftline"]
    assert (entry["command"], entry["args"]) == (sys.executable, ["-m", "weftline", "mcp", "--as", "cursor"])
    started = subprocess.run([entry["command"], *entry["args"], "--help"], capture_output=True, check=False)
    assert started.returncode == 0


@pytest.mark.parametrize("editor", EDITORS)
def test_a_server_s_api_key_is_read_from_the_environment(editor: str, cli: CommandLine) -> None:
    file, section, variable = EDITORS[editor]
    cli.run("init", editor, "--url", "https://weftline.example.com/")
    assert _read(file)[section]["weftline"] == {
        "type": "http",
        "url": "https://weftline.example.com/mcp",
        "headers": {"Authorization": f"Bearer {variable}"},
    }


def test_a_session_is_part_of_the_server_url(cli: CommandLine) -> None:
    cli.run("init", "cursor", "--url", "http://127.0.0.1:8787/mcp", "--session", "launch")
    assert _read(".cursor/mcp.json")["mcpServers"]["weftline"]["url"] == "http://127.0.0.1:8787/mcp/session/launch"


@pytest.mark.req("WX-01")
def test_a_tool_profile_is_part_of_the_entry(cli: CommandLine) -> None:
    cli.run("init", "cursor", "--tools", "board,messages", "--session", "launch")
    entry = _read(".cursor/mcp.json")["mcpServers"]["weftline"]
    assert entry["args"] == ["mcp", "--as", "cursor", "--session", "launch", "--tools", "board,messages"]
    for session, path in (([], "/mcp"), (["--session", "launch"], "/mcp/session/launch")):
        shown = cli.run("init", "cursor", "--url", "http://127.0.0.1:8787", "--tools", "full", "--print", *session)
        assert json.loads(shown.stdout)["mcpServers"]["weftline"]["url"] == f"http://127.0.0.1:8787{path}/tools/full"
    refused = cli.run("init", "vscode", "--tools", "everything", code=1)
    assert "default, full, collaboration" in refused.stderr
    assert not Path(".vscode").exists()


def test_existing_settings_are_kept(cli: CommandLine) -> None:
    existing = {"$schema": "x", "mcpServers": {"other": {"command": "other", "args": ["ü"]}}, "more": [1]}
    Path(".mcp.json").write_text(json.dumps(existing), "utf-8")
    Path(".mcp.json").chmod(0o640)
    cli.run("init", "claude-code", "--agent", "planner")
    now = _read(".mcp.json")
    assert now["mcpServers"].pop("weftline")["args"] == ["mcp", "--as", "planner"]
    assert now == existing
    assert Path(".mcp.json").stat().st_mode & 0o777 == 0o640


def test_init_is_idempotent(cli: CommandLine) -> None:
    cli.run("init", "claude-code")
    before = Path(".mcp.json").read_bytes()
    cli.run("init", "claude-code")
    assert Path(".mcp.json").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"servers": {} // mine\n}', "not plain JSON"),
        ("[]", "its 'servers' is not an object"),
        ('{"servers": []}', "its 'servers' is not an object"),
        ('{"servers": {"weftline": {"command": "mine"}}}', "another server named 'weftline'"),
    ],
)
def test_an_unparsable_file_is_unchanged_and_the_entry_is_printed(content: str, reason: str, cli: CommandLine) -> None:
    Path(".vscode").mkdir()
    Path(".vscode/mcp.json").write_text(content)
    result = cli.run("init", "vscode", code=1)
    assert reason in result.stderr
    assert json.loads(result.stdout)["servers"]["weftline"]["type"] == "stdio"
    assert Path(".vscode/mcp.json").read_text() == content


def test_an_existing_weftline_entry_is_replaced_on_request(cli: CommandLine) -> None:
    cli.run("init", "cursor", "--agent", "first")
    cli.run("init", "cursor", "--agent", "second", code=1)
    cli.run("init", "cursor", "--agent", "second", "--replace")
    assert "second" in _read(".cursor/mcp.json")["mcpServers"]["weftline"]["args"]


def test_print_writes_no_file(cli: CommandLine, project: Path) -> None:
    assert json.loads(cli.run("init", "cursor", "--print").stdout)["mcpServers"]["weftline"]
    assert list(project.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--url", "nowhere"], ["--agent", "a b"], ["--session", "../x"]])
def test_invalid_options_are_refused(arguments: list[str], cli: CommandLine, project: Path) -> None:
    cli.run("init", "cursor", *arguments, code=2)
    assert list(project.iterdir()) == []


@pytest.fixture
def hooks_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEFTLINE_HOOKS_DIR", str(tmp_path / "hooks"))
    return tmp_path / "hooks"


def test_the_plugin_of_claude_code_is_enabled_from_a_folder_and_runs_this_weftline(
    hooks_folder: Path, cli: CommandLine
) -> None:
    Path(".claude").mkdir()
    Path(".claude/settings.local.json").write_text('{"model": "opus", "enabledPlugins": {"other@x": true}}')
    result = cli.run("init", "claude-code", "--plugin")
    written = _read(".claude/settings.local.json")
    assert written["enabledPlugins"] == {"other@x": True, "weftline@weftline": True}
    assert written["model"] == "opus"
    plugin = Path(written["extraKnownMarketplaces"]["weftline"]["source"]["path"])
    assert _read(str(plugin / ".claude-plugin" / "marketplace.json"))["plugins"][0]["name"] == "weftline"
    assert "weftline hooks off" in result.stdout
    assert "weftline hooks delete" in result.stdout
    program = hooks_folder / "weftline"
    assert f": ${{WEFTLINE_DATA_DIR:={cli.data}}}; export WEFTLINE_DATA_DIR" in program.read_text()
    ran = subprocess.run([program, "version"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("client", "file", "event"),
    [
        ("codex", ".codex/hooks.json", "UserPromptSubmit"),
        ("gemini", ".gemini/settings.json", "BeforeAgent"),
        ("cursor", ".cursor/hooks.json", "beforeSubmitPrompt"),
    ],
)
def test_the_hooks_of_other_agents_are_merged_and_written_once(
    client: str, file: str, event: str, hooks_folder: Path, cli: CommandLine
) -> None:
    Path(file).parent.mkdir()
    theirs = {"command": "mine"} if client == "cursor" else {"hooks": [{"type": "command", "command": "mine"}]}
    Path(file).write_text(json.dumps({"hooks": {event: [theirs]}}))
    cli.run("init", client, "--plugin")
    first = _read(file)
    cli.run("init", client, "--plugin", "--replace")
    assert _read(file) == first
    kept, ours = first["hooks"][event]
    assert kept == theirs
    assert f"weftline-hook {client} || true" in json.dumps(ours)
    if client != "codex":
        servers = _read(".cursor/mcp.json" if client == "cursor" else file)["mcpServers"]
        assert servers["weftline"]["args"] == ["mcp", "--repository"]
        assert servers["weftline"]["command"] == str(hooks_folder / "weftline")


def test_the_plugin_of_opencode_is_copied(hooks_folder: Path, cli: CommandLine) -> None:
    cli.run("init", "opencode", "--plugin")
    assert "export const Weftline" in Path(".opencode/plugins/weftline.js").read_text()
    assert _read("opencode.json")["mcp"]["weftline"]["command"] == [
        str(hooks_folder / "weftline"),
        "mcp",
        "--repository",
    ]


def test_hooks_record_on_a_server_if_one_is_named(hooks_folder: Path, cli: CommandLine) -> None:
    cli.run("init", "gemini", "--plugin", "--url", "https://weftline.example.com")
    assert (
        ": ${WEFTLINE_URL:=https://weftline.example.com}; export WEFTLINE_URL"
        in (hooks_folder / "weftline").read_text()
    )
    assert _read(".gemini/settings.json")["mcpServers"]["weftline"] == {
        "httpUrl": "https://weftline.example.com/mcp",
        "headers": {"Authorization": "Bearer ${WEFTLINE_API_KEY}"},
    }


def test_codex_keeps_servers_in_toml_so_its_command_is_printed(cli: CommandLine) -> None:
    shown = cli.run("init", "codex", "--agent", "coder").stdout
    assert "codex mcp add weftline --env WEFTLINE_DATA_DIR=" in shown
    assert "-- weftline mcp --as coder" in shown


def test_an_editor_without_hooks_has_no_plugin(cli: CommandLine) -> None:
    assert "has no hooks" in cli.run("init", "vscode", "--plugin", code=2).stderr
    assert "--plugin excludes" in cli.run("init", "cursor", "--plugin", "--agent", "a", code=2).stderr
