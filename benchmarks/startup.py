"""Start-up: wall time until ``weftline serve`` is ready, and CPU time of a command, of completion and of an import."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from statistics import median

from benchmarks.harness import Row, limited
from benchmarks.servers import folder, weftline_server

_WEFTLINE = str(Path(sys.executable).with_name("weftline"))
_COMPLETE = {"_WEFTLINE_COMPLETE": "bash_complete", "COMP_WORDS": "weftline board ", "COMP_CWORD": "2"}


def run(*, quick: bool) -> list[Row]:
    times = 1 if quick else 10
    with folder() as data:
        here = {"WEFTLINE_DATA_DIR": str(data)}
        _cpu_seconds([_WEFTLINE, "session", "create", "Start-up"], here)
        return [
            limited("startup.ready", median(_ready() for _ in range(1 if quick else 5)), "s", below=2),
            limited("startup.help_cpu", _lowest(times, [_WEFTLINE, "--help"], {}), "s", below=0.25),
            limited("startup.completion_cpu", _lowest(times, [_WEFTLINE], _COMPLETE), "s", below=0.25),
            limited("startup.session_list_cpu", _lowest(times, [_WEFTLINE, "session", "list"], here), "s", below=0.8),
            *(
                limited(
                    f"startup.{name}_cpu",
                    _lowest(times, [sys.executable, "-c", f"from weftline import {client}"], {}),
                    "s",
                    below=0.3,
                )
                for name, client in (("client", "Client"), ("sync_client", "SyncClient"))
            ),
        ]


def _ready() -> float:
    with folder() as data, weftline_server(data, [_WEFTLINE, "serve"]) as served:
        return served.seconds_to_ready


def _lowest(times: int, command: list[str], environment: dict[str, str]) -> float:
    """Return the lowest of several measurements: other processes only ever add to it."""
    return min(_cpu_seconds(command, environment) for _ in range(times))


def _cpu_seconds(command: list[str], environment: dict[str, str]) -> float:
    """Run a command and return its user and system time, with bytecode cached as in an installation."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | environment
    quiet = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_WRONLY, 0) for descriptor in (1, 2)]
    process = os.posix_spawn(command[0], command, environment, file_actions=quiet)
    _, status, usage = os.wait4(process, 0)
    if status:
        raise RuntimeError(f"{command} ended with {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime
