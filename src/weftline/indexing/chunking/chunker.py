"""Chunking by media type: packs text up to the token limit, split at the strongest boundaries, with overlap."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

from weftline.indexing.chunking.model import BLOCK, CHARACTER, SECTION, TextSpan, line_ends, sentence_ends, word_ends
from weftline.indexing.chunking.outlines import (
    outline_of_code,
    outline_of_json,
    outline_of_json_lines,
    outline_of_log,
    outline_of_markdown,
    outline_of_pages,
    outline_of_plain,
    outline_of_rows,
    outline_of_transcript,
)
from weftline.indexing.chunking.reader import TRANSCRIPTS, canonical_type, is_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weftline.indexing.chunking.model import ChunkingOptions, Label, Outline, ParsedDocument

# HTML has been converted to Markdown.
_STRATEGIES: dict[str, Callable[[str], Outline]] = {
    "text/plain": outline_of_plain,
    "text/markdown": outline_of_markdown,
    "text/html": outline_of_markdown,
    "application/pdf": outline_of_pages,
    "application/json": outline_of_json,
    "application/x-ndjson": outline_of_json_lines,
    "text/csv": outline_of_rows,
    "text/tab-separated-values": outline_of_rows,
    "text/x-log": outline_of_log,
    **dict.fromkeys(TRANSCRIPTS, outline_of_transcript),
}
# Minimum fill of a chunk that ends at a stronger boundary than the last that fits.
_MIN_FILL = 0.5
_MIN_FILL_FOR_SECTION = 0.2
_MAX_HEADING = 500
_MAX_SPEAKERS = 12
# Upper bound of all known tokenizers: one token per byte of UTF-8.
MAX_TOKENS_PER_CHARACTER = 4
_SPLITTERS = (line_ends, sentence_ends, word_ends)
_JOINERS = "\u200d\ufe0f"


def split_into_chunks(
    document: ParsedDocument, options: ChunkingOptions, count: Callable[[str], int]
) -> list[TextSpan]:
    """Split a document into chunks.

    No chunk exceeds the token limit; chunks are in order, cover everything but white space, and two neighbours share at
    most the overlap.
    """
    packer = _Packer(document.text, _outline(document), options, count)
    return [chunk for window in packer.windows() if (chunk := packer.chunk(*window)) is not None]


def _outline(document: ParsedDocument) -> Outline:
    media_type = canonical_type(document.media_type)
    if is_code(media_type):
        return outline_of_code(document.text, document.names)
    return _STRATEGIES.get(media_type, outline_of_plain)(document.text)


class _Packer:
    """Boundaries are referred to by index; the last index is the end of the text."""

    def __init__(self, text: str, outline: Outline, options: ChunkingOptions, count: Callable[[str], int]) -> None:
        self._text = text
        self._outline = outline
        self._count = count
        self._limit = options.chunk_tokens
        self._overlap = min(options.overlap_tokens, options.chunk_tokens // 2)
        starts, self._strengths = split_oversized(text, outline, self._limit, count)
        self._starts = [*starts, len(text)]
        self._last = len(starts)
        self._characters_per_token = 4.0

    def windows(self) -> Iterator[tuple[int, int]]:
        """Yield the boundaries of each chunk."""
        first = fresh = 0
        while fresh < self._last:
            while first < fresh and not self._fits(first, fresh + 1):
                first += 1
            cut = self._best_cut(first, fresh, self._furthest(first, fresh + 1))
            # With some tokenizers a part has more tokens than the whole.
            while cut > fresh + 1 and not self._fits(first, cut):
                cut -= 1
            yield first, cut
            first, fresh = self._overlap_start(first, cut), cut

    def chunk(self, first: int, cut: int) -> TextSpan | None:
        start, end = self._trimmed(first, cut)
        if start == end:
            return None
        tokens = self._count(self._text[start:end])
        self._characters_per_token = (end - start) / max(tokens, 1)
        labels = self._outline.labels_between(start, end)
        return TextSpan(
            start=start,
            end=end,
            tokens=tokens,
            kind=_kind(labels),
            heading=_heading(labels, ranged=self._outline.heading_style == "range"),
            speaker=_speakers(labels),
            timestamp=next((label.timestamp for label in labels if label.timestamp is not None), None),
        )

    def _furthest(self, first: int, low: int) -> int:
        """Return the last boundary up to which a chunk fits; it fits up to ``least``."""
        reach = self._starts[first] + self._limit * self._characters_per_token
        guess = max(low, min(bisect_right(self._starts, reach) - 1, self._last))
        return _last_where(lambda boundary: self._fits(first, boundary), low, guess, self._last)

    def _best_cut(self, first: int, fresh: int, end: int) -> int:
        """Return the strongest boundary at which the chunk is full enough; the end of the text beats weak ones."""
        if end == self._last and not self._leaves_section(first, fresh):
            return end
        begin = self._starts[first]
        length = self._starts[end] - begin
        best, best_strength = end, -1 if end < self._last else BLOCK
        for boundary in range(min(end, self._last - 1), fresh, -1):
            strength = self._strengths[boundary]
            min_fill = _MIN_FILL if strength < SECTION else _MIN_FILL_FOR_SECTION
            if strength > best_strength and self._starts[boundary] - begin >= min_fill * length:
                best, best_strength = boundary, strength
        return best

    def _leaves_section(self, first: int, fresh: int) -> bool:
        """Return whether the rest contains a higher-level section than the one it starts with; a whole text may."""
        strongest = max(self._strengths[fresh + 1 :], default=BLOCK)
        return first > 0 and strongest >= SECTION and strongest > self._strengths[fresh]

    def _overlap_start(self, first: int, cut: int) -> int:
        """Return the start of the next chunk: the cut, or before it by the overlap."""
        if not self._overlap or cut == self._last:
            return cut
        earliest = cut
        while earliest > first + 1 and self._strengths[earliest] < SECTION and cut - earliest < self._overlap:
            earliest -= 1
        repeated = _last_where(
            lambda back: self._tokens(cut - back, cut) <= self._overlap, 0, min(1, cut - earliest), cut - earliest
        )
        begin = self._trimmed(first, cut)[0]
        # White space may be all that a later start leaves out: chunks that begin alike are no overlap.
        while repeated and self._trimmed(cut - repeated, cut)[0] <= begin:
            repeated -= 1
        return cut - repeated

    def _fits(self, first: int, end: int) -> bool:
        return self._tokens(first, end) <= self._limit

    def _tokens(self, first: int, end: int) -> int:
        return self._count(self._text[self._starts[first] : self._starts[end]].strip())

    def _trimmed(self, first: int, cut: int) -> tuple[int, int]:
        raw = self._text[self._starts[first] : self._starts[cut]]
        start = self._starts[first] + len(raw) - len(raw.lstrip())
        return start, start + len(raw.strip())


def _last_where(holds: Callable[[int], bool], low: int, guess: int, high: int) -> int:
    """Return the last number from ``least`` to ``most`` for which a monotonic condition holds; galloping search.

    The condition must hold for ``least``.
    """
    step = 1
    if holds(guess):
        low = guess
        while low < high and holds(min(low + step, high)):
            low, step = min(low + step, high), step * 2
        fails = min(low + step, high + 1)
    else:
        fails = guess
        while fails - step > low and not holds(fails - step):
            fails, step = fails - step, step * 2
        low = max(low, fails - step)
    while fails - low > 1:
        middle = (low + fails) // 2
        low, fails = (middle, fails) if holds(middle) else (low, middle)
    return low


def _kind(labels: list[Label]) -> str:
    kinds = {label.kind for label in labels if label.kind}
    return kinds.pop() if len(kinds) == 1 else "prose"


def _heading(labels: list[Label], *, ranged: bool) -> str:
    paths = [" > ".join(label.path) for label in labels if label.path] if ranged else []
    if len(set(paths)) > 1:
        return f"{paths[0]} to {paths[-1]}"
    return paths[0] if paths else " > ".join(_common([label.path for label in labels]))[:_MAX_HEADING]


def _common(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the common prefix of all paths: that of the lowest and the highest."""
    lowest, highest = min(paths, default=()), max(paths, default=())
    same = takewhile(lambda pair: pair[0] == pair[1], zip(lowest, highest, strict=False))
    return tuple(name for name, _ in same)


