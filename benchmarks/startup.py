"""Seconds from starting ``weft serve`` on a fresh folder to its first ready answer, and for ``weft --help``."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.harness import Row, limited
from benchmarks.servers import folder, weft_server

_WEFT = str(Path(sys.executable).with_name("weft"))


def run(*, quick: bool) -> list[Row]:
    times = 1 if quick else 5
    starts, helps = zip(*[(_start(), _help()) for _ in range(times)], strict=True)
    return [
        limited("startup.ready", median(starts), "s", below=2),
        limited("startup.help", median(helps), "s", below=0.5),
    ]


def _start() -> float:
    with folder() as data, weft_server(data, [_WEFT, "serve"]) as served:
        return served.seconds_to_ready


def _help() -> float:
    started = time.monotonic()
    subprocess.run([_WEFT, "--help"], check=True, capture_output=True)
    return time.monotonic() - started
