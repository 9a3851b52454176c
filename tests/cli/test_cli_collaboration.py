"""Messages, search and memory commands, on a data folder and on a server; the guides' commands run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest
from cli_support import CommandLine

from support.forked_python import server_process
from support.json_values import VALUES, typed

if TYPE_CHECKING:
    from collections.abc import Iterator

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


class CommandLines(NamedTuple):
    """Command lines of a planner and an admin in a session named release, each with an API key."""

    planner: CommandLine
    admin: CommandLine


@pytest.fixture(params=["folder", "server"])
def lines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CommandLines]:
    if request.param == "folder":
        yield with_session(CommandLine(tmp_path))
    else:
        with server_process(tmp_path) as server:
            address = {"WEFTLINE_URL": server.url, "WEFTLINE_API_KEY": server.admin_key}
            yield with_session(CommandLine(tmp_path / "unused", address))


def with_session(admin: CommandLine) -> CommandLines:
    admin.run("session", "create", "Release 2.0", "--session-id", "release", "--members", "*")
    key = admin.json("agent", "create", "planner", "--agent-type", "planning")["api_key"]
    session = {"WEFTLINE_SESSION": "release"}
    planner = CommandLine(admin.data, {**admin.env, **session, "WEFTLINE_API_KEY": key})
    return CommandLines(planner, CommandLine(admin.data, {**admin.env, **session}))


def run_guide(guide: str, lines: CommandLines) -> None:
    """Run every command of a guide in order; sections for admins run as the admin, which needs no variable unset."""
    sections = (GUIDES / guide).read_text("utf-8").split("\n## ")
    for section in sections:
        title = section.partition("\n")[0]
        if title == "Before you start":
            continue
        line = lines.admin if "as an admin" in title else lines.planner
        for command in "".join(BLOCK.findall(section)).splitlines():
            program, *arguments = shlex.split(command)
            assert program in {"weftline", "unset"}
            if program == "weftline":
                line.run(*arguments)


def contents(line: CommandLine, *which: str) -> list[str]:
    return [message["content"] for message in line.json("message", "list", *which)["messages"]]


@pytest.mark.req("MS-03")
@pytest.mark.req("MS-04")
@pytest.mark.req("MS-05")
@pytest.mark.req("MS-13")
def test_the_commands_of_the_message_guide_run(lines: CommandLines) -> None:
    run_guide("exchange-messages.md", lines)
    # The guide's last step makes the first message visible to admins only.
    assert contents(lines.planner) == [
        "Note to self: ask about indexes.",
        "Between us planners: Friday is at risk.",
        "Looking at it now.",
    ]
    assert contents(lines.planner, "--after-id", "3") == ["Looking at it now."]
    assert contents(lines.planner, "--visibility-filter", "private") == ["Note to self: ask about indexes."]
    assert contents(lines.admin) == ["The schema is ready for review.", "Looking at it now."]
    assert len(lines.admin.json("message", "inspect")["messages"]) == 4
    acts = {entry["action"] for entry in lines.admin.json("audit", "list")["entries"]}
    assert {"message.inspect", "message.set_visibility"} <= acts


@pytest.mark.req("MS-05")
@pytest.mark.req("MS-06")
def test_messages_are_found_by_search(lines: CommandLines) -> None:
    lines.planner.run("message", "add", "The schema is ready for review.", "--metadata", '{"component": "database"}')
    lines.planner.run("message", "add", "Lunch is at noon.")
    found = lines.planner.json("message", "search", "shcema reviw")
    assert [result["message"]["id"] for result in found["results"]] == [1]
    assert found["results"][0]["message"]["metadata"] == {"component": "database"}
    assert lines.planner.json("message", "search-by-sender", "planner")["count"] == 2
    assert lines.planner.json("message", "search-by-timerange", "2020-01-01", "9999-12-31")["count"] == 2
    assert lines.planner.json("message", "search-by-timerange", "2020-01-01", "2020-01-01T23:00:00+01:00")["count"] == 0


@pytest.mark.req("MS-07")
def test_the_commands_of_the_memory_guide_run(lines: CommandLines) -> None:
    run_guide("use-private-memory.md", lines)
    assert lines.planner.json("memory", "get", "user_preferences")["value"] == {"theme": "dark", "language": "en"}
    lines.planner.run("memory", "set", "next_step", "Ask Dana")
    assert "Ask Dana" in lines.planner.run("memory", "get", "next_step").stdout
    assert "MEMORY_NOT_FOUND" in lines.admin.run("memory", "get", "next_step", code=1).stderr


@pytest.mark.req("MS-07")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("hello", "hello"),
        ("two words", "two words"),
        ('"5"', "5"),
        ("5", 5),
        ("0.5", 0.5),
        ("true", True),
        ("null", None),
        ("[1, [2]]", [1, [2]]),
        ('{"a": null}', {"a": None}),
        ("", ""),
    ],
)
def test_a_value_is_json_or_else_text(cli: CommandLine, given: str, expected: Any) -> None:
    cli.run("memory", "set", "k", given)
    value = cli.json("memory", "get", "k")["value"]
    assert (value, type(value)) == (expected, type(expected))


@pytest.mark.req("MS-07")
def test_values_of_every_json_type_are_stored(lines: CommandLines) -> None:
    for given, expected in {"hello": "hello", "5": 5, "null": None, "[true]": [True]}.items():
        lines.planner.run("memory", "set", "k", given)
        assert lines.planner.json("memory", "get", "k")["value"] == expected


@pytest.mark.req("SC-03")
def test_board_values_of_every_json_type_are_read_as_they_were_written(lines: CommandLines) -> None:
    for value in VALUES:
        lines.planner.run("board", "write", "state", "-", stdin=msgspec.json.encode(value))
        assert typed(lines.planner.json("board", "read", "state")["value"]) == typed(value)


@pytest.mark.req("SC-03")
@pytest.mark.parametrize(
    "text", ["Ship it", "1.10", "007", "1e3", "1e400", "[draft] ship", '{"a":', "NaN", "true or not"]
)
def test_what_json_would_alter_or_refuse_is_text_on_the_board(launch: CommandLine, text: str) -> None:
    launch.run("board", "write", "state", text)
    assert launch.json("board", "read", "state")["value"] == text


def test_json_of_a_board_is_shown_as_json_and_text_as_it_is(launch: CommandLine) -> None:
    for given, shown in {
        '{"a": [1, true]}': '{"a":[1,true]}',
        "null": "null",
        "true": "true",
        "Ship it": "Ship it",
    }.items():
        launch.run("board", "write", "state", given)
        assert re.search(rf"^value: +{re.escape(shown)}$", launch.run("board", "read", "state").stdout, re.MULTILINE)


@pytest.mark.parametrize("broken", ['{"a":', "[1,", '"text', ' {"a"}'])
def test_invalid_json_is_refused(cli: CommandLine, broken: str) -> None:
    assert "is not JSON" in cli.run("memory", "set", "k", broken, code=2).stderr
    assert not cli.data.exists()


@pytest.mark.req("MS-07")
def test_memory_is_global_despite_a_session_in_the_environment(launch: CommandLine) -> None:
    launch.run("memory", "set", "phase", "idle")
    launch.run("memory", "set", "phase", "triage", "--session", "launch")
    assert launch.json("memory", "get", "phase")["scope"] == "global"
    assert launch.json("memory", "get", "phase")["value"] == "idle"
    assert launch.json("memory", "get", "phase", "-s", "launch")["value"] == "triage"
    assert launch.json("memory", "list")["scope_filter"] == "global"
    assert launch.json("memory", "list", "-s", "all")["count"] == 2
    launch.run("memory", "delete", "phase", "--yes")
    assert launch.json("memory", "list", "-s", "all")["entries"][0]["session_id"] == "launch"


@pytest.mark.req("MS-10")
def test_errors_have_hints(launch: CommandLine) -> None:
    refusals = {
        "MESSAGE_NOT_FOUND": ["message", "add", "hello", "--parent-message-id", "7"],
        "SESSION_NOT_FOUND": ["message", "list", "-s", "nowhere"],
        "MEMORY_NOT_FOUND": ["memory", "get", "absent"],
    }
    for code, command in refusals.items():
        assert code in launch.run(*command, code=1).stderr
    assert "10001" in launch.run("message", "add", "x" * 10_001, code=1).stderr


@pytest.mark.req("MS-08")
def test_admins_read_metrics_and_everyone_their_capabilities(lines: CommandLines) -> None:
    assert lines.admin.json("performance", "read")["requesting_agent"] == "admin"
    assert isinstance(lines.admin.json("performance", "read", "--history-hours", "24")["history"], list)
    assert "PERMISSION_DENIED" in lines.planner.run("performance", "read", code=3).stderr
    topics = lines.planner.json("agent", "capabilities")["topics"]
    tools = {tool for offered in topics.values() for tool in offered}
    assert "add_message" in tools
    assert "get_performance_metrics" not in tools


@pytest.mark.req("WX-03")
def test_agents_talk_through_their_inboxes_whatever_the_current_session(cli: CommandLine) -> None:
    cli.run("agent", "create", "planner")
    cli.run("agent", "create", "checker", "--parent-id", "planner")
    cli.run("--as", "planner", "session", "create", "Talk", "--session-id", "talk")
    cli.run("--as", "planner", "message", "add", "Reversible?", "--session", "talk", "--recipient-id", "checker")
    refused = cli.run(
        "--as", "planner", "message", "add", "?", "--session", "talk", "--recipient-id", "cheker", code=1
    ).stderr
    assert "RECIPIENT_NOT_FOUND" in refused
    assert "checker" in refused.replace("cheker", "")

    cli.env["WEFTLINE_SESSION"] = "elsewhere"
    (question,) = cli.json("--as", "checker", "inbox")["messages"]
    assert (question["handle"], question["sender"], question["content"]) == ("talk/1", "planner", "Reversible?")
    assert cli.json("--as", "checker", "inbox", "--acknowledge", "talk/1") == {
        "messages": [],
        "unread": 0,
        "acknowledged": 1,
    }
    assert [agent["agent_id"] for agent in cli.json("--as", "checker", "agent", "list")["agents"]] == ["planner"]