def _speakers(labels: list[Label]) -> str:
    names = dict.fromkeys(label.speaker for label in labels if label.speaker)
    return ", ".join(list(names)[:_MAX_SPEAKERS])


def split_oversized(
    text: str, outline: Outline, limit: int, count: Callable[[str], int]
) -> tuple[list[int], list[int]]:
    """Return the boundaries of an outline and further ones, so that the text between two boundaries fits."""
    starts: list[int] = []
    strengths: list[int] = []
    splitter = _Splitter(text, limit, count)
    edges = [*outline.starts, len(text)]
    if not outline.starts or edges[0] > 0:
        edges.insert(0, 0)
    edge_strengths = [CHARACTER] * (len(edges) - 1 - len(outline.starts)) + outline.strengths
    for (start, end), strength in zip(pairwise(edges), edge_strengths, strict=True):
        starts.append(start)
        strengths.append(strength)
        if not splitter.fits(start, end):
            for at, weaker in splitter.boundaries(start, end):
                starts.append(at)
                strengths.append(weaker)
    return starts, strengths


class _Splitter:
    """Finds further boundaries in text that does not fit."""

    def __init__(self, text: str, limit: int, count: Callable[[str], int]) -> None:
        self._text = text
        self._limit = limit
        self._count = count

    def fits(self, start: int, end: int) -> bool:
        certainly = (end - start) * MAX_TOKENS_PER_CHARACTER <= self._limit
        return certainly or self._count(self._text[start:end].strip()) <= self._limit

    def boundaries(self, start: int, end: int, level: int = 0) -> Iterator[tuple[int, int]]:
        """Yield boundaries after start, with their strengths, until the text between them fits."""
        if level == len(_SPLITTERS):
            yield from self._anywhere(start, end)
            return
        strength = CHARACTER
        for at, next_strength in (*_SPLITTERS[level](self._text, start, end), (end, CHARACTER)):
            if strength:
                yield start, strength
            if not self.fits(start, at):
                yield from self.boundaries(start, at, level + 1)
            start, strength = at, next_strength

    def _anywhere(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        slice_length = max(1, self._limit // (2 * MAX_TOKENS_PER_CHARACTER))
        while end - start > slice_length:
            start = self._after_marks(start + slice_length, min(start + 2 * slice_length, end))
            if start < end:
                yield start, CHARACTER

    def _after_marks(self, at: int, latest: int) -> int:
        """Return the next position that does not split a character from its combining marks, if one is nearby."""
        for position in range(at, latest):
            character = self._text[position]
            if character.isascii() or not (unicodedata.category(character)[0] == "M" or character in _JOINERS):
                return position
        return at
