"""Which way figures go: totals noted now and then, and a rule to compare the last hour with the time before.

The later part is the last hour, or half of what was measured if that is less than two hours; the earlier part is what
lies before it, up to a day. A figure rises or falls when it changes by more than a tenth. A share (of errors, of cache
hits) must change by a hundredth as well, so that one error in a thousand calls is no trend. With less than ten
minutes, or fewer than twenty calls to compare, the trend is unknown.
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
_MEASURED_AT_LEAST = 600.0
_COMPARED_AT_LEAST = 20
_TENTH = 0.1
_HUNDREDTH = 0.01
# Samples come every 30 seconds: six minutes of them are kept, and of those before one for every five minutes of a day.
_FINE, _COARSE, _EVERY = 12, 289, 10


class Totals(Protocol):
    """Counts that only ever rise."""

    def __sub__(self, earlier: Self, /) -> Self: ...


class CallTotals(NamedTuple):
    """A tenant's calls so far. Those that wait on purpose are calls, but are not ``timed``."""

    calls: int = 0
    errors: int = 0
    timed: int = 0
    seconds: float = 0.0
    messages: int = 0
    searches: int = 0

    def __sub__(self, earlier: CallTotals) -> CallTotals:
        return CallTotals(*map(sub, self, earlier))


class CacheTotals(NamedTuple):
    """Lookups in caches so far."""

    lookups: int = 0
    hits: int = 0

    def __sub__(self, earlier: CacheTotals) -> CacheTotals:
        return CacheTotals(*map(sub, self, earlier))


T = TypeVar("T", bound=Totals)


class Sample(NamedTuple, Generic[T]):
    """The totals at one moment, in seconds."""

    at: float
    totals: T


class TrendSpan(NamedTuple, Generic[T]):
    """What happened between two moments."""

    seconds: float
    totals: T


class Series(Generic[T]):
    """A day of samples. As totals only rise, leaving out samples between two others loses nothing."""

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
        """Return what happened in the last ``seconds`` and until the next sample before, or in all there is."""
        return _between(self._at(latest.at - seconds), latest)

    def halves(self, latest: Sample[T]) -> tuple[TrendSpan[T], TrendSpan[T]] | None:
        """Return the earlier and the later part that trends compare; None if they are too short."""
        first = self._at(latest.at - _DAY)
        measured = latest.at - first.at
        if measured < _MEASURED_AT_LEAST:
            return None
        turn = self._at(latest.at - min(_HOUR, measured / 2))
        return _between(first, turn), _between(turn, latest)

    def _at(self, moment: float) -> Sample[T]:
        """Return the last sample up to a moment, or the first there is."""
        return next((sample for sample in self._newest_first() if sample.at <= moment), self._coarse[0])

    def _newest_first(self) -> Iterator[Sample[T]]:
        yield from reversed(self._fine)
        yield from reversed(self._coarse)


def _between(first: Sample[T], last: Sample[T]) -> TrendSpan[T]:
    return TrendSpan(last.at - first.at, last.totals - first.totals)


def response_time_trend(halves: tuple[TrendSpan[CallTotals], TrendSpan[CallTotals]] | None) -> Trend:
    """Compare how long a call took on average."""
    if halves is None or min(span.totals.timed for span in halves) < _COMPARED_AT_LEAST:
        return Trend.UNKNOWN
    return compare(*(span.totals.seconds / span.totals.timed for span in halves))


def throughput_trend(halves: tuple[TrendSpan[CallTotals], TrendSpan[CallTotals]] | None) -> Trend:
    """Compare how many calls there were in the same time."""
    if halves is None or sum(span.totals.calls for span in halves) < _COMPARED_AT_LEAST:
        return Trend.UNKNOWN
    if not all(span.seconds for span in halves):
        return Trend.UNKNOWN
    return compare(*(span.totals.calls / span.seconds for span in halves))


def error_rate_trend(halves: tuple[TrendSpan[CallTotals], TrendSpan[CallTotals]] | None) -> Trend:
    """Compare the share of calls that ended with an error."""
    if halves is None or min(span.totals.calls for span in halves) < _COMPARED_AT_LEAST:
        return Trend.UNKNOWN
    return compare(*(span.totals.errors / span.totals.calls for span in halves), at_least=_HUNDREDTH)


def cache_efficiency_trend(halves: tuple[TrendSpan[CacheTotals], TrendSpan[CacheTotals]] | None) -> Trend:
    """Compare the share of lookups that were hits."""
    if halves is None or min(span.totals.lookups for span in halves) < _COMPARED_AT_LEAST:
        return Trend.UNKNOWN
    return compare(*(span.totals.hits / span.totals.lookups for span in halves), at_least=_HUNDREDTH)


def compare(before: float, lately: float, *, at_least: float = 0.0) -> Trend:
    """Tell which way a figure went."""
    if abs(lately - before) <= max(before * _TENTH, at_least):
        return Trend.STABLE
    return Trend.INCREASING if lately > before else Trend.DECREASING
