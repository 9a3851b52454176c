"""Metric history: totals of intervals of five minutes, over all processes, and their hourly form for admins."""

from __future__ import annotations

from datetime import UTC, datetime
from operator import add, sub
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from weftline.kernel.operation import Response

if TYPE_CHECKING:
    from collections.abc import Iterable

BUCKET_SECONDS = 300
RETENTION_HOURS = 24
_HOUR = 3_600


class MetricTotals(NamedTuple):
    """Monotonic counters: of a tenant's calls, and of the caches and transactions of a process.

    Calls that wait for events are not ``timed``. ``queries`` are transactions.
    """

    calls: int = 0
    errors: int = 0
    timed: int = 0
    seconds: float = 0.0
    messages: int = 0
    searches: int = 0
    lookups: int = 0
    hits: int = 0
    queries: int = 0
    query_seconds: float = 0.0

    def plus(self, other: MetricTotals) -> MetricTotals:
        return MetricTotals(*map(add, self, other))

    def minus(self, earlier: MetricTotals) -> MetricTotals:
        return MetricTotals(*map(sub, self, earlier))


class MetricBucket(NamedTuple):
    """Totals of the interval that begins at ``start``, counted from ``first_at``; both in seconds since 1970."""

    start: int
    first_at: int
    totals: MetricTotals


class MetricRow(NamedTuple):
    """What one process counted in an interval for a tenant, or for itself if ``tenant`` is empty."""

    tenant: str
    bucket: MetricBucket


class HourMetrics(Response, omit_defaults=False):
    """One hour, over all server processes: your tenant's calls; for the operator, cache and database of the servers."""

    start: datetime
    calls: int
    errors: Annotated[int, msgspec.Meta(description="Calls that failed.")]
    avg_response_time: Annotated[float | None, msgspec.Meta(description="Mean duration of a call in milliseconds.")]
    messages: Annotated[int, msgspec.Meta(description="Messages that were added.")]
    searches: int
    cache_hit_ratio: Annotated[
        float | None,
        msgspec.Meta(description="Hits divided by lookups, of the servers. Null outside the operator's tenant."),
    ]
    avg_query_time: Annotated[
        float | None,
        msgspec.Meta(
            description="Mean duration of a transaction in milliseconds, of the servers. Null outside the operator's "
            "tenant."
        ),
    ]


def by_hour(buckets: Iterable[MetricBucket]) -> list[HourMetrics]:
    """Return the hours in which anything was counted, oldest first."""
    hours: dict[int, MetricTotals] = {}
    for bucket in buckets:
        hour = bucket.start // _HOUR
        hours[hour] = hours.get(hour, MetricTotals()).plus(bucket.totals)
    return [_hour(hour * _HOUR, hours[hour]) for hour in sorted(hours)]


def _hour(start: int, totals: MetricTotals) -> HourMetrics:
    return HourMetrics(
        start=datetime.fromtimestamp(start, UTC),
        calls=totals.calls,
        errors=totals.errors,
        avg_response_time=_milliseconds(totals.seconds, totals.timed),
        messages=totals.messages,
        searches=totals.searches,
        cache_hit_ratio=round(totals.hits / totals.lookups, 3) if totals.lookups else None,
        avg_query_time=_milliseconds(totals.query_seconds, totals.queries),
    )


def _milliseconds(seconds: float, times: int) -> float | None:
    return round(seconds / times * 1_000, 3) if times else None
