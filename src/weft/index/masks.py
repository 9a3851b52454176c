"""Which rows of a segment a caller sees: by who may see them, what was asked for, and what is still there."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from weft.index.names import number_of
from weft.index.vectors import Sight

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from weft.capabilities.retrieval.view import Audiences, Wish
    from weft.index.segment import Group, Segment

    Bits = NDArray[np.bool_]

_MASKS_KEPT = 8
_patterns = msgspec.json.Decoder(list[str]).decode


class Mask:
    """The visible rows of a segment; ``bits`` is None where these are all."""

    def __init__(self, segment: Segment, bits: Bits) -> None:
        self._segment = segment
        self.size = int(np.count_nonzero(bits))
        self.bits: Bits | None = None if self.size == segment.size else bits

    @cached_property
    def total_terms(self) -> int:
        length = self._segment.facts.length
        return int(length.sum() if self.bits is None else length[self.bits].sum())

    @cached_property
    def messages(self) -> int:
        """Return how many of the visible rows are messages."""
        is_message = np.array([group.source == "message" for group in self._segment.groups], np.bool_)
        return int(np.count_nonzero(is_message[self._segment.facts.group[self.rows]])) if self.size else 0

    @cached_property
    def speakers(self) -> NDArray[np.uint32]:
        """Return whose words the visible rows are."""
        return np.unique(self._segment.facts.speaker[self.rows])

    @cached_property
    def rows(self) -> NDArray[np.intp]:
        return np.arange(self._segment.size) if self.bits is None else np.flatnonzero(self.bits)

    @cached_property
    def in_lines(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the visible rows line by line, and where each stands."""
        order = self._segment.facts.order
        order = order if self.bits is None else order[self.bits[order]]
        return order, self._segment.standpoints[order]

    @cached_property
    def sight(self) -> Sight | None:
        return None if self.bits is None else Sight(self._segment.vectors, self.bits)

    def seen(self, rows: NDArray[Any]) -> Bits | None:
        """Tell which of some rows are visible; None if all are."""
        return None if self.bits is None else self.bits[rows]


class _Asked(NamedTuple):
    """What a mask depends on beside the segment and what is alive in it."""

    groups: bytes
    items: frozenset[str] | None
    since: int | None
    until: int | None
    without: frozenset[int]


class Masks:
    """The masks of a segment in which these rows are alive: made once for all who see the same."""

    def __init__(self, segment: Segment, alive: Bits) -> None:
        self._segment = segment
        self.alive = alive
        self._kept: dict[_Asked, Mask] = {}

    def of(self, wish: Wish, audiences: Audiences) -> Mask:
        groups = _visible_groups(self._segment, wish, audiences)
        asked = _Asked(np.packbits(groups).tobytes(), wish.items, wish.since, wish.until, wish.without)
        kept = self._kept.get(asked)
        if kept is None:
            kept = Mask(self._segment, self._bits(groups, wish))
            # Whoever else is making one at this moment may lose it, which costs a little time and nothing else.
            if len(self._kept) >= _MASKS_KEPT:
                self._kept = {}
            self._kept[asked] = kept
        return kept

    def without(self, rows: NDArray[np.intp]) -> Masks:
        """Return the masks of the segment when these rows are gone."""
        alive = self.alive.copy()
        alive[rows] = False
        return Masks(self._segment, alive)

    def _bits(self, groups: Bits, wish: Wish) -> Bits:
        facts = self._segment.facts
        bits = self.alive.copy() if groups.all() else self.alive & groups[facts.group]
        if wish.items is not None:
            wanted = np.array(sorted(map(number_of, wish.items)), np.int64)
            bits &= np.isin(facts.items, wanted)[facts.item]
        if wish.since is not None:
            bits &= facts.moment >= wish.since
        if wish.until is not None:
            bits &= facts.moment < wish.until
        if wish.without:
            bits[self._segment.find(np.array(sorted(wish.without), np.int64))] = False
        return bits


def _visible_groups(segment: Segment, wish: Wish, audiences: Audiences) -> Bits:
    visible = np.zeros(len(segment.groups), np.bool_)
    judged: dict[str, bool] = {"": True}
    for code, group in _groups_in(segment, wish.places):
        if wish.sources and group.source not in wish.sources:
            continue
        if group.scope not in judged:
            judged[group.scope] = audiences.matches(_patterns(group.scope))
        visible[code] = judged[group.scope]
    return visible


def _groups_in(segment: Segment, places: frozenset[str] | None) -> Iterable[tuple[int, Group]]:
    if places is None:
        return enumerate(segment.groups)
    there = segment.groups_of_place
    return ((code, segment.groups[code]) for place in places for code in there.get(place, ()))
