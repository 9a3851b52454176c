"""View of a collection's snapshot for one caller."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weftline.kernel.thread_pools import SEARCH_THREADS
from weftline.search.model import Columns, NearestRows
from weftline.search.scoring import largest
from weftline.search_index.segment import POSITION_BITS, term_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from weftline.indexing.collections import NearChunk, VectorSearch
    from weftline.search.model import Audiences, CollectionQuery, Floats, Postings, Rows
    from weftline.search_index.snapshot import IndexSnapshot, SegmentView
    from weftline.search_index.visibility_masks import RowMask


_NONE = -1
_INFINITE = np.iinfo(np.int64).max


class _PartPostings(NamedTuple):
    """Rows of a part with a term and their frequencies, visible or not."""

    rows: NDArray[np.uint32]
    counts: NDArray[np.uint8]
    mask: RowMask
    offset: int


class CollectionPostings:
    """Posting list of a term, restricted to visible rows. Long lists are filtered only when needed."""

    def __init__(self, postings: Sequence[_PartPostings]) -> None:
        self._parts = [each for each in postings if len(each.rows)]

    @cached_property
    def size(self) -> int:
        seen = [(each, each.mask.seen(each.rows)) for each in self._parts]
        return sum(len(each.rows) if visible is None else int(np.count_nonzero(visible)) for each, visible in seen)

    def all(self) -> tuple[Rows, Floats]:
        rows, counts = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
        for each in self._parts:
            seen = each.mask.seen(each.rows)
            rows.append(np.add(each.rows if seen is None else each.rows[seen], each.offset, dtype=np.int64))
            counts.append((each.counts if seen is None else each.counts[seen]).astype(np.float32))
        return np.concatenate(rows), np.concatenate(counts)

    def counts(self, rows: Rows) -> Floats:
        found = np.zeros(len(rows), np.float32)
        for each in self._parts:
            target = rows - each.offset
            places = np.searchsorted(each.rows, target.clip(0).astype(np.uint32)).clip(max=len(each.rows) - 1)
            present = each.rows[places] == target
            found[present] = each.counts[places[present]]
        return found


class CollectionView:
    """The visible and requested rows of a collection at one snapshot."""

    asks_database = False

    def __init__(self, collection: str, snapshot: IndexSnapshot, query: CollectionQuery, audiences: Audiences) -> None:
        self.collection = collection
        self.lag = 0
        self._snapshot = snapshot
        self._pins = query.pins
        self._masks = [part.masks.of(query, audiences) for part in snapshot.parts]

    @cached_property
    def size(self) -> int:
        return sum(mask.size for mask in self._masks)

    @cached_property
    def total_rows(self) -> int:
        """Return the number of rows, visible or not. For internal use: it must not be revealed."""
        return self._snapshot.size

    @cached_property
    def total_terms(self) -> int:
        return sum(mask.total_terms for mask in self._masks)

    @cached_property
    def is_conversation(self) -> bool:
        return 2 * sum(mask.messages for mask in self._masks) > self.size

    def postings(self, term: str) -> Postings:
        target = term_hash(term)
        return CollectionPostings(
            [_PartPostings(*part.segment.postings.find(target), mask, offset) for part, mask, offset in self._parts()]
        )

    def lengths(self, rows: Rows) -> Floats:
        return self._column(rows, np.float32, lambda part, local: part.segment.columns.length[local])

    def columns(self, rows: Rows) -> Columns:
        def column(name: str, kind: type) -> NDArray[Any]:
            return self._column(rows, kind, lambda part, local: getattr(part.segment.columns, name)[local])

        return Columns(
            number=column("number", np.int64),
            line=self._lines(rows),
            position=column("position", np.int64),
            speaker=self._speaker(rows),
            timestamp=column("timestamp", np.int64),
            tokens=column("tokens", np.int32),
            importance=column("importance", np.float32),
            prior=self._column(rows, np.float32, lambda part, local: part.segment.prior_of(local)),
            pinned=column("pinned", np.bool_) & self._pins,
        )

    def numbers_of(self, rows: Rows) -> Rows:
        return self._column(rows, np.int64, lambda part, local: part.segment.columns.number[local])

    def numbers(self) -> list[int]:
        """Return the numbers of all visible chunks."""
        found: list[int] = []
        for part, mask, _ in self._parts():
            found += part.segment.columns.number[mask.rows].tolist()
        return found

    def rows_of(self, numbers: NDArray[np.int64]) -> Rows:
        """Return the rows of chunks; -1 for invisible ones."""
        found = np.full(len(numbers), _NONE, np.int64)
        for part, mask, offset in self._parts():
            known = part.segment.columns.number
            if not len(known):
                continue
            rows = np.searchsorted(known, numbers).clip(max=len(known) - 1)
            here = known[rows] == numbers
            if mask.bits is not None:
                here &= mask.bits[rows]
            found[here] = rows[here] + offset
        return found

    def speakers(self) -> Sequence[str]:
        return self._snapshot.speakers

    def present_speakers(self) -> frozenset[str]:
        return frozenset(
            part.segment.speakers[code]
            for part, mask, _ in self._parts()
            for code in np.flatnonzero(mask.by_speaker).tolist()
        )

    def neighbours(self, rows: Rows, offsets: Sequence[int]) -> Rows:
        found = np.empty((len(rows), len(offsets)), np.int64)
        is_whole = self._in_one_part(rows)
        # Nearly all lines are in one part, where neighbours are found by offset; others are searched step by step.
        found[is_whole] = self._by_offset(rows[is_whole], offsets)
        if not is_whole.all():
            found[~is_whole] = self._step_by_step(rows[~is_whole], offsets)
        return found

    def newest(self, limit: int) -> Rows:
        return self._newest_of(((part, mask.rows, offset) for part, mask, offset in self._parts()), limit)

    def pinned(self, limit: int) -> Rows:
        if not self._pins:
            return np.empty(0, np.int64)

        def visible(part: SegmentView, mask: RowMask) -> NDArray[np.intp]:
            rows = part.segment.pinned
            seen = mask.seen(rows)
            return rows if seen is None else rows[seen]

        return self._newest_of(((part, visible(part, mask), offset) for part, mask, offset in self._parts()), limit)

    async def nearest(self, vector: Floats, limit: int) -> NearestRows:
        return await SEARCH_THREADS.run(self.nearest_now, vector, limit)

    async def nearest_each(self, vectors: Sequence[Floats], limit: int) -> Sequence[NearestRows]:
        return [await self.nearest(vector, limit) for vector in vectors]

    async def cosines(self, rows: Rows, queries: Floats) -> Floats:
        return await SEARCH_THREADS.run(self.cosines_now, rows, queries)

    async def vectors(self, rows: Rows, dimensions: int) -> Floats:
        return await SEARCH_THREADS.run(self.vectors_now, rows, dimensions)

    def nearest_now(self, vector: Floats, limit: int) -> NearestRows:
        """Return the nearest rows of each part, then of all."""
        vector = np.asarray(vector, np.float32).reshape(-1)
        found = [
            (part.segment.vectors.nearest(vector, limit, mask.visible_vectors), offset)
            for part, mask, offset in self._parts()
        ]
        rows = np.concatenate([np.empty(0, np.int64), *(near.rows + offset for near, offset in found)])
        cosines = np.concatenate([np.empty(0, np.float32), *(near.cosines for near, _ in found)])
        best = np.lexsort((self.numbers_of(rows), -cosines))[:limit]
        return NearestRows(rows[best], cosines[best])

    def cosines_now(self, rows: Rows, queries: Floats) -> Floats:
        found = np.zeros((len(queries), len(rows)), np.float32)
        for part, chosen, local in self._split(rows):
            part.segment.vectors.copy_cosines(found, chosen, local, queries)
        return found

    def vectors_now(self, rows: Rows, dimensions: int) -> Floats:
        found = np.zeros((len(rows), dimensions), np.float32)
        for part, chosen, local in self._split(rows):
            part.segment.vectors.copy_vectors(found, chosen, local)
        return found

    def _parts(self) -> Iterator[tuple[SegmentView, RowMask, int]]:
        return zip(self._snapshot.parts, self._masks, self._snapshot.offsets.tolist(), strict=False)

    def _split(self, rows: Rows) -> Iterator[tuple[SegmentView, NDArray[np.intp], NDArray[np.intp]]]:
        """Yield for each part which of the rows are in it, and their local row numbers."""
        offsets = self._snapshot.offsets
        owner = np.searchsorted(offsets, rows, side="right") - 1
        for index, part in enumerate(self._snapshot.parts):
            chosen = np.flatnonzero(owner == index)
            if len(chosen):
                yield part, chosen, rows[chosen] - offsets[index]

    def _column(self, rows: Rows, kind: type, get: Callable[[SegmentView, Rows], NDArray[Any]]) -> NDArray[Any]:
        if len(self._snapshot.parts) == 1:
            return get(self._snapshot.parts[0], np.asarray(rows, np.int64)).astype(kind)
        found: NDArray[Any] = np.zeros(len(rows), kind)
        for part, chosen, local in self._split(np.asarray(rows, np.int64)):
            found[chosen] = get(part, local)
        return found

    def _lines(self, rows: Rows) -> NDArray[np.int64]:
        return self._column(
            rows, np.int64, lambda part, local: part.segment.columns.lines[part.segment.columns.line[local]]
        )

    def _speaker(self, rows: Rows) -> NDArray[np.int32]:
        codes = {id(part): code for part, code in zip(self._snapshot.parts, self._snapshot.speaker_codes, strict=True)}
        return self._column(rows, np.int32, lambda part, local: codes[id(part)][part.segment.columns.speaker[local]])

    def _in_one_part(self, rows: Rows) -> NDArray[np.bool_]:
        """Return which rows have their whole line in their own part."""
        if len(self._snapshot.parts) == 1:
            return np.ones(len(rows), np.bool_)
        lines, times = self._lines(rows), np.zeros(len(rows), np.int32)
        for part in self._snapshot.parts:
            known = part.segment.columns.lines
            if len(known):
                times += known[np.searchsorted(known, lines).clip(max=len(known) - 1)] == lines
        in_one: NDArray[np.bool_] = times == 1
        return in_one

    def _by_offset(self, rows: Rows, offsets: Sequence[int]) -> Rows:
        """Return the visible rows at these offsets, for lines in one part."""
        found = np.full((len(rows), len(offsets)), _NONE, np.int64)
        masks = {id(part): (mask, first) for part, mask, first in self._parts()}
        for part, chosen, local in self._split(rows):
            mask, first = masks[id(part)]
            order, standpoints = mask.in_lines
            own = part.segment.line_positions[local]
            places = np.searchsorted(standpoints, own)[:, None] + np.array(offsets)
            inside = (places >= 0) & (places < len(order))
            places = places.clip(0, len(order) - 1)
            inside &= standpoints[places] >> POSITION_BITS == own[:, None] >> POSITION_BITS
            found[chosen] = np.where(inside, order[places].astype(np.int64) + first, _NONE)
        return found

    def _step_by_step(self, rows: Rows, offsets: Sequence[int]) -> Rows:
        """Return the same for lines in several parts."""
        reached = {0: rows}
        for direction in (-1, 1):
            for distance in range(1, max(direction * offset for offset in offsets) + 1):
                before = reached[direction * (distance - 1)]
                reached[direction * distance] = self._next(before, forward=direction > 0)
        return np.stack([reached[offset] for offset in offsets], axis=1)

    def _next(self, rows: Rows, *, forward: bool) -> Rows:
        """Return the next visible row in the line of each row; -1 for none, and for -1."""
        present = np.flatnonzero(rows >= 0)
        lines = self._lines(rows[present])
        positions = self._column(rows[present], np.int64, lambda part, local: part.segment.columns.position[local])
        found = np.full(len(rows), _NONE, np.int64)
        nearest = np.full(len(present), _INFINITE, np.int64)
        for part, mask, offset in self._parts():
            rows_here, distance = _adjacent(part, mask, lines, positions, forward=forward)
            nearer = distance < nearest
            found[present[nearer]] = rows_here[nearer] + offset
            nearest = np.minimum(nearest, distance)
        return found

    def _newest_of(self, chosen: Iterable[tuple[SegmentView, NDArray[np.intp], int]], limit: int) -> Rows:
        """Return the newest of some rows of each part, newest first."""
        found = [np.empty(0, np.int64)]
        for part, rows, offset in chosen:
            if len(rows) > limit:
                rows = _newest_rows(part, rows, limit)  # noqa: PLW2901 - fewer
            found.append(rows + offset)
        return self._newest_first(np.concatenate(found))[:limit]

    def _newest_first(self, rows: Rows) -> Rows:
        timestamps = self._column(rows, np.int64, lambda part, local: part.segment.columns.timestamp[local])
        return rows[np.lexsort((-self.numbers_of(rows), -timestamps))]


def _newest_rows(part: SegmentView, rows: NDArray[np.intp], limit: int) -> NDArray[np.intp]:
    """Return the newest of a part's rows, unordered; of equally new ones those with the highest numbers."""
    columns = part.segment.columns
    return rows[largest(columns.timestamp[rows], limit, lambda equal: -columns.number[rows[equal]])]


