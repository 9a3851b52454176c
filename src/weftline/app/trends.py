"""Rates and trends of metrics.

A trend compares the last hour, or half of the measured time if that is less than two hours, with the time before it,
up to a day. A metric rises or falls when it changes by more than a tenth. A ratio (error rate, cache hit ratio) must
also change by 0.01, so that one error in a thousand calls is no trend. With less than ten minutes, or fewer than twenty
calls to compare, the trend is unknown.
"""

from __future__ import annotations

from collections import deque
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from weftline.insight.metrics.history import BUCKET_SECONDS, MetricTotals
from weftline.insight.metrics.model import Trend

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.insight.metrics.history import MetricBucket

_HOUR = 3_600.0
_MIN_SECONDS = 600.0
_MIN_CALLS = 20
_TENTH = 0.1
_HUNDREDTH = 0.01
# Samples are taken every 30 seconds: six minutes are kept, for rates.
_SAMPLES = 12


class Sample(NamedTuple):
    """Totals at a timestamp in seconds."""

    at: float
    totals: MetricTotals


class TrendSpan(NamedTuple):
    """What was counted in a time."""

    seconds: float
    totals: MetricTotals


Halves = tuple[TrendSpan, TrendSpan]


class Series:
    """The latest samples."""

    def __init__(self, first: Sample) -> None:
        self._samples: deque[Sample] = deque([first], maxlen=_SAMPLES)

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    def since(self, seconds: float, latest: Sample) -> TrendSpan:
        """Return the span of the last ``seconds``, extended to the sample before, or of all samples."""
        begin = latest.at - seconds
        first = next((sample for sample in reversed(self._samples) if sample.at <= begin), self._samples[0])
        return TrendSpan(latest.at - first.at, latest.totals.minus(first.totals))


def halves(buckets: Sequence[MetricBucket], now: float) -> Halves | None:
    """Return the earlier and the later span to compare; None if they are too short."""
    if not buckets or now - buckets[0].first_at < _MIN_SECONDS:
        return None
    first = buckets[0].first_at
    turn = round((now - min(_HOUR, (now - first) / 2)) / BUCKET_SECONDS) * BUCKET_SECONDS
    return (
        TrendSpan(turn - first, _sum(bucket for bucket in buckets if bucket.start < turn)),
        TrendSpan(now - turn, _sum(bucket for bucket in buckets if bucket.start >= turn)),
    )


def _sum(buckets: Iterable[MetricBucket]) -> MetricTotals:
    return reduce(MetricTotals.plus, (bucket.totals for bucket in buckets), MetricTotals())


def response_time_trend(spans: Halves | None) -> Trend:
    """Compare the mean response time."""
    if spans is None or min(span.totals.timed for span in spans) < _MIN_CALLS:
        return Trend.UNKNOWN
    return compare(*(span.totals.seconds / span.totals.timed for span in spans))


def throughput_trend(spans: Halves | None) -> Trend:
    """Compare calls per second."""
    if spans is None or sum(span.totals.calls for span in spans) < _MIN_CALLS:
        return Trend.UNKNOWN
    return compare(*(span.totals.calls / span.seconds for span in spans))


def error_rate_trend(spans: Halves | None) -> Trend:
    """Compare the error rate."""
    if spans is None or min(span.totals.calls for span in spans) < _MIN_CALLS:
        return Trend.UNKNOWN
    return compare(*(span.totals.errors / span.totals.calls for span in spans), at_least=_HUNDREDTH)


def cache_efficiency_trend(spans: Halves | None) -> Trend:
    """Compare the cache hit ratio."""
    if spans is None or min(span.totals.lookups for span in spans) < _MIN_CALLS:
        return Trend.UNKNOWN
    return compare(*(span.totals.hits / span.totals.lookups for span in spans), at_least=_HUNDREDTH)


def compare(before: float, later: float, *, at_least: float = 0.0) -> Trend:
    """Classify the change of a metric."""
    if abs(later - before) <= max(before * _TENTH, at_least):
        return Trend.STABLE
    return Trend.INCREASING if later > before else Trend.DECREASING
