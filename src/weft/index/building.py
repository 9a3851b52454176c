"""Making segments of chunks, and one of several."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from weft.index.clusters import FEWEST_CLUSTERED, clustered, unclustered
from weft.index.names import number_of, number_of_term, standpoint_of
from weft.index.segment import Facts, Group, Segment, Words, standpoints
from weft.index.vectors import Vectors, no_vectors, quantised, scales

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from numpy.typing import NDArray

    from weft.capabilities.shelves.model import Standing

    Bits = NDArray[np.bool_]
    Codes = NDArray[np.uint32]

H = TypeVar("H", bound="Hashable")
_MOST_COUNTED = 255
_ROWS_AT_ONCE = 16_384


def segment_of(chunks: Sequence[Standing]) -> Segment:
    """Make a segment of chunks that are in the order of their numbers."""
    words, length = _words(chunks)
    group, groups = _coded(Group(chunk.source, chunk.place, chunk.scope) for chunk in chunks)
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
        moment=np.array([chunk.moment for chunk in chunks], np.int64),
        tokens=np.array([chunk.tokens for chunk in chunks], np.int32),
        importance=np.array([chunk.importance for chunk in chunks], np.float32),
        pinned=np.array([chunk.pinned for chunk in chunks], np.bool_),
        length=length,
        order=_line_by_line(line, position),
        lines=lines,
        items=items,
    )
    return Segment(facts, words, _vectors(chunks), groups, speakers)


def merged(segments: Sequence[Segment], alive: Sequence[Bits], *, to_stay: bool) -> Segment:
    """Make one segment of those rows of several that are alive; put vectors in clusters if it is to stay for long."""
    numbers = np.concatenate([segment.facts.number[kept] for segment, kept in zip(segments, alive, strict=True)])
    order = np.argsort(numbers, kind="stable")
    moved = _moved(alive, order)
    facts, groups, speakers = _merged_facts(segments, alive, order)
    vectors = _merged_vectors(segments, moved, len(order), to_stay=to_stay)
    return Segment(facts, _merged_words(segments, moved), vectors, groups, speakers)


def _words(chunks: Sequence[Standing]) -> tuple[Words, NDArray[np.int32]]:
    known = _Codes()
    codes, counts, held, length = array("I"), array("I"), array("I"), array("i")
    for chunk in chunks:
        said = chunk.terms.split()
        counted = Counter(said)
        length.append(len(said))
        held.append(len(counted))
        codes.extend(map(known.__getitem__, counted))
        counts.extend(counted.values())
    numbers = np.array([number_of_term(term) for term in known], np.int64)
    rows = np.repeat(np.arange(len(chunks), dtype=np.uint32), np.frombuffer(held, np.uint32))
    terms, place = np.unique(numbers, return_inverse=True)
    of_term = place.astype(np.uint32)[np.frombuffer(codes, np.uint32)]
    order = np.argsort(of_term, kind="stable")
    starts = np.searchsorted(of_term[order], np.arange(len(terms) + 1))
    words = Words(terms, starts.astype(np.int64), rows[order], _small(np.frombuffer(counts, np.uint32))[order])
    return words, np.array(length, np.int32)


def _small(counts: NDArray[np.uint32]) -> NDArray[np.uint8]:
    return counts.clip(max=_MOST_COUNTED).astype(np.uint8)


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


def _line_by_line(line: Codes, position: NDArray[np.int64]) -> Codes:
    return np.argsort(standpoints(line, position), kind="stable").astype(np.uint32)


def _vectors(chunks: Sequence[Standing]) -> Vectors:
    size = max((len(chunk.vector) for chunk in chunks if chunk.vector), default=0)
    # Whatever is not as long as the others is of no use to anyone.
    rows = [row for row, chunk in enumerate(chunks) if chunk.vector and len(chunk.vector) == size]
    if not rows:
        return no_vectors(len(chunks))
    joined = b"".join(chunks[row].vector or b"" for row in rows)
    halves = np.frombuffer(joined, "<f2").reshape(len(rows), -1)
    return _arranged(halves, np.array(rows, np.uint32), len(chunks), to_stay=False)


def _arranged(halves: NDArray[np.float16], rows: NDArray[np.uint32], size: int, *, to_stay: bool) -> Vectors:
    """Return vectors with all that is kept of them."""
    codes, scale = _in_bytes(halves)
    clusters = clustered(codes, scale) if to_stay and len(codes) >= FEWEST_CLUSTERED else unclustered(codes)
    slot = np.full(size, -1, np.int32)
    slot[rows[clusters.order]] = np.arange(len(rows), dtype=np.int32)
    return Vectors(
        halves=halves[clusters.order],
        codes=codes[clusters.order],
        scale=scale[clusters.order],
        rows=rows[clusters.order],
        slot=slot,
        centres=clusters.centres,
        starts=clusters.starts,
        reach=np.array([clusters.reach], np.float32),
    )


def _in_bytes(halves: NDArray[np.float16]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    codes = np.empty(halves.shape, np.int8)
    scale = np.empty(len(halves), np.float32)
    for start in range(0, len(halves), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        floats = halves[part].astype(np.float32)
        codes[part], scale[part] = quantised(floats), scales(floats)
    return codes, scale


def _moved(alive: Sequence[Bits], order: NDArray[np.intp]) -> list[NDArray[np.int64]]:
    """Return for each segment where its rows go; -1 for those that go nowhere."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    moved, before = [], 0
    for kept in alive:
        target = np.full(len(kept), -1, np.int64)
        count = int(np.count_nonzero(kept))
        target[kept] = place[before : before + count]
        moved.append(target)
        before += count
    return moved


