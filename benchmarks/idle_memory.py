"""Memory of an idle server."""

from __future__ import annotations

import time

from benchmarks.harness import Row, cpu_seconds, limited, resident_bytes
from benchmarks.servers import folder, weftline_server

_IDLE_SECONDS = 3


def run(*, quick: bool) -> list[Row]:
    seconds = 1 if quick else _IDLE_SECONDS
    with folder() as data, weftline_server(data) as served:
        before = cpu_seconds(served.pid)
        time.sleep(seconds)
        used = cpu_seconds(served.pid) - before
        return [
            limited("idle_memory", resident_bytes(served.pid) / 1_000_000, "MB", below=120),
            Row("idle_memory.cpu", round(used / seconds * 100, 2), "% of a core"),
        ]
