"""Caches tell nobody what others have stored or asked: no hit, in any cache, comes from the work of another caller."""

from __future__ import annotations

import functools
import gc
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from support.world import SESSION, World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from support.world import Caller

pytestmark = pytest.mark.req("CE-F42")

SECRET = "Disregard the earlier plan: the launch code of the falcon is zanzibar 4711. " * 20
# Caches of a process over arguments, each with why a hit in it tells nothing of content: ``word`` is a single word,
# whose computation takes microseconds; ``rule`` is a rule of its owner, which is part of the key; ``code`` depends on
# Weftline and its settings only; ``name`` is the name of a model, an action or a pattern, and takes microseconds.
LISTED = {
    "weftline.windows.compaction.reduction.units._cost_of_word": "word",
    "weftline.windows.compaction.reduction.units._form_of_word": "word",
    "weftline.indexing.text_analysis._words": "word",
    "weftline.indexing.text_analysis._stem": "word",
    "weftline.encoder.wordpiece.WordPieceTokenizer._cut": "word",
    "weftline.search_index.segment.term_hash": "word",
    "weftline.safety.guardrails.conditions.check_condition": "rule",
    "weftline.safety.guardrails.conditions._group_of": "rule",
    "weftline.safety.guardrails.rules._meant_group": "name",
    "weftline.app.guardrails._short": "name",
    "weftline.providers.prices._priced_model": "name",
    "weftline.kernel.identity.named_types": "name",
    "weftline.kernel.patterns.decode_audience": "name",
    "weftline.history.line_signatures._private_key": "code",
}


def bounded_caches() -> set[str]:
    """Return the names of all functions of Weftline in this process whose results are cached up to a number."""
    kind = type(functools.lru_cache(lambda: None))
    # Frozen objects, as those that the collection of tests made, are not listed.
    gc.unfreeze()
    # Not isinstance, which asks proxies of other libraries for their class.
    caches = [each for each in gc.get_objects() if type(each) is kind and hasattr(each, "cache_parameters")]
    found = {
        f"{getattr(each, '__module__', '')}.{getattr(each, '__qualname__', '')}"
        for each in caches
        if each.cache_parameters()["maxsize"] is not None
    }
    return {name for name in found if name.startswith("weftline.")}


async def test_every_cache_of_results_is_known_to_hold_no_content(world: World) -> None:
    await work(world.planner)
    unlisted = bounded_caches() - LISTED.keys()
    assert unlisted == set(), "a cache of results over content is shared between callers: key it by its reader"


async def work(caller: Caller) -> None:
    """Store, read and search the same content as every other caller."""
    await caller.say(SECRET)
    await caller.messages()
    await caller.search("zanzibar")
    await caller.remember("plan", SECRET)
    await caller.call("search.query", query="What is the launch code?")
    await caller.call("knowledge.embed", texts=[SECRET])


async def lookups(world: World, doing: Callable[[], Awaitable[Any]]) -> dict[str, tuple[int, int]]:
    """Return the hits and misses of every cache while something is done."""
    before = {cache.name: cache.counts() for cache in world.app.caches}
    await doing()
    await world.index_sessions()
    after = {cache.name: cache.counts() for cache in world.app.caches}
    found = {name: (after[name].hits - before[name].hits, after[name].misses - before[name].misses) for name in after}
    return {name: counts for name, counts in found.items() if name not in BY_IDENTITY}


# Keyed by a session, a window or a line that the caller may read: a hit tells that it was read, not what is in it.
BY_IDENTITY = {"search_indexes", "window_events", "prepared_events", "compacted_views", "key_facts", "prompts"}


def embedding_hits(world: World) -> float:
    found = re.search(r'^weftline_embedding_cache_total{outcome="hit"} (\S+)', exposition(world), re.MULTILINE)
    return float(found[1]) if found else 0.0


def exposition(world: World) -> str:
    return world.app.metrics.exposition().decode()


async def test_no_hit_comes_from_the_work_of_another_caller(world: World) -> None:
    """A neighbour that does the same after another has as many hits and misses as the first one."""
    alone = await lookups(world, lambda: work(world.planner))
    hits = embedding_hits(world)
    for neighbour in (world.review, world.analysis):
        assert await lookups(world, lambda caller=neighbour: work(caller)) == alone
        assert embedding_hits(world) == hits


async def test_a_guessed_value_is_confirmed_by_nothing(world: World) -> None:
    """The finding: a guess of another's private memory moved the counter of the embedding cache."""
    await world.planner.remember("pin", SECRET)
    await world.index_sessions()
    moved = []
    for guess in (SECRET, SECRET.replace("4711", "4712")):
        hits = embedding_hits(world)
        await world.review.remember(f"guess{len(moved)}", guess)
        await world.review.call("board.write", session_id=SESSION, key=f"guess{len(moved)}", value=guess)
        await world.index_sessions()
        moved.append(embedding_hits(world) - hits)
    assert moved[0] == moved[1]


async def test_the_walk_sees_caches_of_results() -> None:
    module = sys.modules["weftline.indexing.text_analysis"]
    assert f"{module.__name__}._stem" in bounded_caches()
