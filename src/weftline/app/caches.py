"""In-process LRU caches with TTL and hit statistics, and buffered read counts."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict
from datetime import datetime, timedelta
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar, cast

from weftline.insight.metrics import CacheStats, MetricTotals
from weftline.jobs.runner import attempt
from weftline.state.board.sql import EntryStore
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from weftline.kernel.clock import Clock
    from weftline.kernel.ports import CacheKey
    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database


V = TypeVar("V")
Level = Literal[1, 2]
_MAX_BUFFERED = 50_000
# Tenants without entries whose counters a cache keeps.
_MAX_IDLE_TENANTS = 1_000


class CacheCounts(NamedTuple):
    """Size and counters of one cache, in all or for one tenant."""

    size: int = 0
    hits: int = 0
    misses: int = 0
    evictions: int = 0

    def plus(self, other: CacheCounts) -> CacheCounts:
        return CacheCounts(*map(add, self, other))


class _CacheEntry(NamedTuple, Generic[V]):
    value: V
    weight: int
    until: datetime


class _TenantEntries(Generic[V]):
    """Entries of one tenant, least recently used first, and their counters."""

    __slots__ = ("entries", "evictions", "hits", "misses", "weight")

    def __init__(self) -> None:
        self.entries: OrderedDict[CacheKey, _CacheEntry[V]] = OrderedDict()
        self.weight = self.hits = self.misses = self.evictions = 0

    def remove(self, key: CacheKey) -> int:
        """Remove an entry if there is one; return its weight."""
        entry = self.entries.pop(key, None)
        if entry is None:
            return 0
        self.weight -= entry.weight
        return entry.weight

    def counts(self) -> CacheCounts:
        return CacheCounts(len(self.entries), self.hits, self.misses, self.evictions)


class Cache(Generic[V]):
    """LRU cache bounded by the total weight of its values. Thread-safe.

    A key contains everything its value depends on, including who may see it, and begins with the tenant. A full cache
    evicts from the tenant with the most: what one tenant caches displaces nothing of another that has less. Entries
    expire after ``ttl_seconds``.
    """

    def __init__(self, name: str, level: Level, max_weight: int, ttl_seconds: float, clock: Clock) -> None:
        self.name = name
        self.level = level
        self._limit = max_weight
        self._lifetime = timedelta(seconds=ttl_seconds)
        self._clock = clock
        # Least recently used first.
        self._tenants: OrderedDict[str, _TenantEntries[V]] = OrderedDict()
        # Of tenants that were forgotten.
        self._forgotten = CacheCounts()
        self._weight = 0
        self._lock = threading.Lock()

    def get(self, key: CacheKey) -> V | None:
        with self._lock:
            tenant = self._tenant(key)
            entry = tenant.entries.get(key)
            if entry is not None and entry.until <= self._clock.now():
                self._weight -= tenant.remove(key)
                entry = None
            if entry is None:
                tenant.misses += 1
                return None
            tenant.hits += 1
            tenant.entries.move_to_end(key)
            return entry.value

    def put(self, key: CacheKey, value: V, weight: int = 1) -> None:
        """Add a value, unless it alone exceeds the limit."""
        with self._lock:
            tenant = self._tenant(key)
            self._weight -= tenant.remove(key)
            if weight > self._limit:
                return
            tenant.entries[key] = _CacheEntry(value, weight, self._clock.now() + self._lifetime)
            tenant.weight += weight
            self._weight += weight
            while self._weight > self._limit:
                self._evict(tenant)

    def counts(self) -> CacheCounts:
        """Return the counters of all tenants together."""
        with self._lock:
            return reduce(CacheCounts.plus, (tenant.counts() for tenant in self._tenants.values()), self._forgotten)

    def counts_of(self, tenant: str) -> CacheCounts:
        with self._lock:
            known = self._tenants.get(tenant)
            return CacheCounts() if known is None else known.counts()

    def _tenant(self, key: CacheKey) -> _TenantEntries[V]:
        name = key[0]
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _TenantEntries()
            if len(self._tenants) > _MAX_IDLE_TENANTS:
                self._forget_idle()
        return tenant

    def _forget_idle(self) -> None:
        """Forget the oldest tenant that has no entries."""
        for name, tenant in self._tenants.items():
            if not tenant.entries and name != next(reversed(self._tenants)):
                self._forgotten = self._forgotten.plus(tenant.counts())
                del self._tenants[name]
                return

    def _evict(self, adding: _TenantEntries[V]) -> None:
        """Evict an entry of the tenant with the most: the adding one, if it has more than an equal share."""
        heaviest = adding
        if adding.weight * len(self._tenants) < self._weight:
            heaviest = max(self._tenants.values(), key=lambda tenant: tenant.weight)
        self._weight -= heaviest.remove(next(iter(heaviest.entries)))
        heaviest.evictions += 1


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

    def __iter__(self) -> Iterator[Cache[Any]]:
        return iter(self._caches.values())

    def totals(self) -> MetricTotals:
        """Return the lookups and hits of all tenants together."""
        counts = reduce(CacheCounts.plus, (cache.counts() for cache in self), CacheCounts())
        return MetricTotals(lookups=counts.hits + counts.misses, hits=counts.hits)

    def stats(self, tenant: str) -> CacheStats:
        """Return the figures of a tenant's entries and lookups."""
        by_level = [(cache.level, cache.counts_of(tenant)) for cache in self]
        counts = reduce(CacheCounts.plus, (count for _, count in by_level), CacheCounts())
        lookups = counts.hits + counts.misses
        return CacheStats(
            cached_queries=counts.size,
            l1_cache_size=sum(count.size for level, count in by_level if level == 1),
            l2_cache_size=sum(count.size for level, count in by_level if level == 2),  # noqa: PLR2004 - a level's name
            cache_hit_ratio=round(counts.hits / lookups, 3) if lookups else None,
            cache_misses=counts.misses,
            evictions=counts.evictions,
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
        buffered, self._reads = self._reads, {}
        # Reads in threads may still add to it.
        reads = dict(buffered)
        for tenant in {tenant for tenant, _, _ in reads}:
            of_tenant = [(s, k, count, at) for (t, s, k), (count, at) in reads.items() if t == tenant]

            async def write_counts(
                transaction: Transaction, of_tenant: list[tuple[str, str, int, int]] = of_tenant
            ) -> None:
                entries = EntryStore(transaction)
                # Sorted, so that two processes lock rows in the same order.
                for session_id, key, count, at in sorted(of_tenant):
                    await entries.add_reads(session_id, key, count, at)

            await database.write(Scope(tenant), write_counts)


# Fire-and-forget tasks; failures are logged.

T = TypeVar("T")

_STOP_SECONDS = 5.0


class BackgroundTasks:
    """Tasks that no caller awaits."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[bool]] = set()
        # Writing a segment takes a core for a while, so one is written at a time.
        self._writing = asyncio.Semaphore(1)
        self.is_open = True

    def run(self, what: str, work: Coroutine[Any, Any, object]) -> None:
        if not self.is_open:
            work.close()
            return
        task = asyncio.create_task(attempt(what, work), name=f"weftline-{what}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def write(self, work: Callable[[], T]) -> T:
        """Run slow work in a daemon thread: at exit it is abandoned, and an unfinished file is ignored later."""
        async with self._writing:
            return await _in_daemon_thread(work)

    async def close(self) -> None:
        """Wait a few seconds for running tasks, then cancel them."""
        self.is_open = False
        if self._running:
            await asyncio.wait(self._running, timeout=_STOP_SECONDS)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


async def _in_daemon_thread(work: Callable[[], T]) -> T:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast("T", result))

    def run() -> None:
        try:
            outcome: tuple[T | None, BaseException | None] = work(), None
        except BaseException as error:  # noqa: BLE001 - set on the future
            outcome = None, error
        # The loop may be closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="weftline-index", daemon=True).start()
    return await done