def _merged_facts(
    segments: Sequence[Segment], alive: Sequence[Bits], order: NDArray[np.intp]
) -> tuple[Facts, tuple[Group, ...], tuple[str, ...]]:
    def joined(columns: Iterable[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate([column[kept] for column, kept in zip(columns, alive, strict=True)])[order]

    def renumbered(codes: str, names: str) -> tuple[NDArray[Any], NDArray[Any]]:
        names_of_rows = (getattr(segment.facts, names)[getattr(segment.facts, codes)] for segment in segments)
        unique, places = np.unique(joined(names_of_rows), return_inverse=True)
        return places.astype(np.uint32), unique

    columns = {
        field.name: joined(getattr(segment.facts, field.name) for segment in segments)
        for field in fields(Facts)
        if field.name not in {"group", "line", "item", "speaker", "order", "lines", "items"}
    }
    columns["line"], columns["lines"] = renumbered("line", "lines")
    columns["order"] = _line_by_line(columns["line"], columns["position"])
    columns["item"], columns["items"] = renumbered("item", "items")
    group_codes, groups = _recoded([segment.groups for segment in segments])
    columns["group"] = joined(codes[segment.facts.group] for codes, segment in zip(group_codes, segments, strict=True))
    speaker_codes, speakers = _recoded([segment.speakers for segment in segments])
    columns["speaker"] = joined(
        codes[segment.facts.speaker] for codes, segment in zip(speaker_codes, segments, strict=True)
    )
    return Facts(**columns), groups, speakers


def _recoded(lists: Sequence[tuple[H, ...]]) -> tuple[list[Codes], tuple[H, ...]]:
    """Return one list of what occurs in several, and for each of these where its values went."""
    known: dict[H, int] = {}
    codes = [np.array([known.setdefault(value, len(known)) for value in values], np.uint32) for values in lists]
    return codes, tuple(known)


def _merged_words(segments: Sequence[Segment], moved: Sequence[NDArray[np.int64]]) -> Words:
    parts = [_surviving(segment.words, target) for segment, target in zip(segments, moved, strict=True)]
    terms = np.unique(np.concatenate([part.terms for part in parts]))
    places = [np.searchsorted(terms, part.terms) for part in parts]
    held = np.zeros(len(terms) + 1, np.int64)
    for place, part in zip(places, parts, strict=True):
        held[place + 1] += np.diff(part.starts)
    starts = np.cumsum(held)
    rows, counts = np.empty(starts[-1], np.uint32), np.empty(starts[-1], np.uint8)
    free = starts[:-1].copy()
    for place, part in zip(places, parts, strict=True):
        sizes = np.diff(part.starts)
        target = np.repeat(free[place] - part.starts[:-1], sizes) + np.arange(len(part.rows))
        rows[target], counts[target] = part.rows, part.counts
        free[place] += sizes
    return _in_row_order(Words(terms, starts, rows, counts))


def _surviving(words: Words, target: NDArray[np.int64]) -> Words:
    """Return the postings of the rows that are kept, under their new numbers."""
    if len(target) == 0 or (target[0] >= 0 and target[-1] - target[0] == len(target) - 1 and target.min() >= 0):
        # All of them go on side by side, which is how it nearly always is.
        first = np.uint32(target[0] if len(target) else 0)
        return Words(words.terms, words.starts, words.rows + first, words.counts)
    rows = target[words.rows]
    kept = rows >= 0
    before = np.concatenate(([0], np.cumsum(kept)))
    starts = before[words.starts]
    used = np.flatnonzero(np.diff(starts))
    return Words(
        words.terms[used],
        np.concatenate((starts[used], starts[-1:])),
        rows[kept].astype(np.uint32),
        words.counts[kept],
    )


def _in_row_order(words: Words) -> Words:
    """Return postings with the rows of each term in order: they are, unless segments overlapped."""
    descents = np.flatnonzero(np.diff(words.rows.astype(np.int64)) <= 0) + 1
    inside = ~np.isin(descents, words.starts)
    if not inside.any():
        return words
    term = np.repeat(np.arange(len(words.terms), dtype=np.int64), np.diff(words.starts))
    order = np.argsort(term << 32 | words.rows, kind="stable")
    return Words(words.terms, words.starts, words.rows[order], words.counts[order])


def _merged_vectors(
    segments: Sequence[Segment], moved: Sequence[NDArray[np.int64]], size: int, *, to_stay: bool
) -> Vectors:
    dimensions = max((segment.vectors.dimensions for segment in segments), default=0)
    halves, rows = [], []
    for segment, target in zip(segments, moved, strict=True):
        if segment.vectors.dimensions != dimensions:
            continue
        places = target[segment.vectors.rows]
        kept = places >= 0
        halves.append(segment.vectors.halves[kept])
        rows.append(places[kept].astype(np.uint32))
    if not dimensions or not sum(map(len, rows)):
        return no_vectors(size)
    return _arranged(np.concatenate(halves), np.concatenate(rows), size, to_stay=to_stay)
