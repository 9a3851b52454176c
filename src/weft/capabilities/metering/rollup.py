"""Adds entries up by interval and key, and keeps the number of keys of an interval within its limit."""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import add
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from weft.capabilities.metering.model import OTHER, UNITS, Unit, UsageKey, floor_to

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from weft.capabilities.metering.intervals import KeptFrom
    from weft.capabilities.metering.model import UsageEntry

K = TypeVar("K")

_MICROS = 1_000_000
# Keys of an interval: with their session, and as many again without it. Then everything is (other).
MAX_KEYS: dict[Unit, int] = {"minute": 50, "hour": 250, "day": 1_000}


class Bucket(NamedTuple):
    """One interval."""

    unit: Unit
    start: int


class Rollup(NamedTuple):
    """Sums to add: of each interval by key, and over all keys by kind."""

    details: dict[Bucket, dict[UsageKey, tuple[int, ...]]]
    totals: dict[tuple[Bucket, str], tuple[int, ...]]


def roll_up(entries: Iterable[UsageEntry], kept: KeptFrom) -> Rollup:
    """Add entries up; intervals that are past retention are left out."""
    details: defaultdict[Bucket, dict[UsageKey, tuple[int, ...]]] = defaultdict(dict)
    totals: dict[tuple[Bucket, str], tuple[int, ...]] = {}
    for each in entries:
        second, values = each.at // _MICROS, each.sums.values
        for unit in UNITS:
            bucket = Bucket(unit, floor_to(unit, second))
            if bucket.start < getattr(kept, unit):
                continue
            add_to(details[bucket], each.key, values)
            add_to(totals, (bucket, each.key.kind), values)
    return Rollup(dict(details), totals)


def within_limit(
    unit: Unit, known: Collection[UsageKey], sums: dict[UsageKey, tuple[int, ...]]
) -> dict[UsageKey, tuple[int, ...]]:
    """Fold the keys that are beyond the limit of an interval into those without a session, or into (other)."""
    stored, folded = set(known), dict[UsageKey, tuple[int, ...]]()
    counts = Counter(key.session_id == OTHER for key in known)
    for key, values in sums.items():
        placed = next(
            each
            for each in _places(key)
            if each in stored or each.agent_id == OTHER or counts[each.session_id == OTHER] < MAX_KEYS[unit]
        )
        if placed not in stored:
            stored.add(placed)
            counts[placed.session_id == OTHER] += 1
        add_to(folded, placed, values)
    return folded


def add_to(sums: dict[K, tuple[int, ...]], key: K, values: tuple[int, ...]) -> None:
    """Add figures to the sums of a key."""
    known = sums.get(key)
    sums[key] = values if known is None else tuple(map(add, known, values))


def _places(key: UsageKey) -> tuple[UsageKey, UsageKey, UsageKey]:
    return key, key._replace(session_id=OTHER), UsageKey(key.kind, OTHER, OTHER, OTHER, OTHER, (OTHER,))
