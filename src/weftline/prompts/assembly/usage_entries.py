"""Usage entries of a prompt: the call it was assembled for, what the provider reported, and its score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.models.metering.model import NewUsageEntry, UsageKey, UsageSums, nanos

if TYPE_CHECKING:
    from weftline.prompts.assembly.receipts import Receipt, ReportedUsage
    from weftline.prompts.efficiency.model import Efficiency

_MICROS_PER_MILLI = 1_000
_MILLIONTHS = 1_000_000


def call_entry(receipt: Receipt) -> NewUsageEntry:
    """Return the entry of a new prompt, with its expected cost and efficiency."""
    return NewUsageEntry("call", receipt.receipt_id, receipt.created_at, key_of(receipt), _call_sums(receipt))


def report_entries(receipt: Receipt, reported: ReportedUsage) -> tuple[NewUsageEntry, ...]:
    """Return the entries of a report; its model counts from then on, so that the call moves there with its figures."""
    report = NewUsageEntry(
        "report",
        receipt.receipt_id,
        receipt.created_at,
        key_of(receipt, reported.model),
        _reported_sums(receipt, reported),
    )
    if report.key.model == key_of(receipt).model:
        return (report,)
    call = call_entry(receipt)
    away = call._replace(entry="move", sums=call.sums.negated())
    return away, call._replace(entry="move", key=report.key), report


def score_entry(receipt: Receipt, model: str | None, scored: Efficiency) -> NewUsageEntry:
    """Return the entry that replaces the expected efficiency of a call by the one that its answer shows."""
    sums = _score_sums(scored)
    if receipt.estimate is not None:
        sums = sums.plus(_score_sums(receipt.estimate).negated())
    return NewUsageEntry("score", receipt.receipt_id, receipt.created_at, key_of(receipt, model), sums)


def key_of(receipt: Receipt, model: str | None = None) -> UsageKey:
    """Return whose usage a prompt is; ``model`` is the one of the report, if there is one."""
    return UsageKey(
        "assembly", receipt.agent_id, receipt.session_id, receipt.step, model or receipt.model or "", receipt.teams
    )


def _call_sums(receipt: Receipt) -> UsageSums:
    saved, stages = receipt.savings, receipt.timing_ms
    sums = UsageSums(
        calls=1,
        unpriced_calls=int(saved.cost is None),
        total_tokens=receipt.tokens,
        naive_baseline_tokens=saved.naive_baseline_tokens,
        document_tokens=saved.document_tokens,
        engine_assembled_tokens=saved.engine_assembled_tokens,
        cached_tokens=saved.cached_tokens,
        capacity_tokens=receipt.limits.window_tokens,
        cost_nanos=nanos(saved.cost),
        expected_cost_nanos=nanos(saved.cost),
        naive_cost_nanos=nanos(saved.naive_cost),
        gather_micros=_micros(stages.get("gather")),
        retrieve_micros=_micros(stages.get("retrieve")),
        plan_micros=_micros(stages.get("plan")),
        render_micros=_micros(stages.get("render")),
    )
    return sums if receipt.estimate is None else sums.plus(_score_sums(receipt.estimate))


def _reported_sums(receipt: Receipt, reported: ReportedUsage) -> UsageSums:
    """Return the provider's figures, and what they change in those that were expected."""
    expected = receipt.savings.cost
    return UsageSums(
        reported_calls=1,
        unpriced_calls=int(reported.cost is None) - int(expected is None),
        total_tokens=reported.input_tokens + reported.output_tokens - receipt.tokens,
        input_tokens=reported.input_tokens,
        output_tokens=reported.output_tokens,
        cache_read_tokens=reported.cache_read_tokens,
        cache_write_tokens=reported.cache_write_tokens,
        cost_nanos=nanos(reported.cost) - nanos(expected),
        reported_cost_nanos=nanos(reported.cost),
        timed_calls=int(reported.latency_ms is not None),
        provider_micros=_micros(reported.latency_ms),
        graded_calls=int(reported.quality_score is not None),
        quality=round((reported.quality_score or 0) * _MILLIONTHS),
    )


def _score_sums(efficiency: Efficiency) -> UsageSums:
    return UsageSums(
        scored_calls=1,
        estimated_calls=int(efficiency.is_estimate),
        sent_tokens=efficiency.sent_tokens,
        useful_tokens=efficiency.useful_tokens,
        overhead_tokens=efficiency.overhead_tokens,
    )


def _micros(milliseconds: float | None) -> int:
    return round((milliseconds or 0) * _MICROS_PER_MILLI)
