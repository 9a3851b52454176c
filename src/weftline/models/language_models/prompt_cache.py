"""Rules of prompt caches: which of the possible breakpoints a request marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from weftline.kernel.errors import InvalidInput
from weftline.models.language_models.catalog import CacheRules
from weftline.models.language_models.model import BlockKind

# Blocks that stay the same for many sessions or tasks: worth a longer lifetime than the conversation.
_STABLE: frozenset[BlockKind] = frozenset({"layer", "pins"})


class CachePoint(NamedTuple):
    """A position of a request (tools, system and messages in hashed order) where a cache may end."""

    position: int
    prefix_tokens: int
    kind: BlockKind | None = None

    @property
    def stable(self) -> bool:
        return self.kind is None or self.kind in _STABLE


def choose_breakpoints(points: Sequence[CachePoint], rules: CacheRules, limit: int | None = None) -> list[CachePoint]:
    """Return the points to mark, in order: long enough to be cached, at most as many as the provider allows.

    If there are too many, the first is kept because most calls share it, and the last ones because they cover most.
    """
    allowed = rules.max_breakpoints if limit is None else min(limit, rules.max_breakpoints)
    if not rules.takes_marks or allowed == 0:
        return []
    long_enough = [point for point in points if point.prefix_tokens >= rules.min_tokens]
    if len(long_enough) <= allowed:
        return long_enough
    return [*long_enough[:1], *long_enough[len(long_enough) - allowed + 1 :]] if allowed > 1 else long_enough[-1:]


def bridge_gaps(chosen: Sequence[CachePoint], candidates: Sequence[CachePoint], rules: CacheRules) -> list[CachePoint]:
    """Use spare breakpoints where two are further apart than the provider looks back.

    An entry written at an earlier breakpoint is found only within ``lookback_blocks`` before a later one, so a
    call that appends more blocks than that would miss it.
    """
    marked = sorted(chosen)
    if not marked or not rules.lookback_blocks:
        return marked
    left = marked[-2].position if len(marked) > 1 else -1
    right = marked[-1].position
    # The breakpoint itself is the first position that the provider checks.
    reach = rules.lookback_blocks - 1
    while len(marked) < rules.max_breakpoints and right - left > reach:
        reachable = [point for point in candidates if max(left, right - reach - 1) < point.position < right]
        if not reachable:
            break
        marked.append(reachable[0])
        right = reachable[0].position
    return sorted(marked)


def check_ttl(rules: CacheRules, ttl: str | None) -> None:
    """Raise InvalidInput if the prompt cache of a model has no such lifetime."""
    if ttl is not None and ttl not in rules.ttl_seconds:
        allowed = ", ".join(rules.ttl_seconds) or "left out, this model has no prompt cache"
        raise InvalidInput(f"cache_ttl: must be one of {allowed}", field="cache_ttl")


def lifetimes(chosen: Sequence[CachePoint], rules: CacheRules, ttl: str | None) -> list[str | None]:
    """Return the lifetime of each breakpoint, None for the provider's default.

    A longer lifetime applies to the stable beginning only: the end of the conversation is superseded by the next call,
    and longer lifetimes must come first.
    """
    check_ttl(rules, ttl)
    named: list[str | None] = []
    longer = ttl if ttl != rules.default_ttl else None
    for point in chosen:
        if not point.stable:
            longer = None
        named.append(longer)
    return named
