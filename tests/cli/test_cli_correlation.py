"""Commands say what they are part of: by options, by the environment, on the data folder and on a server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from cli_support import CommandLine, clean_environment

from support.correlation import SPAN, TASK, TRACE, TRACEPARENT, TURN, events_of
from support.team import opened
from weft.kernel.correlation import NO_CORRELATION, Correlation
from weft.testing.server import server_process

if TYPE_CHECKING:
    from pathlib import Path

    from weft.kernel.events import StoredEvent

pytestmark = pytest.mark.req("AC-12")


def the_write(data: Path, key: str) -> StoredEvent:
    async def look() -> list[StoredEvent]:
        async with opened(data) as app:
            return await events_of(app, "default", subject=key)

    (event,) = asyncio.run(look())
    return event


def test_what_a_command_does_is_part_of_the_turn_and_task_it_names(launch: CommandLine) -> None:
    launch.run("--turn", TURN, "--task", TASK, "board", "write", "goal", "ship")
    launch.run("board", "write", "later", "x")
    assert the_write(launch.data, "goal").correlation == Correlation(turn_id=TURN, task_id=TASK)
    assert the_write(launch.data, "later").correlation is NO_CORRELATION


def test_the_environment_says_it_for_every_command(launch: CommandLine) -> None:
    launch.env |= {"WEFT_TURN": TURN, "WEFT_TASK": TASK, "TRACEPARENT": TRACEPARENT}
    launch.run("board", "write", "goal", "ship")
    launch.run("--task", "nearer", "board", "write", "other", "x")
    expected = Correlation(turn_id=TURN, task_id=TASK, trace_id=TRACE, span_id=SPAN)
    assert the_write(launch.data, "goal").correlation == expected
    assert the_write(launch.data, "other").correlation.task_id == "nearer"


def test_a_trace_that_cannot_be_read_and_names_that_are_empty_are_left_out(launch: CommandLine) -> None:
    launch.env |= {"WEFT_TURN": "", "WEFT_TASK": "", "TRACEPARENT": "garbage"}
    launch.run("board", "write", "goal", "ship")
    assert the_write(launch.data, "goal").correlation is NO_CORRELATION


def test_a_turn_that_is_no_id_is_refused_and_nothing_is_done(launch: CommandLine) -> None:
    refused = launch.json("--turn", "a b", "board", "write", "goal", "ship", code=1)
    assert (refused["code"], refused["context"]["field"]) == ("INVALID_INPUT_FORMAT", "turn_id")
    launch.run("board", "read", "goal", code=1)


def test_a_server_is_told_too(tmp_path: Path) -> None:
    with server_process(tmp_path) as server:
        cli = CommandLine(tmp_path, {"WEFT_URL": server.url, "WEFT_API_KEY": server.admin_key})
        cli.run("session", "create", "Plan", "--session-id", "launch")
        cli.env |= {"WEFT_SESSION": "launch", "TRACEPARENT": TRACEPARENT}
        cli.run("--turn", TURN, "--task", TASK, "board", "write", "goal", "ship")
        correlation = the_write(tmp_path, "goal").correlation
    assert correlation == Correlation(turn_id=TURN, task_id=TASK, trace_id=TRACE, span_id=SPAN)


def test_an_agent_that_is_started_for_a_task_does_everything_for_it(launch: CommandLine) -> None:
    call = (
        '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
        '"clientInfo":{"name":"raw","version":"1"}}}\n'
        '{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shared_context","arguments":'
        '{"action":"write","session_id":"launch","key":"goal","value":"ship"},"_meta":{"weft/turn_id":"t1"}}}\n'
    )
    command = [sys.executable, "-c", "from weft.transports.cli.main import main; main()", "--task", TASK, "mcp"]
    environment = {**clean_environment(), "WEFT_DATA_DIR": str(launch.data)}
    with subprocess.Popen(command, env=environment, stdin=-1, stdout=-1, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(call)
        server.stdin.flush()
        answers = [server.stdout.readline() for _ in range(2)]
        server.stdin.close()
    assert '"isError":false' in answers[1]
    correlation = the_write(launch.data, "goal").correlation
    assert correlation == Correlation(turn_id="t1", task_id=TASK, jsonrpc_request_id=1)
