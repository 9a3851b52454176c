"""What is measured of every call, for Prometheus to fetch.

Calls add to plain lists; the library's own counters would cost each call several times as much.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from weft.kernel.operation import Operation

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_BOUNDS = (*map(str, _SECONDS), "+Inf")


class Metrics(Collector):
    """Counts and times calls by operation. Labels are names of ours, never anything a caller sent."""

    def __init__(self) -> None:
        self._calls: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._within: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(_BOUNDS))
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def record(self, operation: Operation, outcome: str, seconds: float) -> None:
        name = operation.name
        self._calls[name, outcome] += 1
        self._within[name][bisect_left(_SECONDS, seconds)] += 1
        self._seconds[name] += seconds

    def exposition(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        calls = CounterMetricFamily("weft_calls", "Calls by operation and outcome", labels=["operation", "outcome"])
        for labels, count in self._calls.items():
            calls.add_metric(labels, count)
        yield calls
        times = HistogramMetricFamily("weft_call_seconds", "Time a call took", labels=["operation"])
        for name, within in self._within.items():
            times.add_metric([name], list(zip(_BOUNDS, accumulate(within), strict=True)), self._seconds[name])
        yield times
