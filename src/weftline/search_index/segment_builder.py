"""Builds a segment from chunks."""

from __future__ import annotations

from array import array
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from weftline.indexing.collections import PRIORS
from weftline.indexing.entities import entity_index_terms
from weftline.search_index.ivf import arrange_vectors, unclustered
from weftline.search_index.quantized_vectors import Vectors, no_vectors, quantise, scales
from weftline.search_index.segment import (
    RowColumns,
    Segment,
    TermPostings,
    VisibilityGroup,
    line_position_of,
    line_positions,
    name_hash,
    term_hash,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from numpy.typing import NDArray

    from weftline.indexing.collections import IndexedChunk

    Codes = NDArray[np.uint32]

H = TypeVar("H", bound="Hashable")
_MAX_FREQUENCY = 255
_ROW_BITS = 32


def build_segment(chunks: Sequence[IndexedChunk]) -> Segment:
    """Build a segment from chunks sorted by number."""
    postings, length = _postings(chunks)
    group, groups = _encode(_group(chunk) for chunk in chunks)
    speaker, speakers = _encode(chunk.speaker for chunk in chunks)
    positions = [line_position_of(chunk) for chunk in chunks]
    line, lines = _encode_numbers([each.line for each in positions])
    position = np.array([each.position for each in positions], np.int64)
    item, items = _encode_numbers([name_hash(chunk.item) for chunk in chunks])
    facts = RowColumns(
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
        order=line_order(line, position),
        lines=lines,
        items=items,
    )
    return Segment(facts, postings, _vectors(chunks), groups, speakers)


def _group(chunk: IndexedChunk) -> VisibilityGroup:
    kind = chunk.kind if chunk.kind in PRIORS else ""
    return VisibilityGroup(chunk.source, chunk.place, chunk.scope, kind)


def _postings(chunks: Sequence[IndexedChunk]) -> tuple[TermPostings, NDArray[np.int32]]:
    terms_of_chunk = [chunk.terms.split() for chunk in chunks]
    # Entities do not make a text longer.
    length = np.array([len(terms) for terms in terms_of_chunk], np.int32)
    all_terms = [
        terms + entity_index_terms(chunk.entities) for terms, chunk in zip(terms_of_chunk, chunks, strict=True)
    ]
    postings = np.array([len(terms) for terms in all_terms], np.int64)
    known = _Codes()
    codes = np.fromiter(map(known.__getitem__, chain.from_iterable(all_terms)), np.intp, int(postings.sum()))
    hashes, places = np.unique(np.array([term_hash(term) for term in known], np.int64), return_inverse=True)
    # Term and row as one number: sorted by term, then row, with duplicates counted as the frequency.
    pairs_of_terms = places[codes] << _ROW_BITS | np.repeat(np.arange(len(chunks)), postings)
    pairs, counts = np.unique(pairs_of_terms, return_counts=True)
    starts = np.searchsorted(pairs >> _ROW_BITS, np.arange(len(hashes) + 1))
    rows = (pairs & ((1 << _ROW_BITS) - 1)).astype(np.uint32)
    return TermPostings(hashes, starts.astype(np.int64), rows, counts.clip(max=_MAX_FREQUENCY).astype(np.uint8)), length


class _Codes(dict[str, int]):
    """Assigns codes to texts in order of first occurrence."""

    def __missing__(self, text: str) -> int:
        code = self[text] = len(self)
        return code


def _encode(values: Iterable[H]) -> tuple[Codes, tuple[H, ...]]:
    """Return the code of each value, and the distinct values."""
    known: dict[H, int] = {}
    codes = array("I", [known.setdefault(value, len(known)) for value in values])
    return np.array(codes, np.uint32), tuple(known)


def _encode_numbers(numbers: Sequence[int]) -> tuple[Codes, NDArray[np.int64]]:
    unique, places = np.unique(np.array(numbers, np.int64), return_inverse=True)
    return places.astype(np.uint32), unique


def line_order(line: Codes, position: NDArray[np.int64]) -> Codes:
    return np.argsort(line_positions(line, position), kind="stable").astype(np.uint32)


def _vectors(chunks: Sequence[IndexedChunk]) -> Vectors:
    sizes = Counter(len(chunk.vector) for chunk in chunks if chunk.vector and not chunk.is_damaged)
    # Vectors of other dimensions cannot be compared and are left out, damaged ones too.
    size = max(sizes, key=sizes.__getitem__, default=0)
    rows = [row for row, chunk in enumerate(chunks) if chunk.vector and len(chunk.vector) == size]
    if not rows:
        return no_vectors(len(chunks))
    encoded = b"".join(chunks[row].vector or b"" for row in rows)
    halves = np.frombuffer(encoded, "<f2").reshape(len(rows), -1)
    floats = halves.astype(np.float32)
    codes = quantise(floats)
    return arrange_vectors(codes, scales(floats), np.array(rows, np.uint32), len(chunks), unclustered(codes), halves)
