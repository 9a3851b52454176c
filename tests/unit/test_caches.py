"""Caches: TTL, LRU eviction by weight, and metrics."""

from __future__ import annotations

import pytest

from weftline.app.caches import Cache, CacheCounts, CacheRegistry
from weftline.testing.clock import FrozenClock


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
    cache.put(("t", "key"), "answer", 3)
    clock.advance(seconds=59)
    assert cache.get(("t", "key")) == "answer"
    clock.advance(seconds=1)
    assert cache.get(("t", "key")) is None
    assert cache.counts() == CacheCounts(size=0, hits=1, misses=1, evictions=0)


def test_reading_a_value_does_not_extend_its_ttl(cache: Cache[str], clock: FrozenClock) -> None:
    cache.put(("t", "key"), "answer", 3)
    clock.advance(seconds=40)
    cache.get(("t", "key"))
    clock.advance(seconds=40)
    assert cache.get(("t", "key")) is None


def test_the_least_recently_used_value_is_evicted(cache: Cache[str]) -> None:
    for key in ("a", "b", "c"):
        cache.put(("t", key), key, 3)
    cache.get(("t", "a"))
    cache.put(("t", "d"), "d", 3)
    assert [cache.get(("t", key)) for key in ("a", "b", "c", "d")] == ["a", None, "c", "d"]
    assert cache.counts().evictions == 1


def test_a_heavy_value_evicts_several(cache: Cache[str]) -> None:
    for key in ("a", "b", "c"):
        cache.put(("t", key), key, 3)
    cache.put(("t", "d"), "d", 7)
    assert [cache.get(("t", key)) for key in ("a", "b", "c", "d")] == [None, None, "c", "d"]
    assert cache.counts().evictions == 2


def test_a_value_heavier_than_the_cache_is_not_stored_and_evicts_its_predecessor(cache: Cache[str]) -> None:
    cache.put(("t", "a"), "old", 3)
    cache.put(("t", "b"), "b", 3)
    cache.put(("t", "a"), "new", 11)
    assert (cache.get(("t", "a")), cache.get(("t", "b"))) == (None, "b")


def test_putting_a_key_again_replaces_its_value_and_weight(cache: Cache[str]) -> None:
    for number in range(10):
        cache.put(("t", "key"), f"answer {number}", 6)
    assert cache.get(("t", "key")) == "answer 9"
    assert cache.counts() == CacheCounts(size=1, hits=1, misses=0, evictions=0)


def test_a_tenant_that_floods_the_cache_evicts_only_its_own_values(cache: Cache[str]) -> None:
    cache.put(("victim", 1), "kept", 3)
    for number in range(50):
        cache.put(("flood", number), "new", 2)
    assert cache.get(("victim", 1)) == "kept"
    assert cache.counts_of("victim") == CacheCounts(size=1, hits=1, misses=0, evictions=0)
    assert cache.counts_of("flood") == CacheCounts(size=3, hits=0, misses=0, evictions=47)


def test_a_tenant_with_less_than_its_share_displaces_the_one_with_the_most(cache: Cache[str]) -> None:
    for number in range(5):
        cache.put(("most", number), "old", 2)
    cache.put(("new", 1), "value", 2)
    assert (cache.get(("most", 0)), cache.get(("most", 1)), cache.get(("new", 1))) == (None, "old", "value")


def test_the_figures_of_a_tenant_show_nothing_of_another(clock: FrozenClock) -> None:
    registry = CacheRegistry()
    pages = registry.register(Cache[str]("pages", 1, 10, 60, clock))
    pages.put(("victim", 1), "page", 1)
    before = registry.stats("victim")
    for number in range(100):
        pages.get(("other", number))
        pages.put(("other", number), "page", 1)
    assert registry.stats("victim") == before
    assert registry.totals().lookups == 100


def test_counters_of_tenants_without_entries_are_bounded(cache: Cache[str]) -> None:
    for number in range(3_000):
        cache.get((f"tenant{number}", 1))
    assert len(cache._tenants) <= 1_001
    assert cache.counts().misses == 3_000


def test_metrics_sum_over_all_caches(clock: FrozenClock) -> None:
    registry = CacheRegistry()
    first = registry.register(Cache[int]("pages", 1, 2, 60, clock))
    second = registry.register(Cache[int]("indexes", 2, 10, 60, clock))
    assert registry.stats("t").cache_hit_ratio is None
    for number in range(3):
        first.put(("t", number), number)
        second.put(("t", number), number)
    assert (first.get(("t", 2)), second.get(("t", 0)), second.get(("t", 9))) == (2, 0, None)
    stats = registry.stats("t")
    assert (stats.l1_cache_size, stats.l2_cache_size, stats.cached_queries) == (2, 3, 5)
    assert (stats.cache_hit_ratio, stats.cache_misses, stats.evictions) == (0.667, 1, 1)


def test_two_caches_cannot_share_a_name(clock: FrozenClock) -> None:
    registry = CacheRegistry()
    registry.register(Cache[int]("pages", 1, 2, 60, clock))
    with pytest.raises(ValueError, match="pages"):
        registry.register(Cache[int]("pages", 2, 2, 60, clock))
