"""In-process LRU caches with TTL and hit statistics."""

from __future__ import annotations

import threading
from collections import OrderedDict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from weft.app.trends import CacheTotals
from weft.capabilities.metrics.model import CacheStats

if TYPE_CHECKING:
    from collections.abc import Hashable

    from weft.kernel.clock import Clock

V = TypeVar("V")
Level = Literal[1, 2]


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

    def totals(self) -> CacheTotals:
        counts = [cache.counts() for cache in self._caches.values()]
        hits = sum(count.hits for count in counts)
        return CacheTotals(lookups=hits + sum(count.misses for count in counts), hits=hits)

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
