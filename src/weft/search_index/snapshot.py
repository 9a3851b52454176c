"""Immutable snapshot of a collection's index; readers take no lock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from weft.search_index.segment_builder import segment_of
from weft.search_index.segment_merge import merged
from weft.search_index.visibility_masks import Masks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weft.capabilities.indexing.collections.model import IndexedChunk
    from weft.search_index.segment import Segment
    from weft.search_index.segment_file import SegmentFile


@dataclass(frozen=True)
class SegmentView:
    """A segment, and which of its rows are still there. ``file`` is what it lies in; None for memory."""

    segment: Segment
    masks: Masks
    file: SegmentFile | None = None

    @cached_property
    def alive(self) -> int:
        """Return how many rows are still there."""
        return int(np.count_nonzero(self.masks.alive))

    @property
    def bytes_in_memory(self) -> int:
        return self.segment.bytes if self.file is None else self.file.bytes_read

    def is_whole(self) -> bool:
        return self.file is None or self.file.is_whole()

    def without(self, numbers: NDArray[np.int64]) -> SegmentView:
        rows = self.segment.find(numbers)
        rows = rows[self.masks.alive[rows]]
        return self if not len(rows) else SegmentView(self.segment, self.masks.without(rows), self.file)


@dataclass(frozen=True)
class IndexSnapshot:
    """Everything that happened to a collection up to a number."""

    number: int = 0
    parts: tuple[SegmentView, ...] = ()

    def then(self, number: int, chunks: Sequence[IndexedChunk], removed: Sequence[int]) -> IndexSnapshot:
        """Return the snapshot of a later number, by what came and what went in between.

        A chunk that is here already takes the place of what was known of it.
        """
        parts = self.parts
        gone = sorted({*removed, *(chunk.number for chunk in chunks)} if parts else ())
        if gone:
            numbers = np.array(gone, np.int64)
            parts = tuple(part.without(numbers) for part in parts)
        if chunks:
            parts = _few(parts, whole(segment_of(chunks)))
        return IndexSnapshot(number, parts)

    @property
    def in_memory(self) -> int:
        """Return how many rows lie in no file."""
        return sum(part.segment.size for part in self.parts if part.file is None)

    @property
    def size(self) -> int:
        """Return how many rows there are, whoever may see them."""
        return int(self.offsets[-1])

    @cached_property
    def bytes_in_memory(self) -> int:
        return sum(part.bytes_in_memory for part in self.parts)

    @property
    def files(self) -> list[SegmentFile]:
        return [part.file for part in self.parts if part.file is not None]

    def intact(self) -> IndexSnapshot:
        """Return what can be looked at: with files that were cut short left out, it claims to know of nothing."""
        if all(part.is_whole() for part in self.parts):
            return self
        return IndexSnapshot(0, tuple(part for part in self.parts if part.is_whole()))

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Return the first row of each part, and the end."""
        return np.cumsum([0, *(part.segment.size for part in self.parts)], dtype=np.int64)

    @cached_property
    def speakers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.parts for name in part.segment.speakers))

    @cached_property
    def speaker_codes(self) -> list[NDArray[np.int32]]:
        """Return for each part what its numbers of speakers are among all speakers."""
        known = {name: code for code, name in enumerate(self.speakers)}
        return [np.array([known[name] for name in part.segment.speakers], np.int32) for part in self.parts]


def whole(segment: Segment, file: SegmentFile | None = None) -> SegmentView:
    """Return a part in which everything is still there."""
    return SegmentView(segment, Masks(segment, np.ones(segment.size, np.bool_)), file)


def joined(parts: Sequence[SegmentView], *, to_stay: bool = True) -> Segment:
    """Return one segment of all that is still there."""
    return merged([part.segment for part in parts], [part.masks.alive for part in parts], to_stay=to_stay)


def _few(parts: tuple[SegmentView, ...], new: SegmentView) -> tuple[SegmentView, ...]:
    """Add a part, joining it with those before that are not much larger, so that there are never many in memory."""
    kept = list(parts)
    together = [new]
    size = new.segment.size
    while kept and kept[-1].file is None and kept[-1].segment.size <= 2 * size:
        together.insert(0, kept.pop())
        size += together[0].segment.size
    return (*kept, new if len(together) == 1 else whole(joined(together, to_stay=False)))
