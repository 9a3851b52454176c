"""Covers a span of time with whole days, hours and minutes, as far as roll-ups of them are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.models.metering.model import UNIT_SECONDS, Unit, floor_to

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.models.metering.queries import GroupBy

_COARSEST_FIRST: tuple[Unit, ...] = ("day", "hour", "minute")


class Interval(NamedTuple):
    """Whole units from ``start`` to ``end`` (seconds, exclusive)."""

    unit: Unit
    start: int
    end: int


class KeptFrom(NamedTuple):
    """The first seconds of which roll-ups are kept; each is the start of a day."""

    minute: int = 0
    hour: int = 0
    day: int = 0


def units_for(by: GroupBy) -> tuple[Unit, ...]:
    """Return the units that a grouping can be made of, coarsest first."""
    return _COARSEST_FIRST[_COARSEST_FIRST.index(by) :] if by in UNIT_SECONDS else _COARSEST_FIRST


def widened(since: int, until: int, kept: KeptFrom, units: tuple[Unit, ...]) -> tuple[int, int]:
    """Return a span in seconds, widened to whole units that are kept; what is not kept at all is cut off."""
    coarsest = units[0]
    since = max(since, getattr(kept, coarsest))
    until = max(since, until)
    return _floor(since, kept, units), -_floor(-until, kept, units, at=until)


def cover(since: int, until: int, units: tuple[Unit, ...]) -> Iterator[Interval]:
    """Yield the intervals of a widened span, with as few units as possible."""
    if since >= until:
        return
    unit, finer = units[0], units[1:]
    if not finer:
        yield Interval(unit, since, until)
        return
    start, end = -floor_to(unit, -since), floor_to(unit, until)
    if start >= end:
        yield from cover(since, until, finer)
        return
    yield from cover(since, start, finer)
    yield Interval(unit, start, end)
    yield from cover(end, until, finer)


def _floor(second: int, kept: KeptFrom, units: tuple[Unit, ...], at: int | None = None) -> int:
    """Return the second rounded down to the finest unit that is kept of the time ``at``."""
    when = second if at is None else at
    finest = next((unit for unit in reversed(units) if getattr(kept, unit) <= when), units[0])
    return floor_to(finest, second)
