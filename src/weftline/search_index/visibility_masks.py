"""Visibility masks: which rows of a segment a caller sees, by ACL, filters and deletions; cached."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from weftline.search_index.quantized_vectors import VisibleVectors
from weftline.search_index.segment import line_hash, name_hash, term_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weftline.search.model import Audiences, CollectionQuery, IncompleteItem
    from weftline.search_index.segment import Segment

    Bits = NDArray[np.bool_]
    Rows = NDArray[np.intp]

# Maximum size of cached masks, with a minimum and maximum number of them.
_MAX_CACHE_BYTES = 32 * 2**20
_MIN_CACHED, _MAX_CACHED = 4, 256
_BYTES_PER_ROW = 16
# Maximum removals for which a mask is derived from an earlier one.
_MAX_REMOVED = 4_096
_patterns = msgspec.json.Decoder(list[str]).decode


class RowMask:
    """Visible rows of a segment; ``bits`` is None if all are visible."""

    def __init__(self, segment: Segment, bits: Bits | None) -> None:
        self._segment = segment
        self.size = segment.size if bits is None else int(np.count_nonzero(bits))
        self.bits: Bits | None = None if self.size == segment.size else bits

    @cached_property
    def total_terms(self) -> int:
        return int(self._segment.columns.length[self._chosen].sum())

    @cached_property
    def messages(self) -> int:
        """Return the number of visible messages."""
        return int(self._segment.is_message[self._segment.columns.group[self._chosen]].sum())

    @cached_property
    def by_speaker(self) -> NDArray[np.intp]:
        """Return the number of visible rows of each speaker."""
        return np.bincount(self._segment.columns.speaker[self._chosen], minlength=len(self._segment.speakers))

    @cached_property
    def rows(self) -> Rows:
        return np.arange(self._segment.size) if self.bits is None else np.flatnonzero(self.bits)

    @cached_property
    def in_lines(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the visible rows sorted by line, and their sort keys."""
        order = self._segment.columns.order
        order = order if self.bits is None else order[self.bits[order]]
        return order, self._segment.line_positions[order]

    @cached_property
    def visible_vectors(self) -> VisibleVectors | None:
        return (
            None if self.bits is None else VisibleVectors(self._segment.vectors, self.bits[self._segment.vectors.rows])
        )

    def seen(self, rows: NDArray[Any]) -> Bits | None:
        """Return which of some rows are visible; None if all are."""
        return None if self.bits is None else self.bits[rows]

    def without(self, rows: Rows) -> RowMask:
        """Return the mask without some rows; statistics are updated, not recomputed."""
        removed = rows if self.bits is None else rows[self.bits[rows]]
        if not len(removed):
            return self
        bits = np.ones(self._segment.size, np.bool_) if self.bits is None else self.bits.copy()
        bits[removed] = False
        rest, computed, facts = RowMask(self._segment, bits), self.__dict__, self._segment.columns
        if "total_terms" in computed:
            rest.total_terms = self.total_terms - int(facts.length[removed].sum())
        if "messages" in computed:
            rest.messages = self.messages - int(self._segment.is_message[facts.group[removed]].sum())
        if "by_speaker" in computed:
            rest.by_speaker = self.by_speaker - np.bincount(facts.speaker[removed], minlength=len(self.by_speaker))
        if "in_lines" in computed:
            rest.in_lines = self._lines_without(removed, bits)
        if computed.get("visible_vectors") is not None:
            rest.visible_vectors = computed["visible_vectors"].without(self._segment.vectors.slot[removed])
        return rest

    @property
    def _chosen(self) -> slice | Bits:
        return slice(None) if self.bits is None else self.bits

    def _lines_without(self, removed: Rows, bits: Bits) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        order, standpoints = self.in_lines
        places = np.searchsorted(standpoints, self._segment.line_positions[removed])
        if not np.array_equal(order[places], removed):
            # Two rows have the same position, and one of them was removed.
            remaining = bits[order]
            return order[remaining], standpoints[remaining]
        return np.delete(order, places), np.delete(standpoints, places)


class _MaskKey(NamedTuple):
    """Cache key of a mask."""

    groups: bytes
    items: frozenset[str] | None
    unfinished: frozenset[IncompleteItem]


