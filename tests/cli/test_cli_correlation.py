"""Correlation ids of commands: by option or environment variable, on a data folder and on a server."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING

import pytest
from cli_support import CommandLine, clean_environment

from support import forked_python
from support.correlation import SPAN, TASK, TRACE, TRACEPARENT, TURN, events_of
from support.forked_python import server_process
from support.team import opened
from weftline.kernel.correlation import NO_CORRELATION, Correlation

if TYPE_CHECKING:
    from pathlib import Path

    from weftline.kernel.events import StoredEvent

pytestmark = pytest.mark.req("AC-12")


def event_of_write(data: Path, key: str) -> StoredEvent:
    async def read_events() -> list[StoredEvent]:
        async with opened(data) as app:
            return await events_of(app, "default", subject=key)

    (event,) = asyncio.run(read_events())
    return event


def test_turn_and_task_options_are_recorded_with_the_write(launch: CommandLine) -> None:
    launch.run("--turn", TURN, "--task", TASK, "board", "write", "goal", "ship")
    launch.run("board", "write", "later", "x")
    assert event_of_write(launch.data, "goal").correlation == Correlation(turn_id=TURN, task_id=TASK)
    assert event_of_write(launch.data, "later").correlation is NO_CORRELATION


def test_environment_variables_set_the_ids_for_every_command(launch: CommandLine) -> None:
    launch.env |= {"WEFTLINE_TURN": TURN, "WEFTLINE_TASK": TASK, "TRACEPARENT": TRACEPARENT}
    launch.run("board", "write", "goal", "ship")
    launch.run("--task", "nearer", "board", "write", "other", "x")
    expected = Correlation(turn_id=TURN, task_id=TASK, trace_id=TRACE, span_id=SPAN)
    assert event_of_write(launch.data, "goal").correlation == expected
    assert event_of_write(launch.data, "other").correlation.task_id == "nearer"


def test_invalid_traces_and_empty_ids_are_ignored(launch: CommandLine) -> None:
    launch.env |= {"WEFTLINE_TURN": "", "WEFTLINE_TASK": "", "TRACEPARENT": "garbage"}
    launch.run("board", "write", "goal", "ship")
    assert event_of_write(launch.data, "goal").correlation is NO_CORRELATION


def test_an_invalid_turn_id_is_refused_before_the_call(launch: CommandLine) -> None:
    refused = launch.json("--turn", "a b", "board", "write", "goal", "ship", code=1)
    assert (refused["code"], refused["context"]["field"]) == ("INVALID_INPUT_FORMAT", "turn_id")
    launch.run("board", "read", "goal", code=1)


def test_the_ids_are_sent_to_a_server(tmp_path: Path) -> None:
    with server_process(tmp_path) as server:
        cli = CommandLine(tmp_path, {"WEFTLINE_URL": server.url, "WEFTLINE_API_KEY": server.admin_key})
        cli.run("session", "create", "Plan", "--session-id", "launch")
        cli.env |= {"WEFTLINE_SESSION": "launch", "TRACEPARENT": TRACEPARENT}
        cli.run("--turn", TURN, "--task", TASK, "board", "write", "goal", "ship")
        correlation = event_of_write(tmp_path, "goal").correlation
    assert correlation == Correlation(turn_id=TURN, task_id=TASK, trace_id=TRACE, span_id=SPAN)


def test_an_mcp_server_started_for_a_task_records_it_with_every_call(launch: CommandLine) -> None:
    call = (
        '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
        '"clientInfo":{"name":"raw","version":"1"}}}\n'
        '{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shared_context","arguments":'
        '{"action":"write","session_id":"launch","key":"goal","value":"ship"},"_meta":{"weftline/turn_id":"t1"}}}\n'
    )
    command = [forked_python.python(), "-m", "weftline", "--task", TASK, "mcp"]
    environment = {**clean_environment(), "WEFTLINE_DATA_DIR": str(launch.data)}
    with subprocess.Popen(command, env=environment, stdin=-1, stdout=-1, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(call)
        server.stdin.flush()
        answers = [server.stdout.readline() for _ in range(2)]
        server.stdin.close()
    assert '"isError":false' in answers[1]
    correlation = event_of_write(launch.data, "goal").correlation
    assert correlation == Correlation(turn_id="t1", task_id=TASK, jsonrpc_request_id=1)
