"""A demo that goes on serving what it has played."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from support import forked_python

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


@contextmanager
def staying_demo(folder: Path, *options: str, **environment: str) -> Iterator[list[str]]:
    """Run the demo with ``--stay`` in a folder; yield its output while it serves."""
    process = subprocess.Popen(
        [forked_python.python(), "-m", "weftline", "demo", "--stay", "--port", free_port(), *options],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        output: list[str] = []
        while not output or "Ctrl-C" not in output[-1]:
            output.append(next(process.stdout))
        yield output
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        process.stdout.close()


def listed_keys(output: Sequence[str]) -> list[str]:
    """Run the command that lists the board, as in another terminal: any folder, and none of this process's settings."""
    (command,) = [line for line in output if " board list-keys " in line]
    listed = subprocess.run(
        [*shlex.split(command), "--json"],
        cwd="/",
        env={name: value for name, value in os.environ.items() if not name.startswith("WEFTLINE_")},
        check=True,
        capture_output=True,
        text=True,
    )
    return [key["key"] for key in json.loads(listed.stdout)["keys"]]
