"""Adds entries up by interval and key, and keeps the number of keys of an interval within its limit."""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import add
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from weftline.models.metering.model import CALL_KINDS, OTHER, UNITS, Unit, UsageKey, floor_to

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from weftline.models.metering.intervals import KeptFrom
    from weftline.models.metering.model import UsageEntry

K = TypeVar("K")

_MICROS = 1_000_000
# Keys of an interval with all their names. What decides is the time of a month's report, which reads those of 30 days.
MAX_KEYS: dict[Unit, int] = {"minute": 20, "hour": 100, "day": 500}
# Where its interval is full, a key is folded: without the session, then without everything but the agent and its teams.
# Keys of each level, as part of MAX_KEYS. One agent has at most half of the keys that have more than its name, so that
# it cannot take the names of all others.
_LEVELS = (1.0, 0.5, 2.0)
_SHARED_LEVELS = 2
# Intervals of one roll-up: the keys of each have to be read.
MAX_INTERVALS = 12


class UsageInterval(NamedTuple):
    """One minute, hour or day."""

    unit: Unit
    start: int


class Rollup(NamedTuple):
    """Sums to add: of each interval by key, and over all keys by kind."""

    details: dict[UsageInterval, dict[UsageKey, tuple[int, ...]]]
    totals: dict[tuple[UsageInterval, str], tuple[int, ...]]


def max_rows(unit: Unit) -> int:
    """Return how many keys an interval has at most: those of all levels, and (other) of each kind."""
    return sum(_limit(unit, level) for level in range(len(_LEVELS))) + len(CALL_KINDS)


def within_intervals(entries: Sequence[UsageEntry]) -> Sequence[UsageEntry]:
    """Return the first entries, up to the number of intervals that are rolled up at once; at least one."""
    seen: set[UsageInterval] = set()
    for place, each in enumerate(entries):
        seen.update(_intervals(each))
        if place and len(seen) > MAX_INTERVALS:
            return entries[:place]
    return entries


def roll_up(entries: Iterable[UsageEntry], kept: KeptFrom) -> Rollup:
    """Add entries up; intervals that are past retention are left out."""
    details: defaultdict[UsageInterval, dict[UsageKey, tuple[int, ...]]] = defaultdict(dict)
    totals: dict[tuple[UsageInterval, str], tuple[int, ...]] = {}
    for each in entries:
        values = each.sums.values
        for interval in _intervals(each):
            if interval.start < getattr(kept, interval.unit):
                continue
            add_to(details[interval], each.key, values)
            add_to(totals, (interval, each.key.kind), values)
    return Rollup(dict(details), totals)


def within_limit(
    unit: Unit, known: Collection[UsageKey], sums: dict[UsageKey, tuple[int, ...]]
) -> dict[UsageKey, tuple[int, ...]]:
    """Fold the keys that are beyond the limits of an interval."""
    if len(known) + len(sums) <= MAX_KEYS[unit] // 2:
        return sums
    keys, folded = _Keys(unit, known), dict[UsageKey, tuple[int, ...]]()
    for key, values in sums.items():
        add_to(folded, keys.place(key), values)
    return folded


def add_to(sums: dict[K, tuple[int, ...]], key: K, values: tuple[int, ...]) -> None:
    """Add figures to the sums of a key."""
    known = sums.get(key)
    sums[key] = values if known is None else tuple(map(add, known, values))


class _Keys:
    """The keys of an interval, counted by level, and by level and agent."""

    def __init__(self, unit: Unit, known: Collection[UsageKey]) -> None:
        self._unit: Unit = unit
        self._stored = set(known)
        self._counts = Counter(_level(key) for key in known)
        self._by_agent = Counter((_level(key), key.agent_id) for key in known)

    def place(self, key: UsageKey) -> UsageKey:
        """Return the key itself, or the first that it is folded into and that has room."""
        for level, each in enumerate(_folded(key)):
            if each in self._stored:
                return each
            if self._has_room(level, key.agent_id):
                self._stored.add(each)
                self._counts[level] += 1
                self._by_agent[level, key.agent_id] += 1
                return each
        return UsageKey(key.kind, OTHER, OTHER, OTHER, OTHER, (OTHER,))

    def _has_room(self, level: int, agent_id: str) -> bool:
        limit = _limit(self._unit, level)
        share = limit // 2 if level < _SHARED_LEVELS else limit
        return self._counts[level] < limit and self._by_agent[level, agent_id] < share


def _intervals(entry: UsageEntry) -> Iterator[UsageInterval]:
    second = entry.at // _MICROS
    return (UsageInterval(unit, floor_to(unit, second)) for unit in UNITS)


def _limit(unit: Unit, level: int) -> int:
    return int(MAX_KEYS[unit] * _LEVELS[level])


def _folded(key: UsageKey) -> tuple[UsageKey, ...]:
    return key, key._replace(session_id=OTHER), key._replace(session_id=OTHER, step=OTHER, model=OTHER)


def _level(key: UsageKey) -> int:
    """Return how far a stored key is folded. Agents and sessions cannot be named (other), steps and models may be."""
    if key.agent_id == OTHER:
        return len(_LEVELS)
    if key.session_id != OTHER:
        return 0
    return 2 if key.step == key.model == OTHER else 1
