"""The demo: a real server process, three MCP clients, the whole interaction cycle."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import forked_python
from weft.demo.narration import _short
from weft.demo.run import _database_option
from weft.settings import Settings


def _free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def _weft(*arguments: str) -> str:
    return subprocess.run(
        [forked_python.python(), "-m", "weft", *arguments], check=True, capture_output=True, text=True, timeout=60
    ).stdout


@contextmanager
def _staying(folder: Path, *options: str, **environment: str) -> Iterator[list[str]]:
    """Play the demo in a folder, and yield what it said while it keeps serving."""
    staying = subprocess.Popen(
        [forked_python.python(), "-m", "weft", "demo", "--stay", "--port", _free_port(), *options],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert staying.stdout is not None
    try:
        told: list[str] = []
        while not told or "Ctrl-C" not in told[-1]:
            told.append(next(staying.stdout))
        yield told
    finally:
        staying.send_signal(signal.SIGTERM)
        assert staying.wait(timeout=30) == 0
        staying.stdout.close()


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
@pytest.mark.parametrize(
    ("options", "environment"),
    [(("--data-dir", "kept"), {}), ((), {"WEFT_DATABASE_URL": "kept.db", "WEFT_DATA_DIR": "unused"})],
    ids=["a data folder", "a database"],
)
def test_staying_keeps_serving_the_session_that_was_played(
    options: tuple[str, ...], environment: dict[str, str], tmp_path: Path
) -> None:
    with _staying(tmp_path, *options, **environment) as told:
        (look,) = [line for line in told if " board list-keys " in line]
        # As one would type it: in another terminal, in any folder, without this one's settings.
        elsewhere = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        seen = subprocess.run(
            [*shlex.split(look), "--json"], cwd="/", env=elsewhere, check=True, capture_output=True, text=True
        )
    assert "decisions_made" in [key["key"] for key in json.loads(seen.stdout)["keys"]]
    assert not (tmp_path / "unused").exists()


def test_passwords_are_not_printed() -> None:
    settings = Settings(database_url="postgresql://weft:secret@db.internal/weft")
    assert _database_option(settings) == '--database-url "${WEFT_DATABASE_URL:?}"'


@pytest.mark.parametrize("command", [["demo", "--stay"], ["serve"]], ids=" ".join)
def test_a_port_that_is_taken_is_noticed_before_anything_is_made(command: list[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        refused = subprocess.run(
            [forked_python.python(), "-m", "weft", *command, "--port", port, "--data-dir", str(tmp_path / "data")],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert refused.returncode == 4
    assert refused.stdout == ""
    assert f"CANNOT_LISTEN: Weft cannot listen on 127.0.0.1:{port}" in refused.stderr
    assert "Choose another port with --port or WEFT_PORT." in refused.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("short", '"short"'),
        ("It's here", '"It\'s here"'),
        ("word " * 30, '"' + "word " * 10 + 'word…"'),
        (["scope", "goal"], '["scope", "goal"]'),
        (3, "3"),
    ],
)
def test_arguments_are_quoted_alike_however_long(value: object, shown: str) -> None:
    assert _short(value) == shown