class Masks:
    """Masks of a segment with these live rows, cached for all callers with the same visibility."""

    def __init__(self, segment: Segment, live: Bits) -> None:
        self._segment = segment
        self.live = live
        self._max_cached = int(
            np.clip(_MAX_CACHE_BYTES // (_BYTES_PER_ROW * segment.size + 1), _MIN_CACHED, _MAX_CACHED)
        )
        self._cached: OrderedDict[_MaskKey, RowMask] = OrderedDict()
        # Masks from before some rows were removed, with these rows.
        self._earlier: dict[_MaskKey, tuple[RowMask, Rows]] = {}
        self._lock = Lock()

    @property
    def bytes(self) -> int:
        """Return the approximate memory size of the masks."""
        return len(self.live) + _BYTES_PER_ROW * self._segment.size * (len(self._cached) + len(self._earlier))

    def of(self, query: CollectionQuery, audiences: Audiences) -> RowMask:
        groups = _visible_groups(self._segment, query, audiences)
        unfinished = frozenset(each for each in query.unfinished if self._segment.has_item(name_hash(each.document_id)))
        key = _MaskKey(np.packbits(groups).tobytes(), query.items, unfinished)
        mask = self._find(key)
        if mask is None:
            mask = RowMask(self._segment, self._bits(groups, key))
            self._store(key, mask)
        return self._narrowed(mask, query)

    def without(self, rows: Rows) -> Masks:
        """Return the masks of the segment without these rows."""
        live = self.live.copy()
        live[rows] = False
        rest = Masks(self._segment, live)
        with self._lock:
            earlier = {key: (mask, np.concatenate([removed, rows])) for key, (mask, removed) in self._earlier.items()}
            earlier |= {key: (mask, rows) for key, mask in self._cached.items()}
        rest._earlier = {key: each for key, each in earlier.items() if len(each[1]) <= _MAX_REMOVED}
        return rest

    def _find(self, key: _MaskKey) -> RowMask | None:
        with self._lock:
            if key in self._cached:
                self._cached.move_to_end(key)
                return self._cached[key]
            earlier = self._earlier.pop(key, None)
        if earlier is None:
            return None
        mask, removed = earlier
        rest = mask.without(removed)
        self._store(key, rest)
        return rest

    def _store(self, key: _MaskKey, mask: RowMask) -> None:
        with self._lock:
            self._cached[key] = mask
            while len(self._cached) > self._max_cached:
                self._cached.popitem(last=False)

    def _bits(self, groups: Bits, key: _MaskKey) -> Bits | None:
        facts = self._segment.columns
        bits = self.live if groups.all() else self.live & groups[facts.group]
        if key.items is not None:
            hashes = np.array(sorted(map(name_hash, key.items)), np.int64)
            bits = bits & np.isin(facts.items, hashes)[facts.item]
        for each in key.unfinished:
            bits = bits & ~self._outdated_rows(each)
        return bits

    def _outdated_rows(self, document: IncompleteItem) -> Bits:
        """Return the rows of a document's versions other than the indexed one."""
        facts = self._segment.columns
        found = line_hash("document", document.domain, document.document_id, document.found_version)
        hidden: Bits = facts.items[facts.item] == name_hash(document.document_id)
        hidden &= facts.lines[facts.line] != found
        return hidden

    def _rows_with(self, term: str) -> Bits:
        found = np.zeros(self._segment.size, np.bool_)
        found[self._segment.postings.find(term_hash(term))[0]] = True
        return found

    def _narrowed(self, mask: RowMask, query: CollectionQuery) -> RowMask:
        """Apply filters that are rarely shared: such masks are not cached."""
        timestamp, bits = self._segment.columns.timestamp, mask.bits
        if query.since is not None:
            bits = _both(bits, timestamp >= query.since)
        if query.until is not None:
            bits = _both(bits, timestamp < query.until)
        for term in query.entities:
            bits = _both(bits, self._rows_with(term))
        narrowed = mask if bits is mask.bits else RowMask(self._segment, bits)
        if query.without:
            return narrowed.without(self._segment.find(np.array(sorted(query.without), np.int64)))
        return narrowed


def _both(bits: Bits | None, more: Bits) -> Bits:
    return more if bits is None else bits & more


def _visible_groups(segment: Segment, query: CollectionQuery, audiences: Audiences) -> Bits:
    """Return the groups in the requested places and sources that the caller may read."""
    readable = np.array([not scope or audiences.matches(_patterns(scope)) for scope in segment.scopes.names], np.bool_)
    visible: Bits = readable[segment.scopes.codes]
    if query.sources:
        requested = np.array([source in query.sources for source in segment.sources.names], np.bool_)
        visible &= requested[segment.sources.codes]
    if query.places is not None:
        inside = np.zeros(len(segment.groups), np.bool_)
        inside[[code for place in query.places for code in segment.groups_of_place.get(place, ())]] = True
        visible &= inside
    return visible
