"""Rows of usage reports, made from sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.kernel.operation import Response
from weftline.models.metering.model import dollars

if TYPE_CHECKING:
    from weftline.models.metering.model import UsageSums

_MICROS_PER_MILLI = 1_000
_MILLIONTHS = 1_000_000
_DIGITS = 4
_MILLI_DIGITS = 3


class UsageFigures(Response, kw_only=True, omit_defaults=False):
    """What calls cost and how well their prompts were used. Money is in US dollars, null if no call has a price.

    ``total_tokens`` and ``cost`` are those that the provider reported, and the expected ones of the prompt for calls
    without a report; ``unpriced_calls`` are of models without a price. Durations are means in milliseconds.
    ``efficiency`` is useful over sent tokens, layers counted apart, of ``scored_calls``; ``estimated_calls`` had no
    answer to compare with. ``window_fill``: part of their windows that prompts took. ``naive_baseline_tokens``,
    ``naive_cost`` and ``savings_ratio`` compare with the conversations alone, negative if prompts were larger;
    ``document_tokens`` are those of the whole documents with evidence in a prompt. ``net_savings`` is ``naive_cost``
    less ``expected_cost``: negative where Weftline, with its own calls of models, made them dearer. For calls through
    the model proxy, the conversation alone is what their clients sent.
    """

    calls: int
    reported_calls: int
    failed_calls: int
    unpriced_calls: int
    total_tokens: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    naive_baseline_tokens: int
    document_tokens: int
    engine_assembled_tokens: int
    cached_tokens: int
    savings_ratio: float
    savings_ratio_with_documents: float
    cost: float | None
    expected_cost: float | None
    naive_cost: float | None
    reported_cost: float | None
    net_savings: float | None
    gather_ms: float
    retrieve_ms: float
    plan_ms: float
    render_ms: float
    provider_ms: float | None
    quality_score: float | None
    scored_calls: int
    estimated_calls: int
    sent_tokens: int
    useful_tokens: int
    overhead_tokens: int
    efficiency: float | None
    window_fill: float | None


# Figures that are sums as they are.
_SUMS = (
    "calls",
    "reported_calls",
    "failed_calls",
    "unpriced_calls",
    "total_tokens",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "naive_baseline_tokens",
    "document_tokens",
    "engine_assembled_tokens",
    "cached_tokens",
    "savings_ratio",
    "savings_ratio_with_documents",
    "scored_calls",
    "estimated_calls",
    "sent_tokens",
    "useful_tokens",
    "overhead_tokens",
    "efficiency",
)


def figures(sums: UsageSums) -> dict[str, int | float | None]:
    """Return the fields of ``UsageFigures``."""
    calls, priced = sums.calls, sums.calls > sums.unpriced_calls
    return {
        **{name: getattr(sums, name) for name in _SUMS},
        "cost": dollars(sums.cost_nanos) if priced else None,
        "expected_cost": dollars(sums.expected_cost_nanos) if priced else None,
        "naive_cost": dollars(sums.naive_cost_nanos) if priced else None,
        "net_savings": dollars(sums.naive_cost_nanos - sums.expected_cost_nanos) if priced else None,
        "reported_cost": dollars(sums.reported_cost_nanos) if priced and sums.reported_calls else None,
        "gather_ms": _mean_ms(sums.gather_micros, calls) or 0.0,
        "retrieve_ms": _mean_ms(sums.retrieve_micros, calls) or 0.0,
        "plan_ms": _mean_ms(sums.plan_micros, calls) or 0.0,
        "render_ms": _mean_ms(sums.render_micros, calls) or 0.0,
        "provider_ms": _mean_ms(sums.provider_micros, sums.timed_calls),
        "quality_score": round(sums.quality / sums.graded_calls / _MILLIONTHS, _DIGITS) if sums.graded_calls else None,
        "window_fill": (
            round(sums.engine_assembled_tokens / sums.capacity_tokens, _DIGITS) if sums.capacity_tokens else None
        ),
    }


def _mean_ms(micros: int, times: int) -> float | None:
    return round(micros / times / _MICROS_PER_MILLI, _MILLI_DIGITS) if times else None
