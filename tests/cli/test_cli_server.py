"""Commands on a server, ``weftline serve`` and ``weftline mcp``, as processes."""

from __future__ import annotations

import json
import socket
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest
from cli_support import CommandLine, free_port

from support.forked_python import server_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SET_A_KEY = "Set WEFTLINE_API_KEY to an API key or token of this server, or give a file with --key @FILE."


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """Return a command line on a server, without a data folder."""
    with server_process(tmp_path_factory.mktemp("served")) as server:
        yield CommandLine(server.log.parent, {"WEFTLINE_URL": server.url, "WEFTLINE_API_KEY": server.admin_key})


def test_a_server_gives_the_same_answers_as_a_data_folder(remote: CommandLine) -> None:
    remote.run("session", "create", "Plan", "--session-id", "far")
    remote.run("board", "write", "goal", "Ship", "-s", "far", "--ttl-seconds", "60")
    here = CommandLine(remote.data)
    for command in (["board", "list-keys", "-s", "far"], ["events", "read", "--after", "0"], ["audit", "list"]):
        assert remote.json(*command) == here.json(*command)


def test_a_server_error_prints_like_a_local_one(remote: CommandLine) -> None:
    remote.run("session", "create", "Plan", "--session-id", "errors")
    command = ["board", "read", "gaol", "-s", "errors"]
    assert remote.run(*command, code=1).stderr == CommandLine(remote.data).run(*command, code=1).stderr


