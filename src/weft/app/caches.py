"""In-process LRU caches with TTL and hit statistics, and buffered read counts."""

from __future__ import annotations

import threading
from collections import OrderedDict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from weft.capabilities.metrics.history import MetricTotals
from weft.capabilities.metrics.model import CacheStats
from weft.storage.sql.board import SqlEntryStore
from weft.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Hashable

    from weft.kernel.clock import Clock
    from weft.storage.sql.database import Database, Transaction

V = TypeVar("V")
Level = Literal[1, 2]
_MAX_BUFFERED = 50_000


class CacheCounts(NamedTuple):
    """Size and counters of one cache."""

    size: int
    hits: int
    misses: int
    evictions: int


class _CacheEntry(NamedTuple, Generic[V]):
    value: V
    weight: int
    until: datetime


class Cache(Generic[V]):
    """LRU cache bounded by the total weight of its values. Thread-safe.

    A key contains everything its value depends on, including who may see it. Entries expire after ``ttl_seconds``.
    """

    def __init__(self, name: str, level: Level, max_weight: int, ttl_seconds: float, clock: Clock) -> None:
        self.name = name
        self.level = level
        self._limit = max_weight
        self._lifetime = timedelta(seconds=ttl_seconds)
        self._clock = clock
        self._entries: OrderedDict[Hashable, _CacheEntry[V]] = OrderedDict()
        self._weight = self._hits = self._misses = self._evictions = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> V | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and entry.until <= self._clock.now():
                self._remove(key)
                entry = None
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return entry.value

    def put(self, key: Hashable, value: V, weight: int = 1) -> None:
        """Add a value, unless it alone exceeds the limit."""
        with self._lock:
            self._remove(key)
            if weight > self._limit:
                return
            self._entries[key] = _CacheEntry(value, weight, self._clock.now() + self._lifetime)
            self._weight += weight
            while self._weight > self._limit:
                self._remove(next(iter(self._entries)))
                self._evictions += 1

    def counts(self) -> CacheCounts:
        with self._lock:
            return CacheCounts(len(self._entries), self._hits, self._misses, self._evictions)

    def _remove(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._weight -= entry.weight


class CacheRegistry:
    """All caches of this process, for their combined statistics."""

    def __init__(self) -> None:
        self._caches: dict[str, Cache[Any]] = {}

    def register(self, cache: Cache[V]) -> Cache[V]:
        """Add a cache, and return it."""
        if cache.name in self._caches:
            raise ValueError(f"two caches are named {cache.name}")
        self._caches[cache.name] = cache
        return cache

    def totals(self) -> MetricTotals:
        counts = [cache.counts() for cache in self._caches.values()]
        hits = sum(count.hits for count in counts)
        return MetricTotals(lookups=hits + sum(count.misses for count in counts), hits=hits)

    def stats(self) -> CacheStats:
        counts = [(cache.level, cache.counts()) for cache in self._caches.values()]
        totals = self.totals()
        return CacheStats(
            cached_queries=sum(count.size for _, count in counts),
            l1_cache_size=sum(count.size for level, count in counts if level == 1),
            l2_cache_size=sum(count.size for level, count in counts if level == 2),  # noqa: PLR2004 - a level's name
            cache_hit_ratio=round(totals.hits / totals.lookups, 3) if totals.lookups else None,
            cache_misses=totals.lookups - totals.hits,
            evictions=sum(count.evictions for _, count in counts),
        )


class BufferedReadCounts:
    """Read counts of board keys, buffered in memory and flushed periodically; a crash may lose a few."""

    def __init__(self) -> None:
        self._reads: dict[tuple[str, str, str], list[int]] = {}

    def note(self, tenant: str, session_id: str, key: str, at: int) -> None:
        noted = self._reads.get((tenant, session_id, key))
        if noted is not None:
            noted[0] += 1
            noted[1] = at
        elif len(self._reads) < _MAX_BUFFERED:
            self._reads[tenant, session_id, key] = [1, at]

    async def flush(self, database: Database) -> None:
        reads, self._reads = self._reads, {}
        for tenant in {tenant for tenant, _, _ in reads}:
            of_tenant = [(s, k, count, at) for (t, s, k), (count, at) in reads.items() if t == tenant]

            async def write_counts(
                transaction: Transaction, of_tenant: list[tuple[str, str, int, int]] = of_tenant
            ) -> None:
                entries = SqlEntryStore(transaction)
                # Sorted, so that two processes lock rows in the same order.
                for session_id, key, count, at in sorted(of_tenant):
                    await entries.add_reads(session_id, key, count, at)

            await database.write(Scope(tenant), write_counts)
