"""OpenTelemetry: each call is a span named after its operation, if a tracer is installed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from support import forked_python
from support.correlation import BAGGAGE, SPAN, TRACE

_PROGRAM = """
import asyncio, contextlib, sys
from opentelemetry import trace
from weftline import Weftline

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
    async with Weftline.open(sys.argv[1]) as weftline:
        await weftline.session.create("before anyone traces", session_id="s")
        trace.set_tracer_provider(Provider())
        await weftline.board.write("s", "goal", "a value that no span may carry")
        await weftline.board.read("s", "goal")
    print(*spans)

asyncio.run(main())
"""


def test_each_call_is_a_span_named_after_its_operation(tmp_path: Path) -> None:
    # In a separate process: a tracer provider can be installed only once.
    completed = subprocess.run(
        [forked_python.python(), "-c", _PROGRAM, str(tmp_path)], check=True, capture_output=True, text=True, timeout=180
    )
    assert completed.stdout.split() == ["board.write", "board.read"]


_TRACED = """
import asyncio, contextlib, json, sys
import httpx2
from opentelemetry import trace
from weftline import Weftline
from weftline.transports.http.application import HttpApplication

TRACE, SPAN, BAGGAGE = sys.argv[2:]
spans = []

class Tracer(trace.NoOpTracer):
    @contextlib.contextmanager
    def start_as_current_span(self, name, context=None, **kwargs):
        parent = trace.get_current_span(context).get_span_context()
        flags = int(parent.trace_flags), parent.is_remote
        spans.append([name, f"{parent.trace_id:032x}", f"{parent.span_id:016x}", *flags])
        yield trace.INVALID_SPAN

class Provider(trace.NoOpTracerProvider):
    def get_tracer(self, *args, **kwargs):
        return Tracer()

async def main():
    trace.set_tracer_provider(Provider())
    async with Weftline.open(sys.argv[1]) as weftline:
        key = (await weftline.agent.create("planner")).api_key
        spans.clear()
        transport = httpx2.ASGITransport(HttpApplication(weftline.app).asgi)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            http.headers["authorization"] = f"Bearer {key}"
            for headers in (
                {"traceparent": f"00-{TRACE}-{SPAN}-01", "baggage": BAGGAGE},
                {"traceparent": f"00-{TRACE}-{SPAN}-00"},
                {"traceparent": "garbage"},
                {"baggage": BAGGAGE},
            ):
                answer = await http.get("/v1/sessions", headers=headers)
                assert answer.status_code == 200, answer.text
        own = trace.SpanContext(int(TRACE, 16), 7, is_remote=False, trace_flags=trace.TraceFlags(1))
        with trace.use_span(trace.NonRecordingSpan(own)):
            await weftline.session.list()
            await weftline.with_correlation(traceparent=f"00-{TRACE[::-1]}-{SPAN}-01").session.list()
    print(json.dumps(spans))

asyncio.run(main())
"""


@pytest.mark.req("AC-12")
def test_a_span_continues_the_trace_of_its_call(tmp_path: Path) -> None:
    completed = subprocess.run(
        [forked_python.python(), "-c", _TRACED, str(tmp_path), TRACE, SPAN, BAGGAGE],
        check=True,
        capture_output=True,
        text=True,
        timeout=180,
    )
    nobody = ["0" * 32, "0" * 16, 0, False]
    assert json.loads(completed.stdout) == [
        ["session.list", TRACE, SPAN, 1, True],
        ["session.list", TRACE, SPAN, 0, True],
        ["session.list", *nobody],
        ["session.list", *nobody],
        ["session.list", TRACE, f"{7:016x}", 1, False],
        ["session.list", TRACE[::-1], SPAN, 1, True],
    ]