def test_a_start_that_fails_shows_no_key(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = {"WEFTLINE_PORT": str(taken.getsockname()[1])}
        for wrong in (port, {"WEFTLINE_METRICS_TOKEN": "short"}, {"WEFTLINE_LOG_LEVEL": "LOUD"}):
            failed = CommandLine(tmp_path, {"WEFTLINE_PORT": str(free_port()), **wrong}).process("serve")
            assert failed.returncode != 0
            assert "Hint:" in failed.stderr
            assert "Traceback" not in failed.stderr
            assert "weftline." not in failed.stderr.replace("weftline.db", "")
    # The key is shown by the first start that succeeds.
    with server_process(tmp_path) as server:
        assert server.admin_key


def with_key(line: CommandLine, key: str) -> CommandLine:
    return CommandLine(line.data, {**line.env, "WEFTLINE_API_KEY": key})


def test_a_wrong_key_is_forbidden(remote: CommandLine) -> None:
    stderr = with_key(remote, "weftline.default.key_0.x").run("session", "list", code=3).stderr
    assert "INVALID_API_KEY" in stderr
    assert f"WEFTLINE_API_KEY or --key @FILE, and must be one of the server {remote.env['WEFTLINE_URL']}" in stderr
    malformed = with_key(remote, "nonsense").run("session", "list", code=3).stderr
    assert "weftline key create AGENT" in malformed
    assert "Bearer" not in malformed


@pytest.mark.req("WX-08")
def test_a_missing_key_says_where_to_set_it(remote: CommandLine) -> None:
    without = CommandLine(remote.data, {"WEFTLINE_URL": remote.env["WEFTLINE_URL"]})
    stderr = without.run("session", "list", code=3).stderr
    assert f"The server {remote.env['WEFTLINE_URL']} needs an API key." in stderr
    assert SET_A_KEY in stderr


def test_a_key_passed_to_token_issue_is_not_the_one_of_the_command(remote: CommandLine) -> None:
    stderr = remote.run("token", "issue", "planner", "planner", "-", code=3, stdin="weftline.default.key_0.x").stderr
    assert "WEFTLINE_API_KEY" not in stderr


@pytest.mark.req("WX-08")
def test_a_folder_named_by_a_flag_is_not_mixed_up_with_the_server(remote: CommandLine) -> None:
    remote.run("session", "create", "Plan", "--session-id", "kept")
    refused = remote.run("--data-dir", "scratch", "session", "delete", "kept", "--yes", code=2).stderr
    assert "WEFTLINE_URL is set" in refused
    assert remote.json("session", "get", "kept")["session"]["id"] == "kept"


def test_a_token_is_issued_for_an_api_key(remote: CommandLine) -> None:
    key = remote.json("agent", "create", "planner")["api_key"]
    token = remote.json("token", "issue", "planner", "planner", "-", stdin=key + "\n")["token"]
    assert with_key(remote, token).json("session", "list")["success"]
    file = remote.data / "token"
    file.write_text(f"{token}\n")
    assert remote.json("--key", f"@{file}", "session", "list")["success"]
    assert remote.json("--key", "-", "session", "list", stdin=token)["success"]


def test_an_unreachable_server_is_unavailable(cli: CommandLine) -> None:
    stderr = cli.run("--url", "http://127.0.0.1:9", "session", "list", code=4).stderr
    assert "SYSTEM_UNAVAILABLE" in stderr


def checks_of(line: CommandLine, *options: str, code: int = 0) -> dict[str, tuple[str, str]]:
    return {
        each["check"]: (each["state"], each["detail"]) for each in line.json(*options, "doctor", code=code)["checks"]
    }


@pytest.mark.req("WX-08")
def test_doctor_checks_the_server_that_commands_would_call(remote: CommandLine) -> None:
    url = remote.env["WEFTLINE_URL"]
    checks = checks_of(remote)
    assert checks["Target"] == ("ok", f"the server {url} (WEFTLINE_URL)")
    assert checks["Server"] == ("ok", f"Weftline {version('weftline')} answers at {url}")
    assert [checks[name][0] for name in ("Ready", "Clock", "Key")] == ["ok", "ok", "ok"]
    assert checks["Key"][1].startswith("of admin: ")
    assert "Database" not in checks
    wrong = with_key(remote, "weftline.default.key_0.x")
    assert checks_of(wrong, code=1)["Key"] == ("problem", "The API key is not valid.")
    local = checks_of(CommandLine(remote.data, {"WEFTLINE_PORT": str(free_port())}), "--data-dir", str(remote.data))
    assert local["Target"] == ("ok", f"the data folder {remote.data} (--data-dir)")
    assert local["Caller"] == ("ok", "admin, in the tenant default")
    assert "Server" not in local


@pytest.mark.req("WX-08")
def test_doctor_says_what_is_wrong_with_the_server(remote: CommandLine) -> None:
    without = CommandLine(remote.data, {"WEFTLINE_URL": remote.env["WEFTLINE_URL"]})
    assert SET_A_KEY in without.run("doctor", code=1).stdout
    assert "cannot be reached" in checks_of(remote, "--url", f"http://127.0.0.1:{free_port()}", code=1)["Server"][1]
    assert "has no http://" in checks_of(remote, "--url", "127.0.0.1:8787", code=1)["Server"][1]


def test_doctor_checks_who_would_act(launch: CommandLine) -> None:
    launch.env["WEFTLINE_PORT"] = str(free_port())
    result = launch.run("--as", "nobody", "doctor", code=1)
    assert "Ask an admin of the tenant to create it with weftline agent create" in result.stdout
    assert checks_of(launch, "--tenant", "acme", code=1)["Caller"] == ("problem", "There is no tenant 'acme'.")


def test_doctor_recognises_the_running_server(remote: CommandLine) -> None:
    port = remote.env["WEFTLINE_URL"].rpartition(":")[2]
    local = CommandLine(remote.data, {"WEFTLINE_PORT": port})
    [port_check] = [check for check in local.json("doctor")["checks"] if check["check"] == "Port"]
    assert (port_check["state"], "answers at" in port_check["detail"]) == ("ok", True)


def test_mcp_answers_over_standard_input_and_output(launch: CommandLine) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    ended = launch.process("mcp", "--as", "admin", "--session", "launch", stdin=json.dumps(hello) + "\n")
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout.splitlines()[0])
    assert answer["result"]["serverInfo"]["name"].lower() == "weftline"


@pytest.mark.req("WX-01")
def test_mcp_with_an_unknown_tool_profile_is_refused(launch: CommandLine) -> None:
    ended = launch.process("mcp", "--as", "admin", "--tools", "board,nothing")
    assert ended.returncode == 1
    assert "no tool profile named 'nothing'" in ended.stderr
    assert "collaboration" in ended.stderr


def test_mcp_as_an_unknown_agent_is_refused(launch: CommandLine) -> None:
    ended = launch.process("mcp", "--as", "nobody")
    assert ended.returncode == 3
    assert "AUTHENTICATION_ERROR" in ended.stderr


def test_options_of_serve_override_the_environment(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = {}
    monkeypatch.setattr("weftline.transports.server.serve", lambda settings: seen.update(s=settings))
    cli.env["WEFTLINE_HOST"] = "0.0.0.0"
    cli.run("serve", "--port", "9000", "--data-dir", str(tmp_path / "other"))
    assert (seen["s"].host, seen["s"].port) == ("0.0.0.0", 9000)
    assert seen["s"].storage_url == str(tmp_path / "other" / "weftline.db")
    cli.run("serve")
    assert seen["s"].data_dir == str(cli.data)
