"""Session commands on a data folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from weftline.app.registry import all_operations

if TYPE_CHECKING:
    from pathlib import Path

    from cli_support import CommandLine


def test_a_session_from_beginning_to_end(cli: CommandLine) -> None:
    agent = cli.json("agent", "create", "planner", "--clearance", "2")
    assert agent["api_key"].startswith("weftline.default.")
    cli.run(
        "session",
        "create",
        "Plan the launch",
        "--session-id",
        "launch",
        "--metadata",
        '{"ticket": 7}',
        "--members",
        "planner",
    )
    cli.env["WEFTLINE_SESSION"] = "launch"

    written = cli.json("--as", "planner", "board", "write", "goal", "Ship on Friday")
    assert written["written_by"] == "orchestrator:planner"
    cli.run("board", "snapshot", "before")
    assert cli.json("board", "write", "goal", "Ship on Monday", "--if-version", "1")["version"] == 2
    cli.run("board", "write", "risk", "Rain")

    assert cli.json("board", "read", "goal")["value"] == "Ship on Monday"
    assert [key["key"] for key in cli.json("board", "list-keys")["keys"]] == ["goal", "risk"]
    assert [v["value"] for v in cli.json("board", "read-history", "goal")["versions"]] == [
        "Ship on Friday",
        "Ship on Monday",
    ]
    assert cli.json("board", "read-batch", "risk", "goal", "nothing")["missing"] == ["nothing"]
    assert cli.json("board", "compare-snapshots", "before")["modified"][0]["key"] == "goal"
    assert cli.json("board", "restore-snapshot", "before", "--yes") == {
        "restored": "before",
        "written": ["goal"],
        "deleted": ["risk"],
    }

    events = cli.json("events", "read", "--after", "0")["events"]
    assert [event["type"] for event in events][:3] == ["session.created", "board.written", "board.snapshot"]
    actions = [entry["action"] for entry in cli.json("audit", "list")["entries"]]
    assert actions == ["board.restore_snapshot", "agent.create"]
    assert cli.json("session", "get", "launch")["session"]["metadata"] == {"ticket": 7}
    assert cli.json("session", "archive", "launch", "--yes")["success"]
    assert "SESSION_ARCHIVED" in cli.run("board", "write", "goal", "again", code=1).stderr


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("board.list_keys", ["board", "list-keys"]),
        ("session.list", ["session", "list"]),
        ("session.get", ["session", "get", "launch"]),
        ("events.read", ["events", "read", "--after", "0"]),
        ("board.check", ["board", "check"]),
        ("agent.list", ["agent", "list"]),
    ],
)
def test_json_is_exactly_the_response(name: str, command: list[str], launch: CommandLine) -> None:
    launch.run("board", "write", "goal", "Ship")
    printed = launch.run(*command, "--json").stdout
    response = msgspec.json.decode(printed, type=all_operations()[name].response)
    assert msgspec.json.encode(response).decode() + "\n" == printed


@pytest.mark.parametrize(
    ("argument", "stdin", "stored"),
    [
        ("plain", "", "plain"),
        ("-", "from a pipe\nwith two lines\n", "from a pipe\nwith two lines"),
        ("@{file}", "", "from a file — ü"),
        ("@@mention", "", "@mention"),
        ("", "", ""),
    ],
)
def test_text_comes_from_an_argument_standard_input_or_a_file(
    argument: str, stdin: str, stored: str, launch: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "value.txt"
    file.write_text("from a file — ü\n", "utf-8")
    launch.run("board", "write", "goal", argument.format(file=file), stdin=stdin)
    assert launch.json("board", "read", "goal")["value"] == stored


@pytest.mark.parametrize(
    ("argument", "stdin", "message"),
    [
        ("@/no/such/file", b"", "cannot be read: No such file or directory"),
        ("-", b"\xff\xfe", "standard input is not UTF-8 text"),
        ("a\udcffb", b"", "is not UTF-8 text"),
    ],
)
def test_unreadable_text_is_a_usage_error(argument: str, stdin: bytes, message: str, launch: CommandLine) -> None:
    assert message in launch.run("board", "write", "goal", argument, code=2, stdin=stdin).stderr


def test_objects_are_json_or_a_json_file(cli: CommandLine, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"namespaces": true, "max_value_tokens": 20}')
    cli.run("session", "create", "Work", "--session-id", "s", "--config", f"@{config}")
    assert cli.json("session", "get", "s")["session"]["config"]["max_value_tokens"] == 20
    groups = '[{"title": "All", "keys": [{"key": "goal", "purpose": "what for"}]}]'
    assert cli.json("conventions", "define", "sales", groups)["key_count"] == 1
    assert "is not JSON" in cli.run("session", "create", "Work", "--config", "{", code=2).stderr


def test_list_options_are_repeated(launch: CommandLine) -> None:
    launch.run("board", "write", "goal", "x", "--readable-by", "human:*", "--readable-by", "orchestrator")
    [key] = launch.json("board", "list-keys")["keys"]
    assert key["readable_by"] == ["human:*", "orchestrator"]
    cli_agent = launch.json("agent", "create", "reader", "--permissions", "read")
    assert cli_agent["permissions"] == ["read"]


def test_omitted_options_use_the_defaults_of_weftline(launch: CommandLine) -> None:
    launch.run("agent", "create", "planner")
    updated = launch.json("agent", "update", "planner", "--disabled")
    assert (updated["disabled"], updated["permissions"]) == (True, ["read", "write"])
    assert launch.json("agent", "update", "planner", "--no-disabled")["disabled"] is False
    assert launch.json("agent", "update", "planner", "--min-score", "0")["min_score"] == 0.0


@pytest.mark.req("SC-10")
def test_guidance_is_printed_as_plain_text(launch: CommandLine) -> None:
    text = launch.run("board", "guidance", "--part", "writing").stdout
    assert text == launch.json("board", "guidance", "--part", "writing")["text"] + "\n"


def test_the_first_write_in_a_new_folder_creates_the_default_tenant_and_prints_its_key_once(cli: CommandLine) -> None:
    assert "weftline.default.key_" in cli.run("session", "create", "Plan").stderr
    assert cli.run("session", "list").stderr == ""


def test_tenants_are_created_listed_and_isolated(launch: CommandLine) -> None:
    assert launch.json("tenant", "create", "acme")["admin_key"].startswith("weftline.acme.")
    assert launch.json("tenant", "list") == {"tenants": ["acme", "default"]}
    assert launch.json("--tenant", "acme", "session", "list")["sessions"] == []
    assert "TENANT_EXISTS" in launch.run("tenant", "create", "acme", code=1).stderr
    assert "AUTHENTICATION_ERROR" in launch.run("--tenant", "nobody", "session", "list", code=3).stderr


@pytest.mark.req("CE-T", part="all limits of what exists")
def test_the_owner_of_the_data_folder_sets_a_tenants_plan(launch: CommandLine) -> None:
    shown = launch.json("tenant", "plan", "default")
    assert (shown["plan"], shown["default"], shown["custom"]) == ("enterprise", True, [])
    free = launch.json("tenant", "plan", "default", "free", "--set", "domains=20", "--set", "bytes=3GiB")
    assert (free["plan"], free["default"], free["custom"]) == ("free", False, ["bytes", "domains"])
    assert (free["limits"]["domains"], free["limits"]["bytes"], free["limits"]["results"]) == ("20", "3GiB", "5")
    more = launch.json("tenant", "plan", "default", "--set", "results=unlimited", "--set", "insight=alerts")
    assert more["custom"] == ["bytes", "domains", "insight", "results"]
    assert (more["limits"]["results"], more["limits"]["insight"]) == ("unlimited", "alerts")
    assert "there is no such limit" in launch.run("tenant", "plan", "default", "--set", "gold=1", code=1).stderr
    assert launch.json("tenant", "plan", "default", "free")["custom"] == []
    assert launch.json("knowledge", "list-domains")["plan"] == "free"
    assert "TENANT_NOT_FOUND" in launch.run("tenant", "plan", "nobody", "pro", code=1).stderr
    assert "golden" in launch.run("tenant", "plan", "default", "golden", code=2).stderr


def test_the_data_dir_option_overrides_a_database_url_of_the_environment(cli: CommandLine, tmp_path: Path) -> None:
    cli.env["WEFTLINE_DATABASE_URL"] = str(tmp_path / "elsewhere.db")
    cli.run("--data-dir", str(tmp_path / "here"), "session", "create", "Work")
    assert (tmp_path / "here" / "weftline.db").exists()
    assert not (tmp_path / "elsewhere.db").exists()


def test_two_processes_share_a_folder(launch: CommandLine) -> None:
    ended = launch.process("board", "write", "goal", "-", "--json", stdin="from another process\n")
    assert ended.returncode == 0, ended.stderr
    answer: Any = msgspec.json.decode(ended.stdout)
    assert answer["version"] == 1
    assert launch.json("board", "read", "goal")["value"] == "from another process"