def _adjacent(
    part: SegmentView, mask: RowMask, lines: NDArray[np.int64], positions: NDArray[np.int64], *, forward: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a part's visible rows next to these positions, and their distances."""
    order, standpoints = mask.in_lines
    known = part.segment.columns.lines
    if not len(order):
        return np.zeros(len(lines), np.int64), np.full(len(lines), _INFINITE)
    line = np.searchsorted(known, lines).clip(max=len(known) - 1)
    target = line << POSITION_BITS | positions
    index = np.searchsorted(standpoints, target, side="right") if forward else np.searchsorted(standpoints, target) - 1
    inside = (index >= 0) & (index < len(order)) & (known[line] == lines)
    index = index.clip(0, len(order) - 1)
    inside &= standpoints[index] >> POSITION_BITS == line
    return order[index].astype(np.int64), np.where(inside, np.abs(standpoints[index] - target), _INFINITE)


# Collection view with the vectors in the database (pgvector): terms are looked up here, nearest neighbours there.

# Up to this many visible rows are compared exactly; up to the second number if the HNSW scan would exceed the third.
_EXACT_ROWS, _MAX_EXACT_ROWS, _MAX_SCAN = 5_000, 50_000, 1_000
# Invisible rows are filtered out here, so more rows are requested.
_OVERSAMPLING = 1.5
_GROWTH = 4


class PgvectorView(CollectionView):
    """A view whose vectors are in the database."""

    asks_database = True

    def __init__(
        self,
        collection: str,
        snapshot: IndexSnapshot,
        query: CollectionQuery,
        audiences: Audiences,
        search: VectorSearch,
    ) -> None:
        super().__init__(collection, snapshot, query, audiences)
        self._search = search

    async def nearest(self, vector: Floats, limit: int) -> NearestRows:
        encoded = _as_float16(vector)
        requested = round(limit * _OVERSAMPLING * self.total_rows / max(self.size, 1))
        while self.size > (_MAX_EXACT_ROWS if requested > _MAX_SCAN else _EXACT_ROWS):
            found = await self._search.nearest(encoded, requested)
            near = self._visible(found)
            if len(near.rows) >= limit or len(found) < requested:
                return NearestRows(near.rows[:limit], near.cosines[:limit])
            requested *= _GROWTH
        # Few rows are visible, or they are far from the query.
        return self._visible(await self._search.nearest_among(encoded, limit, self.numbers()))

    async def nearest_each(self, vectors: Sequence[Floats], limit: int) -> Sequence[NearestRows]:
        return await asyncio.gather(*(self.nearest(vector, limit) for vector in vectors))

    async def cosines(self, rows: Rows, queries: Floats) -> Floats:
        numbers = self.columns(rows).number.tolist()
        known = await self._search.cosines([_as_float16(query) for query in queries], numbers)
        missing = [0.0] * len(queries)
        return np.array([known.get(number, missing) for number in numbers], np.float32).reshape(-1, len(queries)).T

    async def vectors(self, rows: Rows, dimensions: int) -> Floats:
        numbers = self.columns(rows).number
        packed = await self._search.find(numbers.tolist(), dimensions)
        known = np.array(packed.numbers, np.int64)
        # Rows without a vector get the last one, which is zero.
        vectors = np.zeros((len(known) + 1, dimensions), np.float32)
        vectors[:-1] = np.frombuffer(packed.vectors, "<f2").reshape(-1, dimensions)
        slots = np.searchsorted(known, numbers)
        slots[~np.isin(numbers, known)] = len(known)
        return vectors[slots]

    def _visible(self, found: Sequence[NearChunk]) -> NearestRows:
        """Return the visible ones of these chunks."""
        rows = self.rows_of(np.array([chunk.number for chunk in found], np.int64))
        cosines = np.array([chunk.cosine for chunk in found], np.float32)
        return NearestRows(rows[rows >= 0], cosines[rows >= 0])


def _as_float16(vector: Floats) -> bytes:
    return np.asarray(vector, "<f2").reshape(-1).tobytes()
