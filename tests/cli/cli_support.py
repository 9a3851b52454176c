"""Runs ``weftline`` commands on a data folder, in this process or as a subprocess."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from click.testing import CliRunner, Result

from support import forked_python
from weftline.transports.cli.main import weftline

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class CommandLine:
    """Runs ``weftline`` commands on one data folder."""

    data: Path
    env: dict[str, str] = field(default_factory=dict)

    def run(self, *args: str, code: int = 0, stdin: str | bytes = "") -> Result:
        """Run a command in this process and expect it to end with ``code``."""
        result = CliRunner().invoke(weftline, args, input=stdin, env={"WEFTLINE_DATA_DIR": str(self.data), **self.env})
        assert result.exit_code == code, f"{result.exit_code}: {result.output}\n{result.exception!r}"
        return result

    def json(self, *args: str, code: int = 0, stdin: str | bytes = "") -> Any:
        return msgspec.json.decode(self.run(*args, "--json", code=code, stdin=stdin).stdout)

    def process(self, *args: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a subprocess."""
        command = [forked_python.python(), "-m", "weftline", *args]
        environment = {**clean_environment(), "WEFTLINE_DATA_DIR": str(self.data), **self.env, **env}
        return subprocess.run(
            command, input=stdin, env=environment, capture_output=True, text=True, timeout=180, check=False
        )


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("WEFTLINE_", "NO_COLOR"))}
