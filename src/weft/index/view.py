"""A shelf's copy as one caller may see it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.capabilities.retrieval.view import Columns, Near, Postings
from weft.index.names import POSITION_BITS, number_of
from weft.kernel.threads import SEARCHING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from weft.capabilities.retrieval.view import Audiences, Floats, Rows, Wish
    from weft.index.masks import Mask
    from weft.index.shelf import Moment, Part

_NOWHERE = -1
_BEYOND = np.iinfo(np.int64).max


class ShelfView:
    """One shelf at one moment, as far as its caller may see it and asked for it."""

    def __init__(self, shelf: str, moment: Moment, wish: Wish, audiences: Audiences) -> None:
        self.shelf = shelf
        self.behind = 0
        self._moment = moment
        self._masks = [part.masks.of(wish, audiences) for part in moment.parts]

    @cached_property
    def size(self) -> int:
        return sum(mask.size for mask in self._masks)

    @cached_property
    def everything(self) -> int:
        """Return how many rows there are, visible or not: to be used, never to be told."""
        return self._moment.size

    @cached_property
    def total_terms(self) -> int:
        return sum(mask.total_terms for mask in self._masks)

    @cached_property
    def is_conversation(self) -> bool:
        return 2 * sum(mask.messages for mask in self._masks) > self.size

    def postings(self, term: str) -> Postings:
        wanted = number_of(term)
        rows: list[Rows] = []
        counts: list[Floats] = []
        for part, mask, offset in self._parts():
            held, often = part.segment.words.postings(wanted)
            seen = mask.seen(held) if len(held) else None
            rows.append(np.add(held if seen is None else held[seen], offset, dtype=np.int64))
            counts.append((often if seen is None else often[seen]).astype(np.float32))
        if len(rows) == 1:
            # Of a term that most rows hold, one copy more is milliseconds.
            return Postings(rows[0], counts[0])
        nothing = Postings(np.empty(0, np.int64), np.empty(0, np.float32))
        return Postings(np.concatenate([nothing.rows, *rows]), np.concatenate([nothing.counts, *counts]))

    def lengths(self, rows: Rows) -> Floats:
        return self._column(rows, np.float32, lambda part, local: part.segment.facts.length[local])

    def columns(self, rows: Rows) -> Columns:
        def column(name: str, kind: type) -> NDArray[Any]:
            return self._column(rows, kind, lambda part, local: getattr(part.segment.facts, name)[local])

        return Columns(
            number=column("number", np.int64),
            line=self._lines(rows),
            position=column("position", np.int64),
            speaker=self._speaker(rows),
            moment=column("moment", np.int64),
            tokens=column("tokens", np.int32),
            importance=column("importance", np.float32),
            pinned=column("pinned", np.bool_),
        )

    def numbers(self) -> list[int]:
        """Return the numbers of all chunks that are visible."""
        found: list[int] = []
        for part, mask, _ in self._parts():
            found += part.segment.facts.number[mask.rows].tolist()
        return found

    def rows_of(self, numbers: NDArray[np.int64]) -> Rows:
        """Return the rows of chunks; -1 for those that are not visible."""
        found = np.full(len(numbers), _NOWHERE, np.int64)
        for part, mask, offset in self._parts():
            known = part.segment.facts.number
            if not len(known):
                continue
            rows = np.searchsorted(known, numbers).clip(max=len(known) - 1)
            here = known[rows] == numbers
            if mask.bits is not None:
                here &= mask.bits[rows]
            found[here] = rows[here] + offset
        return found

    def speakers(self) -> Sequence[str]:
        return self._moment.speakers

    def present_speakers(self) -> frozenset[str]:
        return frozenset(
            part.segment.speakers[code] for part, mask, _ in self._parts() for code in mask.speakers.tolist()
        )

    def neighbours(self, rows: Rows, offset: int) -> Rows:
        rows = np.asarray(rows, np.int64)
        found = np.full(len(rows), _NOWHERE, np.int64)
        there = np.flatnonzero(rows >= 0)
        is_whole = self._in_one_part(rows[there])
        # A line that lies in one part, as nearly all do, is leapt along; others are gone step by step.
        found[there[is_whole]] = self._leap(rows[there[is_whole]], offset)
        beside = rows[there[~is_whole]]
        for _ in range(abs(offset) if len(beside) else 0):
            beside = self._next(beside, forward=offset > 0)
        found[there[~is_whole]] = beside
        return found

    def newest(self, limit: int) -> Rows:
        return self._newest_of(((part, mask.rows, offset) for part, mask, offset in self._parts()), limit)

    def pinned(self, limit: int) -> Rows:
        def visible(part: Part, mask: Mask) -> NDArray[np.intp]:
            rows = part.segment.pinned
            seen = mask.seen(rows)
            return rows if seen is None else rows[seen]

        return self._newest_of(((part, visible(part, mask), offset) for part, mask, offset in self._parts()), limit)

    async def nearest(self, vector: Floats, limit: int) -> Near:
        return await SEARCHING.run(self.nearest_now, vector, limit)

    async def vectors(self, rows: Rows) -> Floats:
        return await SEARCHING.run(self.vectors_now, rows)

    def nearest_now(self, vector: Floats, limit: int) -> Near:
        """Return the nearest rows: of every part, then of all."""
        vector = np.asarray(vector, np.float32).reshape(-1)
        found = [
            (part.segment.vectors.nearest(vector, limit, mask.sight), offset) for part, mask, offset in self._parts()
        ]
        rows = np.concatenate([np.empty(0, np.int64), *(near.rows + offset for near, offset in found)])
        cosines = np.concatenate([np.empty(0, np.float32), *(near.cosines for near, _ in found)])
        best = np.argsort(-cosines, kind="stable")[:limit]
        return Near(rows[best], cosines[best])

    def vectors_now(self, rows: Rows) -> Floats:
        sizes = [part.segment.vectors.dimensions for part in self._moment.parts]
        dimensions = max(sizes, default=0)
        found = np.zeros((len(rows), dimensions), np.float32)
        for part, chosen, local in self._split(rows):
            part.segment.vectors.put_into(found, chosen, local)
        return found

    def _parts(self) -> Iterator[tuple[Part, Mask, int]]:
        return zip(self._moment.parts, self._masks, self._moment.offsets.tolist(), strict=False)

    def _split(self, rows: Rows) -> Iterator[tuple[Part, NDArray[np.intp], NDArray[np.intp]]]:
        """Yield for each part which of the rows lie in it, and where."""
        offsets = self._moment.offsets
        owner = np.searchsorted(offsets, rows, side="right") - 1
        for place, part in enumerate(self._moment.parts):
            chosen = np.flatnonzero(owner == place)
            if len(chosen):
                yield part, chosen, rows[chosen] - offsets[place]

    def _column(self, rows: Rows, kind: type, get: Callable[[Part, Rows], NDArray[Any]]) -> NDArray[Any]:
        if len(self._moment.parts) == 1:
            return get(self._moment.parts[0], np.asarray(rows, np.int64)).astype(kind)
        found: NDArray[Any] = np.zeros(len(rows), kind)
        for part, chosen, local in self._split(np.asarray(rows, np.int64)):
            found[chosen] = get(part, local)
        return found

    def _lines(self, rows: Rows) -> NDArray[np.int64]:
        return self._column(
            rows, np.int64, lambda part, local: part.segment.facts.lines[part.segment.facts.line[local]]
        )

    def _speaker(self, rows: Rows) -> NDArray[np.int32]:
        codes = {id(part): code for part, code in zip(self._moment.parts, self._moment.speaker_codes, strict=True)}
        return self._column(rows, np.int32, lambda part, local: codes[id(part)][part.segment.facts.speaker[local]])

    def _in_one_part(self, rows: Rows) -> NDArray[np.bool_]:
        """Tell which rows have all of their line in the part that they are in themselves."""
        if len(self._moment.parts) == 1:
            return np.ones(len(rows), np.bool_)
        lines, times = self._lines(rows), np.zeros(len(rows), np.int32)
        for part in self._moment.parts:
            known = part.segment.facts.lines
            if len(known):
                times += known[np.searchsorted(known, lines).clip(max=len(known) - 1)] == lines
        in_one: NDArray[np.bool_] = times == 1
        return in_one

    def _leap(self, rows: Rows, offset: int) -> Rows:
        """Return the visible rows so far behind these in their lines, each of which lies in one part."""
        found = np.full(len(rows), _NOWHERE, np.int64)
        masks = {id(part): (mask, first) for part, mask, first in self._parts()}
        for part, chosen, local in self._split(rows):
            mask, first = masks[id(part)]
            order, standpoints = mask.in_lines
            stands = part.segment.standpoints[local]
            place = np.searchsorted(standpoints, stands) + offset
            inside = (place >= 0) & (place < len(order))
            place = place.clip(0, len(order) - 1)
            inside &= standpoints[place] >> POSITION_BITS == stands >> POSITION_BITS
            found[chosen[inside]] = order[place[inside]].astype(np.int64) + first
        return found

    def _next(self, rows: Rows, *, forward: bool) -> Rows:
        """Return for each row the visible one next to it in its line; -1 for none, and for -1."""
        there = np.flatnonzero(rows >= 0)
        lines = self._lines(rows[there])
        positions = self._column(rows[there], np.int64, lambda part, local: part.segment.facts.position[local])
        found = np.full(len(rows), _NOWHERE, np.int64)
        nearest = np.full(len(there), _BEYOND, np.int64)
        for part, mask, offset in self._parts():
            rows_here, distance = _beside(part, mask, lines, positions, forward=forward)
            nearer = distance < nearest
            found[there[nearer]] = rows_here[nearer] + offset
            nearest = np.minimum(nearest, distance)
        return found

    def _newest_of(self, chosen: Iterable[tuple[Part, NDArray[np.intp], int]], limit: int) -> Rows:
        """Return the newest of some rows of each part, newest first."""
        found = [np.empty(0, np.int64)]
        for part, rows, offset in chosen:
            if len(rows) > limit:
                rows = rows[np.argpartition(-part.segment.facts.moment[rows], limit)[:limit]]  # noqa: PLW2901 - fewer
            found.append(rows + offset)
        return self._latest_first(np.concatenate(found))[:limit]

    def _latest_first(self, rows: Rows) -> Rows:
        moments = self._column(rows, np.int64, lambda part, local: part.segment.facts.moment[local])
        numbers = self._column(rows, np.int64, lambda part, local: part.segment.facts.number[local])
        return rows[np.lexsort((-numbers, -moments))]


def _beside(
    part: Part, mask: Mask, lines: NDArray[np.int64], positions: NDArray[np.int64], *, forward: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a part's visible rows next to these standpoints, and how far away each is."""
    order, standpoints = mask.in_lines
    known = part.segment.facts.lines
    if not len(order):
        return np.zeros(len(lines), np.int64), np.full(len(lines), _BEYOND)
    line = np.searchsorted(known, lines).clip(max=len(known) - 1)
    wanted = line << POSITION_BITS | positions
    place = np.searchsorted(standpoints, wanted, side="right") if forward else np.searchsorted(standpoints, wanted) - 1
    inside = (place >= 0) & (place < len(order)) & (known[line] == lines)
    place = place.clip(0, len(order) - 1)
    inside &= standpoints[place] >> POSITION_BITS == line
    return order[place].astype(np.int64), np.where(inside, np.abs(standpoints[place] - wanted), _BEYOND)
