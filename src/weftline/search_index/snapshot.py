"""Immutable snapshot of a collection's index; readers take no lock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from weftline.search_index.segment_builder import build_segment
from weftline.search_index.segment_merge import merge_segments
from weftline.search_index.visibility_masks import Masks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weftline.indexing.collections import IndexedChunk
    from weftline.search_index.segment import Segment
    from weftline.search_index.segment_file import SegmentFile


@dataclass(frozen=True)
class SegmentView:
    """A segment with its live rows. ``file`` is None for a segment in memory."""

    segment: Segment
    masks: Masks
    file: SegmentFile | None = None

    @cached_property
    def live_rows(self) -> int:
        """Return the number of live rows."""
        return int(np.count_nonzero(self.masks.live))

    @property
    def bytes_in_memory(self) -> int:
        return self.segment.bytes if self.file is None else self.file.bytes_read

    def is_whole(self) -> bool:
        return self.file is None or self.file.is_whole()

    def without(self, numbers: NDArray[np.int64]) -> SegmentView:
        rows = self.segment.find(numbers)
        rows = rows[self.masks.live[rows]]
        return self if not len(rows) else SegmentView(self.segment, self.masks.without(rows), self.file)


@dataclass(frozen=True)
class IndexSnapshot:
    """State of a collection's index after the change with this number."""

    number: int = 0
    parts: tuple[SegmentView, ...] = ()

    def advanced_to(self, number: int, chunks: Sequence[IndexedChunk], removed: Sequence[int]) -> IndexSnapshot:
        """Return the snapshot after further additions and removals.

        A chunk that exists already is replaced.
        """
        parts = self.parts
        replaced = sorted({*removed, *(chunk.number for chunk in chunks)} if parts else ())
        if replaced:
            numbers = np.array(replaced, np.int64)
            parts = tuple(part.without(numbers) for part in parts)
        if chunks:
            parts = _with_part(parts, intact_view(build_segment(chunks)))
        return IndexSnapshot(number, parts)

    @property
    def in_memory(self) -> int:
        """Return the number of rows that are not in a file."""
        return sum(part.segment.size for part in self.parts if part.file is None)

    @property
    def live_rows(self) -> int:
        return sum(part.live_rows for part in self.parts)

    @property
    def size(self) -> int:
        """Return the number of rows, visible or not."""
        return int(self.offsets[-1])

    @cached_property
    def bytes_in_memory(self) -> int:
        return sum(part.bytes_in_memory for part in self.parts)

    @property
    def files(self) -> list[SegmentFile]:
        return [part.file for part in self.parts if part.file is not None]

    def intact(self) -> IndexSnapshot:
        """Return a readable snapshot: without truncated files, and then with number 0."""
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
        """Return, for each part, the codes of its speakers among all speakers."""
        known = {name: code for code, name in enumerate(self.speakers)}
        return [np.array([known[name] for name in part.segment.speakers], np.int32) for part in self.parts]


def intact_view(segment: Segment, file: SegmentFile | None = None) -> SegmentView:
    """Return a view of a segment in which all rows are live."""
    return SegmentView(segment, Masks(segment, np.ones(segment.size, np.bool_)), file)


def merge_live_rows(parts: Sequence[SegmentView], *, cluster: bool = True) -> Segment:
    """Return one segment of all live rows."""
    return merge_segments([part.segment for part in parts], [part.masks.live for part in parts], cluster=cluster)


def _with_part(parts: tuple[SegmentView, ...], new: SegmentView) -> tuple[SegmentView, ...]:
    """Add a part and merge it with previous ones that are not much larger, so that few are in memory."""
    kept = list(parts)
    to_merge = [new]
    size = new.segment.size
    while kept and kept[-1].file is None and kept[-1].segment.size <= 2 * size:
        to_merge.insert(0, kept.pop())
        size += to_merge[0].segment.size
    return (*kept, new if len(to_merge) == 1 else intact_view(merge_live_rows(to_merge, cluster=False)))
