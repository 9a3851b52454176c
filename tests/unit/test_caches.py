"""Caches: TTL, LRU eviction by weight, and metrics."""

from __future__ import annotations

import pytest

from weft.app.caches import Cache, CacheCounts, CacheRegistry
from weft.testing.clock import FrozenClock


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def cache(clock: FrozenClock) -> Cache[str]:
    return Cache("answers", 1, max_weight=10, ttl_seconds=60, clock=clock)


def test_a_stored_value_is_found(cache: Cache[str]) -> None:
    cache.put(("s1", 4), "answer", 3)
    assert cache.get(("s1", 4)) == "answer"
    assert cache.get(("s1", 5)) is None
    assert cache.counts() == CacheCounts(size=1, hits=1, misses=1, evictions=0)


def test_a_value_expires_after_its_ttl(cache: Cache[str], clock: FrozenClock) -> None:
    cache.put("key", "answer", 3)
    clock.advance(seconds=59)
    assert cache.get("key") == "answer"
    clock.advance(seconds=1)
    assert cache.get("key") is None
    assert cache.counts() == CacheCounts(size=0, hits=1, misses=1, evictions=0)


def test_reading_a_value_does_not_extend_its_ttl(cache: Cache[str], clock: FrozenClock) -> None:
    cache.put("key", "answer", 3)
    clock.advance(seconds=40)
    cache.get("key")
    clock.advance(seconds=40)
    assert cache.get("key") is None


def test_the_least_recently_used_value_is_evicted(cache: Cache[str]) -> None:
    for key in ("a", "b", "c"):
        cache.put(key, key, 3)
    cache.get("a")
    cache.put("d", "d", 3)
    assert [cache.get(key) for key in ("a", "b", "c", "d")] == ["a", None, "c", "d"]
    assert cache.counts().evictions == 1


def test_a_heavy_value_evicts_several(cache: Cache[str]) -> None:
    for key in ("a", "b", "c"):
        cache.put(key, key, 3)
    cache.put("d", "d", 7)
    assert [cache.get(key) for key in ("a", "b", "c", "d")] == [None, None, "c", "d"]
    assert cache.counts().evictions == 2


def test_a_value_heavier_than_the_cache_is_not_stored_and_evicts_its_predecessor(cache: Cache[str]) -> None:
    cache.put("a", "old", 3)
    cache.put("b", "b", 3)
    cache.put("a", "new", 11)
    assert (cache.get("a"), cache.get("b")) == (None, "b")


def test_putting_a_key_again_replaces_its_value_and_weight(cache: Cache[str]) -> None:
    for number in range(10):
        cache.put("key", f"answer {number}", 6)
    assert cache.get("key") == "answer 9"
    assert cache.counts() == CacheCounts(size=1, hits=1, misses=0, evictions=0)


def test_metrics_sum_over_all_caches(clock: FrozenClock) -> None:
    registry = CacheRegistry()
    first = registry.register(Cache[int]("pages", 1, 2, 60, clock))
    second = registry.register(Cache[int]("indexes", 2, 10, 60, clock))
    assert registry.stats().cache_hit_ratio is None
    for number in range(3):
        first.put(number, number)
        second.put(number, number)
    assert (first.get(2), second.get(0), second.get(9)) == (2, 0, None)
    stats = registry.stats()
    assert (stats.l1_cache_size, stats.l2_cache_size, stats.cached_queries) == (2, 3, 5)
    assert (stats.cache_hit_ratio, stats.cache_misses, stats.evictions) == (0.667, 1, 1)


def test_two_caches_cannot_share_a_name(clock: FrozenClock) -> None:
    registry = CacheRegistry()
    registry.register(Cache[int]("pages", 1, 2, 60, clock))
    with pytest.raises(ValueError, match="pages"):
        registry.register(Cache[int]("pages", 2, 2, 60, clock))
