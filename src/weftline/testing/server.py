"""A real Weftline server in a subprocess, for tests."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

if TYPE_CHECKING:
    from collections.abc import Iterator

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.05
_KEY = re.compile(r"^  (weftline\.\S+)$", re.MULTILINE)
_PROGRAM = """
import sys
from importlib import import_module
from pathlib import Path
from weftline.settings import Settings
from weftline.transports.server import serve
profile = None
for path in map(Path, sys.argv[1:]):
    sys.path.insert(0, str(path.parent))
    profile = import_module(path.stem).install
serve(Settings.from_environment(), profile=profile)
"""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A running server at ``url``; its standard error is in ``log``."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    @property
    def mcp_url(self) -> str:
        return f"{self.url}/mcp"

    @property
    def admin_key(self) -> str:
        """Return the admin key that a new server printed."""
        shown = _KEY.search(self.logged())
        assert shown is not None, "only the first server on a database shows the admin's key"  # noqa: S101
        return shown[1]

    def logged(self) -> str:
        return self.log.read_text()

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_STOP_SECONDS)


@contextmanager
def server_process(
    data: Path, *, profile: Path | None = None, python: str = sys.executable, **settings: str
) -> Iterator[ServerProcess]:
    """Run a server on a data folder; further keyword arguments are settings.

    ``profile`` is a Python file with a function ``install`` that changes the MCP server.
    """
    port = _free_port()
    log = data / f"server-{port}.log"
    # Settings in the environment of the tests must not reach the server.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFTLINE_")}
    environment |= {"WEFTLINE_DATA_DIR": str(data), "WEFTLINE_PORT": str(port)}
    environment |= {f"WEFTLINE_{name.upper()}": value for name, value in settings.items()}
    command = [python, "-c", _PROGRAM, *([] if profile is None else [str(profile)])]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, env=environment, stdout=errors, stderr=errors)  # noqa: S603 - our own
    server = ServerProcess(process, f"http://127.0.0.1:{port}", log)
    try:
        _wait_until_ready(server)
        yield server
    finally:
        process.kill()
        process.wait()


def _wait_until_ready(server: ServerProcess) -> None:
    deadline = time.monotonic() + _START_SECONDS
    with httpx2.Client(base_url=server.url) as http:
        while server.process.poll() is None and time.monotonic() < deadline:
            try:
                if http.get("/ready").is_success:
                    return
            except httpx2.TransportError:
                time.sleep(_POLL_SECONDS)
    raise RuntimeError(f"the server did not start:\n{server.logged()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
