"""Which rows of a segment a caller sees: by who may see them, what was asked for, and what is still there."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from weft.search_index.quantized_vectors import VisibleVectors
from weft.search_index.term_hash import line_of, number_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.capabilities.search.index_view import Audiences, CollectionQuery, IncompleteItem
    from weft.search_index.segment import Segment

    Bits = NDArray[np.bool_]
    Rows = NDArray[np.intp]

# Masks are kept while they take so many bytes, and always a few.
_BYTES_KEPT = 32 * 2**20
_FEWEST_KEPT, _MOST_KEPT = 4, 256
_BYTES_A_ROW = 16
# A mask that differs in no more rows than these from another is made from that one.
_FEW_GONE = 4_096
_patterns = msgspec.json.Decoder(list[str]).decode


class RowMask:
    """The visible rows of a segment; ``bits`` is None where these are all."""

    def __init__(self, segment: Segment, bits: Bits | None) -> None:
        self._segment = segment
        self.size = segment.size if bits is None else int(np.count_nonzero(bits))
        self.bits: Bits | None = None if self.size == segment.size else bits

    @cached_property
    def total_terms(self) -> int:
        return int(self._segment.facts.length[self._chosen].sum())

    @cached_property
    def messages(self) -> int:
        """Return how many of the visible rows are messages."""
        return int(self._segment.is_message[self._segment.facts.group[self._chosen]].sum())

    @cached_property
    def by_speaker(self) -> NDArray[np.intp]:
        """Return how many of the visible rows are whose words."""
        return np.bincount(self._segment.facts.speaker[self._chosen], minlength=len(self._segment.speakers))

    @cached_property
    def rows(self) -> Rows:
        return np.arange(self._segment.size) if self.bits is None else np.flatnonzero(self.bits)

    @cached_property
    def in_lines(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the visible rows line by line, and where each stands."""
        order = self._segment.facts.order
        order = order if self.bits is None else order[self.bits[order]]
        return order, self._segment.standpoints[order]

    @cached_property
    def sight(self) -> VisibleVectors | None:
        return (
            None if self.bits is None else VisibleVectors(self._segment.vectors, self.bits[self._segment.vectors.rows])
        )

    def seen(self, rows: NDArray[Any]) -> Bits | None:
        """Tell which of some rows are visible; None if all are."""
        return None if self.bits is None else self.bits[rows]

    def without(self, rows: Rows) -> RowMask:
        """Return the mask without some rows. What is known of this one is not found out anew."""
        gone = rows if self.bits is None else rows[self.bits[rows]]
        if not len(gone):
            return self
        bits = np.ones(self._segment.size, np.bool_) if self.bits is None else self.bits.copy()
        bits[gone] = False
        rest, known, facts = RowMask(self._segment, bits), self.__dict__, self._segment.facts
        if "total_terms" in known:
            rest.total_terms = self.total_terms - int(facts.length[gone].sum())
        if "messages" in known:
            rest.messages = self.messages - int(self._segment.is_message[facts.group[gone]].sum())
        if "by_speaker" in known:
            rest.by_speaker = self.by_speaker - np.bincount(facts.speaker[gone], minlength=len(self.by_speaker))
        if "in_lines" in known:
            rest.in_lines = self._lines_without(gone, bits)
        if known.get("sight") is not None:
            rest.sight = known["sight"].without(self._segment.vectors.slot[gone])
        return rest

    @property
    def _chosen(self) -> slice | Bits:
        return slice(None) if self.bits is None else self.bits

    def _lines_without(self, gone: Rows, bits: Bits) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        order, standpoints = self.in_lines
        places = np.searchsorted(standpoints, self._segment.standpoints[gone])
        if not np.array_equal(order[places], gone):
            # Two rows stand in the same place, one of them no longer.
            left = bits[order]
            return order[left], standpoints[left]
        return np.delete(order, places), np.delete(standpoints, places)


class _Asked(NamedTuple):
    """What a mask depends on beside the segment and what is alive in it."""

    groups: bytes
    items: frozenset[str] | None
    unfinished: frozenset[IncompleteItem]


