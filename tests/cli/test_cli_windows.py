"""``weftline window`` and ``weftline context ingest``: text output."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest

if TYPE_CHECKING:
    from cli_support import CommandLine

TIMESTAMP = r"20\d\d-\S+ \S+Z"
EVENTS = [
    {"event_id": "rules", "role": "system", "content": "Be brief. " * 20},
    {"event_id": "q1", "content": "Why are orders slow?"},
]
CALL = {"call_id": "c1", "name": "look", "arguments": "{}"}


def test_the_events_of_a_window_are_printed_as_a_conversation(launch: CommandLine) -> None:
    launch.run("agent", "create", "planner")
    events = [
        {"event_id": "rules", "role": "system", "content": "be brief\nand kind", "pinned": True},
        {"event_id": "ask", "role": "assistant", "tool_calls": [CALL], "recipient_id": "critic"},
    ]
    launch.run("context", "ingest", msgspec.json.encode(events).decode(), "-s", "launch", "--agent-id", "planner")
    shown = launch.run("window", "events", "-s", "launch", "--agent-id", "planner").stdout
    assert re.fullmatch(
        rf"1 system  SYSTEM · rules · 5 tokens · planner · pinned · {TIMESTAMP}\n"
        r"  be brief\n"
        r"  and kind\n"
        r"\n"
        rf"2 assistant  DIALOG · ask · 10 tokens · planner · to critic · {TIMESTAMP}\n"
        r"  calls look \{\}\n",
        shown,
    )


@pytest.mark.req("CE-L1")
def test_an_event_is_printed_with_the_time_at_which_it_happened_its_step_and_its_reason(launch: CommandLine) -> None:
    event = {"event_id": "old", "content": "Rest on Tuesdays.", "occurred_at": "2025-03-04T09:30:00+01:00"}
    event |= {"step": "planning", "reason": "old chat"}
    launch.run("context", "ingest", msgspec.json.encode([event]).decode(), "-s", "launch")
    shown = launch.run("window", "events", "-s", "launch").stdout
    assert re.search(rf"· step planning · 2025-03-04 08:30:00Z, recorded {TIMESTAMP} · old chat\n", shown)
    assert "old chat (step planning)" in launch.run("history", "log", "window:launch:admin").stdout
    future = msgspec.json.encode([event | {"event_id": "new", "occurred_at": "2190-01-01T00:00:00Z"}]).decode()
    refused = launch.run("context", "ingest", future, "-s", "launch", code=1).stderr
    assert "events[0].occurred_at" in refused


@pytest.mark.req("CE-F31")
@pytest.mark.req("CE-U7")
def test_an_agent_hands_over_only_the_system_prompt_that_is_registered(launch: CommandLine) -> None:
    launch.run("agent", "create", "planner")
    prompt = {"event_id": "own", "role": "system", "content": "Be brief."}
    ingest = ("--as", "planner", "context", "ingest", msgspec.json.encode([prompt]).decode())
    refused = launch.run(*ingest, code=3).stderr
    assert "SELF_MODIFICATION" in refused
    assert "weftline agent define" in refused
    mixed = msgspec.json.encode([prompt | {"event_id": "other"}, EVENTS[1]]).decode()
    assert re.search(r"other +1 +CONTEXT .* data", launch.run("--as", "planner", "context", "ingest", mixed).stdout)
    inline = ("--as", "planner", "context", "assemble", "Go.", "--system", '"Be brief."', "--messages", "[]")
    assert "SELF_MODIFICATION" in launch.run(*inline, code=3).stderr
    launch.run("agent", "define", "planner", "--system-prompt", "Be brief.")
    launch.run(*ingest)
    launch.run(*inline)


@pytest.mark.req("MW-04")
def test_a_clamp_is_shown_with_the_window(launch: CommandLine) -> None:
    launch.run("agent", "create", "planner")
    launch.run("agent", "create", "critic", "--parent-id", "planner")
    for agent, tokens in (("planner", "8000"), ("critic", "2000")):
        launch.run("window", "create", "-s", "launch", "--agent-id", agent, "--model-max-tokens", tokens)
    for agent in ("planner", "critic"):
        shown = launch.run("window", "show", "-s", "launch", "--agent-id", agent).stdout
        assert re.search(r"clamped: +critic to 1,750 of planner's 7,000\n", shown)


@pytest.fixture
def team(launch: CommandLine) -> CommandLine:
    """Return a command line in a session where a planner and its sub-agent have windows."""
    for name, parent in (("planner", ()), ("analysis", ("--parent-id", "planner"))):
        launch.run("agent", "create", name, *parent)
    launch.run("context", "ingest", msgspec.json.encode(EVENTS).decode(), "--agent-id", "planner")
    launch.run("window", "create", "--agent-id", "analysis", "--model-max-tokens", "2000")
    return launch


def test_a_window_is_shown_with_its_use_by_category(team: CommandLine) -> None:
    output = team.run("window", "show", "--agent-id", "planner").stdout
    assert output.startswith("Window of planner in session launch · no model named\n")
    assert re.search(r"▕[█▏▎▍▌▋▊▉ ]{40}▏ \d+ of 123,904 tokens \(\d\.\d%\)", output)
    assert re.search(r"\n  category +tokens +budget +used +events\n  SYSTEM +\d+ +18,58\d +\d\.\d% +\d\n", output)
    assert re.search(r"\n  DIALOG +5 +49,56\d +0\.0% +1\n", output)
    assert "compaction: at 80% of the limit, not reached" in output
    assert re.search(r"clamped: +analysis to 1,750 of planner's 123,904", output)
    assert "window:launch:planner, " in output


def test_sharing_and_routes_are_shown(team: CommandLine) -> None:
    team.run("window", "route", "DIALOG", "--agent-id", "planner", "--to-agents", "analysis")
    team.run("window", "join", "planner", "--agent-id", "analysis")
    planner = team.run("window", "show", "--agent-id", "planner").stdout
    assert re.search(r"shared by: +analysis\n", planner)
    assert re.search(r"routes: +DIALOG to analysis\n", planner)
    analysis = team.run("window", "show", "--agent-id", "analysis").stdout
    assert re.search(r"uses: +the window of planner\n", analysis)
    assert re.search(r"parent: +planner\n", analysis)
