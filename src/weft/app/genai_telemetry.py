"""OpenTelemetry of model calls, by the semantic conventions for generative AI.

Metrics are recorded when an entry is rolled up, in one process each. Both go to the providers that the process has
installed; without one this does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.capabilities.metering.model import UsageEntry

_meter = metrics.get_meter("weft")
_tokens = _meter.create_histogram("gen_ai.client.token.usage", unit="{token}", description="Tokens of model calls")
_duration = _meter.create_histogram("gen_ai.client.operation.duration", unit="s", description="Duration of model calls")
_OPERATION, _CHAT = "gen_ai.operation.name", "chat"
_MICROS = 1_000_000
# Attributes of spans, by operation, and the figures of the answer that they show.
_SPAN_ATTRIBUTES = {
    "context.emit_metrics": {
        "gen_ai.usage.input_tokens": "input_tokens",
        "gen_ai.usage.output_tokens": "output_tokens",
        "gen_ai.usage.cache_read.input_tokens": "cache_read_tokens",
        "gen_ai.usage.cache_creation.input_tokens": "cache_write_tokens",
        "weft.savings_ratio": "savings_ratio",
    },
    "context.assemble": {"weft.prompt.tokens": "tokens", "weft.prompt.limit": "limit"},
}


def record_usage(entries: Sequence[UsageEntry], label: Callable[[str], str]) -> None:
    """Record what providers reported; ``label`` returns the name of a model as the catalog has it."""
    for each in entries:
        sums = each.sums
        if sums.reported_calls <= 0:
            continue
        attributes = {
            _OPERATION: _CHAT,
            "gen_ai.request.model": label(each.key.model),
            "weft.call.kind": each.key.kind,
        }
        _tokens.record(sums.input_tokens, {**attributes, "gen_ai.token.type": "input"})
        _tokens.record(sums.output_tokens, {**attributes, "gen_ai.token.type": "output"})
        if sums.timed_calls:
            _duration.record(sums.provider_micros / _MICROS, attributes)


def describe_span(operation: str, answer: Any) -> None:  # noqa: ANN401 - the response of an operation
    """Add the figures of a model call to the current span, and nothing that a caller has written."""
    fields = _SPAN_ATTRIBUTES.get(operation)
    if fields is None or not (span := trace.get_current_span()).is_recording():
        return
    span.set_attribute(_OPERATION, _CHAT)
    span.set_attributes({name: getattr(answer, field) for name, field in fields.items()})
