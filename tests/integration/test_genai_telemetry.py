"""OpenTelemetry of model calls: the names, attributes and figures of the semantic conventions for generative AI."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from support import forked_python

if TYPE_CHECKING:
    from pathlib import Path

# Providers can be installed only once in a process.
_PROGRAM = """
import asyncio, contextlib, json, sys
from opentelemetry import metrics, trace
from weftline import Weftline
from weftline.app.call_meter import MeteredChatModel
from weftline.app.call_meter import CallPrices
from weftline.models.language_models.chat_model import ChatAnswer, ChatCaller, ChatModelError, ChatRequest
from weftline.models.language_models.catalog import load_catalog
from weftline.models.language_models.answer_usage import Usage
from weftline.jobs.figures import ROLL_UP
from weftline.kernel.clock import SystemClock

spans, recorded, instruments = [], [], {}

class Span(trace.NonRecordingSpan):
    def __init__(self, name, kind, attributes):
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self.seen = {"name": name, "kind": kind.name, "attributes": dict(attributes or {})}
        spans.append(self.seen)
    def is_recording(self):
        return True
    def set_attribute(self, key, value):
        self.seen["attributes"][key] = value
    def set_attributes(self, attributes):
        self.seen["attributes"].update(attributes)

class Tracer(trace.NoOpTracer):
    @contextlib.contextmanager
    def start_as_current_span(self, name, context=None, kind=trace.SpanKind.INTERNAL, attributes=None, **kwargs):
        span = Span(name, kind, attributes)
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            yield span

class TracerProvider(trace.NoOpTracerProvider):
    def get_tracer(self, *args, **kwargs):
        return Tracer()

class Histogram(metrics.NoOpHistogram):
    def record(self, amount, attributes=None, context=None):
        recorded.append([self.named, amount, dict(attributes)])

class Meter(metrics.NoOpMeter):
    def create_histogram(self, name, unit="", description="", *, explicit_bucket_boundaries_advisory=None):
        instruments[name] = [unit, explicit_bucket_boundaries_advisory]
        made = Histogram(name, unit=unit, description=description)
        made.named = name
        return made

class MeterProvider(metrics.NoOpMeterProvider):
    def get_meter(self, name, *args, **kwargs):
        return Meter(name)

class Model:
    name = "gpt-5-mini"
    async def complete(self, request):
        if not request.messages:
            raise ChatModelError("secret of a prompt", kind="timeout")
        return ChatAnswer("Done.", "stop", Usage(input_tokens=40, output_tokens=4, cache_read_tokens=30))
    async def close(self):
        pass

class NoPrices:
    async def load(self):
        pass
    def rates(self, info, at, input_tokens=0):
        return None

async def main():
    async with Weftline.open(sys.argv[1]) as weftline:
        await weftline.session.create("an incident", session_id="s")
        for model in ("claude-sonnet-4-5", "secret-of-a-caller"):
            prompt = await weftline.context.assemble("s", "What is the secret task?", model=model)
            usage = {"input_tokens": 900, "output_tokens": 50, "cache_read_input_tokens": 100,
                     "cache_creation_input_tokens": 20}
            await weftline.context.emit_metrics("s", prompt.receipt_id, usage, latency_ms=1500)
        catalog = load_catalog()
        prices = CallPrices(catalog, NoPrices())
        chat = MeteredChatModel(Model(), weftline.app.call_meter, prices, catalog, SystemClock())
        request = ChatRequest("sys", ("a message",), 10, ChatCaller(sys.argv[2], "agent", "s"))
        await chat.complete(request)
        with contextlib.suppress(ChatModelError):
            await chat.complete(request._replace(messages=()))
        await weftline.app.scheduler.drain(ROLL_UP)
    print(json.dumps({"spans": spans, "recorded": recorded, "instruments": instruments}))

trace.set_tracer_provider(TracerProvider())
metrics.set_meter_provider(MeterProvider())
asyncio.run(main())
"""
_LABELS = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "anthropic",
    "gen_ai.request.model": "claude-sonnet-4*",
}
_OTHER = {**_LABELS, "gen_ai.provider.name": "unknown", "gen_ai.request.model": "other"}
_OWN = {**_LABELS, "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5-*"}


@pytest.fixture(scope="module")
def telemetry(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("telemetry")
    completed = subprocess.run(
        [forked_python.python(), "-c", _PROGRAM, str(folder), "default"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


@pytest.mark.req("CE-M")
def test_metrics_have_the_names_units_and_limits_of_the_conventions(telemetry: Any) -> None:
    assert telemetry["instruments"] == {
        "gen_ai.client.token.usage": [
            "{token}",
            [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864],
        ],
        "gen_ai.client.operation.duration": [
            "s",
            [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92],
        ],
    }


@pytest.mark.req("CE-M")
def test_reported_tokens_and_durations_are_recorded_once_with_the_required_attributes(telemetry: Any) -> None:
    own = {**_OWN, "weftline.call.kind": "compaction"}
    expected = []
    for labels in (_LABELS, _OTHER):
        attributes = {**labels, "weftline.call.kind": "assembly"}
        expected += [
            ["gen_ai.client.token.usage", 1_020, {**attributes, "gen_ai.token.type": "input"}],
            ["gen_ai.client.token.usage", 50, {**attributes, "gen_ai.token.type": "output"}],
            ["gen_ai.client.operation.duration", 1.5, attributes],
        ]
    expected += [
        ["gen_ai.client.token.usage", 40, {**own, "gen_ai.token.type": "input"}],
        ["gen_ai.client.token.usage", 4, {**own, "gen_ai.token.type": "output"}],
    ]
    found = telemetry["recorded"]
    timed = [each for each in found if each[0].endswith("duration") and each[2]["weftline.call.kind"] == "compaction"]
    assert [each for each in found if each not in timed] == expected
    assert [attributes for _, _, attributes in timed] == [own, {**own, "error.type": "_OTHER"}]


@pytest.mark.req("CE-M")
def test_spans_show_usage_and_nothing_that_a_caller_wrote(telemetry: Any) -> None:
    by_name: dict[str, list[Any]] = {}
    for span in telemetry["spans"]:
        by_name.setdefault(span["name"], []).append(span)
    figures = {
        "gen_ai.usage.input_tokens": 1_020,
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.cache_read.input_tokens": 100,
        "gen_ai.usage.cache_creation.input_tokens": 20,
    }
    first, other = (span["attributes"] for span in by_name["context.emit_metrics"])
    assert {**_LABELS, **figures}.items() <= first.items()
    assert {**_OTHER, **figures}.items() <= other.items()
    # No model is called while a prompt is assembled.
    assert not any(name.startswith("gen_ai.") for span in by_name["context.assemble"] for name in span["attributes"])
    answered, failed = by_name["chat gpt-5-*"]
    assert answered["kind"] == failed["kind"] == "CLIENT"
    assert {**_OWN, "gen_ai.usage.input_tokens": 40}.items() <= answered["attributes"].items()
    assert failed["attributes"]["error.type"] == "timeout"
    assert "secret" not in json.dumps([telemetry["spans"], telemetry["recorded"]])
