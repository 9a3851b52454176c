"""Figures of the process for Prometheus: database, caches, subscribers, memory and CPU.

They cover all tenants together, so they are for the operator only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from weftline.app.caches import CacheRegistry
    from weftline.app.subscribers import Subscribers
    from weftline.storage.sql.database import Database


class ProcessFigures(Collector):
    """Reads the counters of the process when Prometheus asks."""

    def __init__(self, database: Database, caches: CacheRegistry, subscribers: Subscribers) -> None:
        self._database = database
        self._caches = caches
        self._subscribers = subscribers
        # Registered nowhere else: its figures are part of ours.
        self._process = ProcessCollector(registry=CollectorRegistry())

    def collect(self) -> Iterator[Metric]:
        yield from self._process.collect()
        yield from self._of_database()
        yield from self._of_caches()
        yield GaugeMetricFamily(
            "weftline_subscribers", "Open event streams, subscriptions and waiting calls", value=len(self._subscribers)
        )

    def _of_database(self) -> Iterator[Metric]:
        figures, (transactions, seconds) = self._database.figures(), self._database.query_totals()
        connections = GaugeMetricFamily(
            "weftline_database_connections", "Open connections by state: idle or in use", labels=["state"]
        )
        connections.add_metric(["idle"], figures.pool_stats.available_connections)
        connections.add_metric(["in_use"], figures.pool_stats.checked_out_connections)
        yield connections
        stats = figures.connection_stats
        for name, text, value in (
            ("weftline_database_statements", "Statements run; begin and commit are not counted", stats.total_queries),
            ("weftline_database_transactions", "Transactions", transactions),
            ("weftline_database_transaction_seconds", "Time of all transactions together", seconds),
            ("weftline_database_slow_transactions", "Transactions that took over 50 ms", stats.slow_queries),
            ("weftline_database_errors", "Transactions that could not reach the database", stats.connection_errors),
        ):
            yield CounterMetricFamily(name, text, value=value)

    def _of_caches(self) -> Iterator[Metric]:
        entries = GaugeMetricFamily("weftline_cache_entries", "Entries by cache", labels=["cache"])
        lookups = CounterMetricFamily(
            "weftline_cache_lookups", "Lookups by cache and outcome", labels=["cache", "outcome"]
        )
        evictions = CounterMetricFamily("weftline_cache_evictions", "Entries dropped to make room", labels=["cache"])
        for cache in self._caches:
            counts = cache.counts()
            entries.add_metric([cache.name], counts.size)
            lookups.add_metric([cache.name, "hit"], counts.hits)
            lookups.add_metric([cache.name, "miss"], counts.misses)
            evictions.add_metric([cache.name], counts.evictions)
        yield from (entries, lookups, evictions)
