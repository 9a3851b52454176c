"""OpenTelemetry of model calls, by the semantic conventions for generative AI.

Metrics are recorded when an entry is rolled up, in one process each. Both go to the providers that the process has
installed; without one this does nothing.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, trace

from weftline.models.language_models.chat_model import ChatModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from opentelemetry.trace import Span

    from weftline.models.language_models.answer_usage import Usage
    from weftline.models.language_models.catalog import ModelLabel
    from weftline.models.metering import UsageEntry

# Limits of the histograms, as the conventions say.
_TOKEN_LIMITS = [4**power for power in range(14)]
_SECOND_LIMITS = [0.01 * 2**power for power in range(14)]
_tracer = trace.get_tracer("weftline")
_meter = metrics.get_meter("weftline")
_tokens = _meter.create_histogram(
    "gen_ai.client.token.usage",
    unit="{token}",
    description="Tokens of model calls",
    explicit_bucket_boundaries_advisory=_TOKEN_LIMITS,
)
_duration = _meter.create_histogram(
    "gen_ai.client.operation.duration",
    unit="s",
    description="Duration of model calls",
    explicit_bucket_boundaries_advisory=_SECOND_LIMITS,
)
_OPERATION, _CHAT = "gen_ai.operation.name", "chat"
_ERROR = "error.type"
# The conventions have this value for errors without a class: an entry has only their number.
_ANY_ERROR = "_OTHER"
_MICROS = 1_000_000
# Names of the conventions where they differ from those of the catalog.
_PROVIDERS = {"google": "gcp.gen_ai", "mistral": "mistral_ai", "x-ai": "x_ai"}
_USAGE = {
    "gen_ai.usage.input_tokens": "input_tokens",
    "gen_ai.usage.output_tokens": "output_tokens",
    "gen_ai.usage.cache_read.input_tokens": "cache_read_tokens",
    "gen_ai.usage.cache_creation.input_tokens": "cache_write_tokens",
}
# Attributes of spans, by operation, and the figures of the answer that they show.
_REPORT = "context.emit_metrics"
_SPAN_ATTRIBUTES = {
    _REPORT: {
        **_USAGE,
        "weftline.savings_ratio": "savings_ratio",
        "weftline.savings_ratio_with_documents": "savings_ratio_with_documents",
    },
    "context.assemble": {"weftline.prompt.tokens": "tokens", "weftline.prompt.limit": "limit"},
}


def record_usage(entries: Sequence[UsageEntry], label: Callable[[str], ModelLabel]) -> None:
    """Record what providers reported, and the calls that failed; ``label`` names a model as the catalog does."""
    for each in entries:
        sums = each.sums
        attributes = {**_attributes(label(each.key.model)), "weftline.call.kind": each.key.kind}
        if sums.reported_calls > 0:
            _tokens.record(sums.input_tokens, {**attributes, "gen_ai.token.type": "input"})
            _tokens.record(sums.output_tokens, {**attributes, "gen_ai.token.type": "output"})
        if sums.timed_calls > 0:
            failed = {_ERROR: _ANY_ERROR} if sums.failed_calls else {}
            _duration.record(sums.provider_micros / _MICROS, {**attributes, **failed})


def describe_span(operation: str, answer: Any, label: Callable[[str], ModelLabel]) -> None:  # noqa: ANN401 - a response
    """Add the figures of a model call to the current span, and nothing that a caller has written."""
    fields = _SPAN_ATTRIBUTES.get(operation)
    if fields is None or not (span := trace.get_current_span()).is_recording():
        return
    if operation == _REPORT:
        span.set_attributes(_attributes(label(answer.model)))
    span.set_attributes({name: getattr(answer, field) for name, field in fields.items()})


@contextmanager
def chat_span(label: ModelLabel) -> Iterator[Span]:
    """Trace a call of Weftline's own language model."""
    name = f"{_CHAT} {label.model}"
    with _tracer.start_as_current_span(
        name, kind=trace.SpanKind.CLIENT, attributes=_attributes(label), record_exception=False
    ) as span:
        try:
            yield span
        except ChatModelError as error:
            span.set_attribute(_ERROR, error.kind)
            raise


def describe_usage(span: Span, usage: Usage) -> None:
    """Add what the provider reported to the span of a call."""
    span.set_attributes({name: getattr(usage, field) for name, field in _USAGE.items()})


def _attributes(label: ModelLabel) -> dict[str, str]:
    return {
        _OPERATION: _CHAT,
        "gen_ai.provider.name": _PROVIDERS.get(label.provider, label.provider),
        "gen_ai.request.model": label.model,
    }
