"""The demo: a real server process, three MCP clients, the whole interaction cycle."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest


def _free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def _weft(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "weft", *arguments], check=True, capture_output=True, text=True, timeout=60
    ).stdout


@pytest.mark.req("SC-21")
def test_the_whole_cycle_is_played_by_agents_with_identities_of_their_own() -> None:
    told = _weft("demo", "--port", _free_port())

    assert "findings_summary     1        24      subagent:analysis" in told
    assert "deliverables_status  1        12      subagent:remediation" in told
    assert "decisions_made       1        18      orchestrator" in told
    assert "open_questions has changed" in told
    assert "gone; it was at version 1" in told
    assert "PERMISSION_DENIED" in told


@pytest.mark.req("SC-21")
def test_staying_keeps_serving_the_session_that_was_played(tmp_path: Path) -> None:
    staying = subprocess.Popen(
        [sys.executable, "-m", "weft", "demo", "--stay", "--port", _free_port(), "--data", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert staying.stdout is not None
    try:
        for line in staying.stdout:
            if "Ctrl-C" in line:
                break
        (session,) = json.loads(_weft("--data", str(tmp_path / "data"), "session", "list", "--json"))["sessions"]
        board = json.loads(
            _weft("--data", str(tmp_path / "data"), "board", "list-keys", "--session", session["id"], "--json")
        )
        assert "decisions_made" in [key["key"] for key in board["keys"]]
    finally:
        staying.send_signal(signal.SIGTERM)
        assert staying.wait(timeout=30) == 0
        staying.stdout.close()
