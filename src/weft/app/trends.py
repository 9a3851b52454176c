"""Trends of metrics: compares the last hour with the time before it, from sampled totals.

The later span is the last hour, or half of the measured time if that is less than two hours; the earlier span is the
rest, up to a day. A metric rises or falls when it changes by more than a tenth. A ratio (error rate, cache hit ratio)
must also change by 0.01, so that one error in a thousand calls is no trend. With less than ten minutes, or fewer than
twenty calls to compare, the trend is unknown.
"""

from __future__ import annotations

from collections import deque
from operator import sub
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from weft.capabilities.metrics.model import Trend

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

_HOUR = 3_600.0
_DAY = 24 * _HOUR
_MIN_SECONDS = 600.0
_MIN_CALLS = 20
_TENTH = 0.1
_HUNDREDTH = 0.01
# Samples are taken every 30 seconds: the last six minutes are kept in full, older ones every five minutes for a day.
_FINE, _COARSE, _EVERY = 12, 289, 10


class Totals(Protocol):
    """Monotonic counters."""

    def __sub__(self, earlier: Self, /) -> Self: ...


class CallTotals(NamedTuple):
    """Call counters of a tenant. Calls that wait for events are not ``timed``."""

    calls: int = 0
    errors: int = 0
    timed: int = 0
    seconds: float = 0.0
    messages: int = 0
    searches: int = 0

    def __sub__(self, earlier: CallTotals) -> CallTotals:
        return CallTotals(*map(sub, self, earlier))


class CacheTotals(NamedTuple):
    """Cache lookup counters."""

    lookups: int = 0
    hits: int = 0

    def __sub__(self, earlier: CacheTotals) -> CacheTotals:
        return CacheTotals(*map(sub, self, earlier))


T = TypeVar("T", bound=Totals)


class Sample(NamedTuple, Generic[T]):
    """Totals at a timestamp in seconds."""

    at: float
    totals: T


class TrendSpan(NamedTuple, Generic[T]):
    """Difference of two samples."""

    seconds: float
    totals: T


class Series(Generic[T]):
    """Samples of one day. Totals are monotonic, so thinning out older samples loses nothing."""

    def __init__(self, first: Sample[T]) -> None:
        self._fine: deque[Sample[T]] = deque([first], maxlen=_FINE)
        self._coarse: deque[Sample[T]] = deque([first], maxlen=_COARSE)
        self._added = 0

    def add(self, sample: Sample[T]) -> None:
        self._fine.append(sample)
        self._added += 1
        if self._added % _EVERY == 0:
            self._coarse.append(sample)

    def since(self, seconds: float, latest: Sample[T]) -> TrendSpan[T]:
        """Return the span of the last ``seconds``, extended to the sample before, or of all samples."""
        return _between(self._at(latest.at - seconds), latest)

    def halves(self, latest: Sample[T]) -> tuple[TrendSpan[T], TrendSpan[T]] | None:
        """Return the earlier and the later span to compare; None if they are too short."""
        first = self._at(latest.at - _DAY)
        measured = latest.at - first.at
        if measured < _MIN_SECONDS:
            return None
        turn = self._at(latest.at - min(_HOUR, measured / 2))
        return _between(first, turn), _between(turn, latest)

    def _at(self, timestamp: float) -> Sample[T]:
        """Return the last sample up to a timestamp, or the first one."""
        return next((sample for sample in self._newest_first() if sample.at <= timestamp), self._coarse[0])

    def _newest_first(self) -> Iterator[Sample[T]]:
        yield from reversed(self._fine)
        yield from reversed(self._coarse)


def _between(first: Sample[T], last: Sample[T]) -> TrendSpan[T]:
    return TrendSpan(last.at - first.at, last.totals - first.totals)


def response_time_trend(halves: tuple[TrendSpan[CallTotals], TrendSpan[CallTotals]] | None) -> Trend:
    """Compare the mean response time."""
    if halves is None or min(span.totals.timed for span in halves) < _MIN_CALLS:
        return Trend.UNKNOWN
    return compare(*(span.totals.seconds / span.totals.timed for span in halves))


def throughput_trend(halves: tuple[TrendSpan[CallTotals], TrendSpan[CallTotals]] | None) -> Trend:
    """Compare calls per second."""
    if halves is None or sum(span.totals.calls for span in halves) < _MIN_CALLS:
        return Trend.UNKNOWN
    if not all(span.seconds for span in halves):
        return Trend.UNKNOWN
    return compare(*(span.totals.calls / span.seconds for span in halves))


def error_rate_trend(halves: tuple[TrendSpan[CallTotals], TrendSpan[CallTotals]] | None) -> Trend:
    """Compare the error rate."""
    if halves is None or min(span.totals.calls for span in halves) < _MIN_CALLS:
        return Trend.UNKNOWN
    return compare(*(span.totals.errors / span.totals.calls for span in halves), at_least=_HUNDREDTH)


def cache_efficiency_trend(halves: tuple[TrendSpan[CacheTotals], TrendSpan[CacheTotals]] | None) -> Trend:
    """Compare the cache hit ratio."""
    if halves is None or min(span.totals.lookups for span in halves) < _MIN_CALLS:
        return Trend.UNKNOWN
    return compare(*(span.totals.hits / span.totals.lookups for span in halves), at_least=_HUNDREDTH)


def compare(before: float, later: float, *, at_least: float = 0.0) -> Trend:
    """Classify the change of a metric."""
    if abs(later - before) <= max(before * _TENTH, at_least):
        return Trend.STABLE
    return Trend.INCREASING if later > before else Trend.DECREASING
