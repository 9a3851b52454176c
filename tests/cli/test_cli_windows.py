"""``weft window`` and ``weft context ingest``: text output."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest

if TYPE_CHECKING:
    from cli_support import CommandLine

TIMESTAMP = r"20\d\d-\S+ \S+Z"
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


@pytest.mark.req("MW-04")
def test_a_clamp_is_shown_with_the_window(launch: CommandLine) -> None:
    launch.run("agent", "create", "planner")
    launch.run("agent", "create", "critic", "--parent-id", "planner")
    for agent, tokens in (("planner", "8000"), ("critic", "2000")):
        launch.run("window", "create", "-s", "launch", "--agent-id", agent, "--model-max-tokens", tokens)
    for agent in ("planner", "critic"):
        shown = launch.run("window", "show", "-s", "launch", "--agent-id", agent).stdout
        assert re.search(r"critic +1750 +planner +7000", shown)
