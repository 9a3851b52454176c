"""What is measured of every call, for Prometheus to fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

if TYPE_CHECKING:
    from weft.kernel.operation import Operation

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """Counts and times calls by operation. Labels are names of ours, never anything a caller sent."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._calls = Counter(
            "weft_calls", "Calls by operation and outcome", ["operation", "outcome"], registry=self._registry
        )
        self._seconds = Histogram(
            "weft_call_seconds", "Time a call took", ["operation"], buckets=_SECONDS, registry=self._registry
        )
        self._counters: dict[tuple[str, str], Counter] = {}
        self._timers: dict[str, Histogram] = {}

    def record(self, operation: Operation, outcome: str, seconds: float) -> None:
        label = (operation.name, outcome)
        counter = self._counters.get(label)
        if counter is None:
            counter = self._counters[label] = self._calls.labels(*label)
        counter.inc()
        timer = self._timers.get(operation.name)
        if timer is None:
            timer = self._timers[operation.name] = self._seconds.labels(operation.name)
        timer.observe(seconds)

    def exposition(self) -> bytes:
        return generate_latest(self._registry)
