"""OpenTelemetry: each call is a span named after its operation, once somebody installs a tracer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import asyncio, contextlib, sys
from opentelemetry import trace
from weft import Weft

spans = []

class Tracer(trace.NoOpTracer):
    @contextlib.contextmanager
    def start_as_current_span(self, name, *args, **kwargs):
        spans.append(name)
        yield trace.INVALID_SPAN

class Provider(trace.NoOpTracerProvider):
    def get_tracer(self, *args, **kwargs):
        return Tracer()

async def main():
    async with Weft.open(sys.argv[1]) as weft:
        await weft.session.create("before anyone traces", session_id="s")
        trace.set_tracer_provider(Provider())
        await weft.board.write("s", "goal", "a value that no span may carry")
        await weft.board.read("s", "goal")
    print(*spans)

asyncio.run(main())
"""


def test_each_call_is_a_span_named_after_its_operation(tmp_path: Path) -> None:
    # In a process of its own: a tracer provider can be installed only once.
    told = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)], check=True, capture_output=True, text=True, timeout=60
    )
    assert told.stdout.split() == ["board.write", "board.read"]
