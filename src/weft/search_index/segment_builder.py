"""Making a segment of chunks."""

from __future__ import annotations

from array import array
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from weft.search_index.ivf import arranged, unclustered
from weft.search_index.quantized_vectors import Vectors, no_vectors, quantised, scales
from weft.search_index.segment import Facts, Segment, VisibilityGroup, Words, standpoints
from weft.search_index.term_hash import number_of, number_of_term, standpoint_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from numpy.typing import NDArray

    from weft.capabilities.indexing.collections.model import IndexedChunk

    Codes = NDArray[np.uint32]

H = TypeVar("H", bound="Hashable")
_MOST_COUNTED = 255
_ROW_BITS = 32


def segment_of(chunks: Sequence[IndexedChunk]) -> Segment:
    """Make a segment of chunks that are in the order of their numbers."""
    words, length = _words(chunks)
    group, groups = _coded(VisibilityGroup(chunk.source, chunk.place, chunk.scope) for chunk in chunks)
    speaker, speakers = _coded(chunk.speaker for chunk in chunks)
    stands = [standpoint_of(chunk) for chunk in chunks]
    line, lines = _numbered([stand.line for stand in stands])
    position = np.array([stand.position for stand in stands], np.int64)
    item, items = _numbered([number_of(chunk.item) for chunk in chunks])
    facts = Facts(
        number=np.array([chunk.number for chunk in chunks], np.int64),
        group=group,
        line=line,
        item=item,
        position=position,
        speaker=speaker,
        timestamp=np.array([chunk.timestamp for chunk in chunks], np.int64),
        tokens=np.array([chunk.tokens for chunk in chunks], np.int32),
        importance=np.array([chunk.importance for chunk in chunks], np.float32),
        pinned=np.array([chunk.pinned for chunk in chunks], np.bool_),
        length=length,
        order=line_by_line(line, position),
        lines=lines,
        items=items,
    )
    return Segment(facts, words, _vectors(chunks), groups, speakers)


def _words(chunks: Sequence[IndexedChunk]) -> tuple[Words, NDArray[np.int32]]:
    said = [chunk.terms.split() for chunk in chunks]
    length = np.array([len(terms) for terms in said], np.int32)
    known = _Codes()
    codes = np.fromiter(map(known.__getitem__, chain.from_iterable(said)), np.intp, int(length.sum()))
    terms, places = np.unique(np.array([number_of_term(term) for term in known], np.int64), return_inverse=True)
    # A term and a row in one number: sorted by term, then by row, and as often as the row holds the term.
    held = places[codes] << _ROW_BITS | np.repeat(np.arange(len(chunks)), length)
    pairs, counts = np.unique(held, return_counts=True)
    starts = np.searchsorted(pairs >> _ROW_BITS, np.arange(len(terms) + 1))
    rows = (pairs & ((1 << _ROW_BITS) - 1)).astype(np.uint32)
    return Words(terms, starts.astype(np.int64), rows, counts.clip(max=_MOST_COUNTED).astype(np.uint8)), length


class _Codes(dict[str, int]):
    """Gives every text a number, in the order in which they come."""

    def __missing__(self, text: str) -> int:
        code = self[text] = len(self)
        return code


def _coded(values: Iterable[H]) -> tuple[Codes, tuple[H, ...]]:
    """Return each value's place among those that occur, and these."""
    known: dict[H, int] = {}
    codes = array("I", [known.setdefault(value, len(known)) for value in values])
    return np.array(codes, np.uint32), tuple(known)


def _numbered(numbers: Sequence[int]) -> tuple[Codes, NDArray[np.int64]]:
    unique, places = np.unique(np.array(numbers, np.int64), return_inverse=True)
    return places.astype(np.uint32), unique


def line_by_line(line: Codes, position: NDArray[np.int64]) -> Codes:
    return np.argsort(standpoints(line, position), kind="stable").astype(np.uint32)


def _vectors(chunks: Sequence[IndexedChunk]) -> Vectors:
    sizes = Counter(len(chunk.vector) for chunk in chunks if chunk.vector)
    # Whatever is not as long as most others is of no use to anyone.
    size = max(sizes, key=sizes.__getitem__, default=0)
    rows = [row for row, chunk in enumerate(chunks) if chunk.vector and len(chunk.vector) == size]
    if not rows:
        return no_vectors(len(chunks))
    joined = b"".join(chunks[row].vector or b"" for row in rows)
    halves = np.frombuffer(joined, "<f2").reshape(len(rows), -1)
    floats = halves.astype(np.float32)
    codes = quantised(floats)
    return arranged(codes, scales(floats), np.array(rows, np.uint32), len(chunks), unclustered(codes), halves)