class Masks:
    """The masks of a segment in which these rows are alive: made once for all who see the same."""

    def __init__(self, segment: Segment, alive: Bits) -> None:
        self._segment = segment
        self.alive = alive
        self._most = int(np.clip(_BYTES_KEPT // (_BYTES_A_ROW * segment.size + 1), _FEWEST_KEPT, _MOST_KEPT))
        self._kept: OrderedDict[_Asked, RowMask] = OrderedDict()
        # Masks from when more was alive, and what has gone since.
        self._earlier: dict[_Asked, tuple[RowMask, Rows]] = {}
        self._lock = Lock()

    @property
    def bytes(self) -> int:
        """Return about how much memory its masks take."""
        return len(self.alive) + _BYTES_A_ROW * self._segment.size * (len(self._kept) + len(self._earlier))

    def of(self, wish: CollectionQuery, audiences: Audiences) -> RowMask:
        groups = _visible_groups(self._segment, wish, audiences)
        unfinished = frozenset(each for each in wish.unfinished if self._segment.holds(number_of(each.document_id)))
        asked = _Asked(np.packbits(groups).tobytes(), wish.items, unfinished)
        mask = self._known(asked)
        if mask is None:
            mask = RowMask(self._segment, self._bits(groups, asked))
            self._keep(asked, mask)
        return self._narrowed(mask, wish)

    def without(self, rows: Rows) -> Masks:
        """Return the masks of the segment when these rows are gone."""
        alive = self.alive.copy()
        alive[rows] = False
        rest = Masks(self._segment, alive)
        with self._lock:
            earlier = {asked: (mask, np.concatenate([gone, rows])) for asked, (mask, gone) in self._earlier.items()}
            earlier |= {asked: (mask, rows) for asked, mask in self._kept.items()}
        rest._earlier = {asked: each for asked, each in earlier.items() if len(each[1]) <= _FEW_GONE}
        return rest

    def _known(self, asked: _Asked) -> RowMask | None:
        with self._lock:
            if asked in self._kept:
                self._kept.move_to_end(asked)
                return self._kept[asked]
            earlier = self._earlier.pop(asked, None)
        if earlier is None:
            return None
        mask, gone = earlier
        rest = mask.without(gone)
        self._keep(asked, rest)
        return rest

    def _keep(self, asked: _Asked, mask: RowMask) -> None:
        with self._lock:
            self._kept[asked] = mask
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def _bits(self, groups: Bits, asked: _Asked) -> Bits | None:
        facts = self._segment.facts
        bits = self.alive if groups.all() else self.alive & groups[facts.group]
        if asked.items is not None:
            wanted = np.array(sorted(map(number_of, asked.items)), np.int64)
            bits = bits & np.isin(facts.items, wanted)[facts.item]
        for each in asked.unfinished:
            bits = bits & ~self._never_finished(each)
        return bits

    def _never_finished(self, document: IncompleteItem) -> Bits:
        """Tell which rows belong to versions of a document that are not to be found."""
        facts = self._segment.facts
        found = line_of("document", document.domain, document.document_id, document.found_version)
        hidden: Bits = facts.items[facts.item] == number_of(document.document_id)
        hidden &= facts.lines[facts.line] != found
        return hidden

    def _narrowed(self, mask: RowMask, wish: CollectionQuery) -> RowMask:
        """Leave out what hardly anyone else will leave out: such masks are not kept."""
        timestamp, bits = self._segment.facts.timestamp, mask.bits
        if wish.since is not None:
            bits = _both(bits, timestamp >= wish.since)
        if wish.until is not None:
            bits = _both(bits, timestamp < wish.until)
        narrowed = mask if bits is mask.bits else RowMask(self._segment, bits)
        if wish.without:
            return narrowed.without(self._segment.find(np.array(sorted(wish.without), np.int64)))
        return narrowed


def _both(bits: Bits | None, more: Bits) -> Bits:
    return more if bits is None else bits & more


def _visible_groups(segment: Segment, wish: CollectionQuery, audiences: Audiences) -> Bits:
    """Tell which groups are in the places and of the sources that are meant, and show themselves to who asks."""
    shown = np.array([not scope or audiences.matches(_patterns(scope)) for scope in segment.scopes.names], np.bool_)
    visible: Bits = shown[segment.scopes.codes]
    if wish.sources:
        meant = np.array([source in wish.sources for source in segment.sources.names], np.bool_)
        visible &= meant[segment.sources.codes]
    if wish.places is not None:
        inside = np.zeros(len(segment.groups), np.bool_)
        inside[[code for place in wish.places for code in segment.groups_of_place.get(place, ())]] = True
        visible &= inside
    return visible
