"""Renders passages with their surroundings as one text within a token budget."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weft.capabilities.indexing.collections.model import SOURCES
from weft.capabilities.search.passages import ChunkPassage
from weft.kernel.clock import from_micros

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.search.neighbours import PassageRef, TextLine
    from weft.kernel.tokens import TokenCounter

_GAP = "\n\n"


class Section(NamedTuple):
    """Consecutive passages with their joined text."""

    passages: list[ChunkPassage]
    text: str
    rank: int


class RenderedContext(NamedTuple):
    """The rendered text and its numbered sections. ``complete``: nothing was left out."""

    text: str
    tokens: int
    sections: list[Section]
    complete: bool


def render_context(refs: Sequence[PassageRef], max_tokens: int, count: TokenCounter) -> RenderedContext:
    """Return as many passages as fit: results first, best first, then their surroundings, nearest first."""
    ordered = _by_priority(_deduplicated(refs))
    taken = _fitting(ordered, max_tokens, count)
    if not taken and ordered:
        return _truncated(ordered[0], max_tokens, count)
    sections = _sections(taken)
    text = _text_of(sections)
    return RenderedContext(text, count(text), sections, complete=len(taken) == len(ordered))


def _deduplicated(refs: Sequence[PassageRef]) -> list[PassageRef]:
    """Deduplicate passages: prefer the one with the smallest distance, then rank."""
    best: dict[tuple[TextLine, tuple[int, int]], PassageRef] = {}
    for ref in sorted(refs, key=lambda each: (each.distance, each.rank)):
        best.setdefault((ref.line, ref.position), ref)
    return list(best.values())


def _by_priority(refs: Sequence[PassageRef]) -> list[PassageRef]:
    """Return results, best first, then surroundings, nearest first.

    Measured on conversations: one more result is worth more than the surroundings of the others.
    """
    results = sorted((each for each in refs if not each.distance), key=lambda each: each.rank)
    surroundings = sorted((each for each in refs if each.distance), key=lambda each: (each.distance, each.rank))
    return [*results, *surroundings]


def _fitting(ordered: Sequence[PassageRef], max_tokens: int, count: TokenCounter) -> list[PassageRef]:
    """Return the passages that fit; one that is too long does not exclude shorter ones."""
    taken: list[PassageRef] = []
    used = 0
    for ref in ordered:
        tokens = count(ref.passage.text)
        if used + tokens <= max_tokens:
            taken.append(ref)
            used += tokens
    # Headings count as well, and the tokens of a text may be more than the sum of its parts'.
    while taken and count(_text_of(_sections(taken))) > max_tokens:
        taken.pop()
    return taken


def _truncated(ref: PassageRef, max_tokens: int, count: TokenCounter) -> RenderedContext:
    """Return the beginning of a passage that does not fit; empty if not even that fits."""
    passage = ref.passage

    def truncate(characters: int) -> PassageRef:
        chunk = structs.replace(passage.chunk, end=passage.chunk.start + characters)
        return ref._replace(passage=structs.replace(passage, chunk=chunk, text=passage.text[:characters]))

    def is_too_long(characters: int) -> bool:
        return count(_text_of(_sections([truncate(characters)]))) > max_tokens

    fitting = bisect_left(range(1, len(passage.text) + 1), True, key=is_too_long)  # noqa: FBT003 - the sought value
    if fitting == 0:
        return RenderedContext("", 0, [], complete=False)
    sections = _sections([truncate(fitting)])
    text = _text_of(sections)
    return RenderedContext(text, count(text), sections, complete=False)


def _sections(refs: Sequence[PassageRef]) -> list[Section]:
    """Join consecutive passages: lines by their best rank, passages by their position."""
    lines: defaultdict[TextLine, list[PassageRef]] = defaultdict(list)
    for ref in refs:
        lines[ref.line].append(ref)
    ordered = sorted(lines.values(), key=lambda members: min(each.rank for each in members))
    return [
        section for members in ordered for section in _line_sections(sorted(members, key=lambda each: each.position))
    ]


def _line_sections(refs: Sequence[PassageRef]) -> list[Section]:
    runs: list[list[PassageRef]] = []
    for ref in refs:
        if runs and _follows(runs[-1][-1], ref):
            runs[-1].append(ref)
        else:
            runs.append([ref])
    return [
        Section(
            [each.passage for each in run], _joined_text([each.passage for each in run]), min(each.rank for each in run)
        )
        for run in runs
    ]


def _follows(one: PassageRef, other: PassageRef) -> bool:
    if SOURCES[one.passage.chunk.source].is_spoken and one.position[0] != other.position[0]:
        # Missing numbers belong to turns that the caller may not read, or that are not included.
        return other.position[0] == one.position[0] + 1
    return one.passage.chunk.end >= other.passage.chunk.start


def _joined_text(passages: Sequence[ChunkPassage]) -> str:
    """Join passages, without repeating where they overlap."""
    parts: list[str] = []
    before: ChunkPassage | None = None
    for passage in passages:
        if before is None or before.chunk.item != passage.chunk.item:
            parts.append(("\n" if parts else "") + _with_speaker(passage))
        else:
            parts.append(passage.text[max(0, before.chunk.end - passage.chunk.start) :])
        before = passage
    return "".join(parts)


def _with_speaker(passage: ChunkPassage) -> str:
    if not SOURCES[passage.chunk.source].is_spoken:
        return passage.text
    return f"{passage.chunk.speaker}: {passage.text}"


def _text_of(sections: Sequence[Section]) -> str:
    headings = ["", *map(heading_of, sections)]
    return _GAP.join(
        # A heading equal to the previous one is omitted, to save tokens.
        f"[{number}]{'' if heading == headings[number - 1] else f' {heading}'}\n{each.text}"
        for number, (heading, each) in enumerate(zip(headings[1:], sections, strict=True), start=1)
    )


def heading_of(section: Section) -> str:
    """Return a short label of a section's source."""
    passage = section.passages[0]
    chunk = passage.chunk
    day = from_micros(chunk.timestamp).date().isoformat()
    match chunk.source:
        case "document":
            return f"{chunk.place} > {chunk.heading or passage.title}"
        case "message":
            return f"session {chunk.place}, {day}"
        case "event":
            return f"your conversation, session {passage.session_id}, {day}"
        case "board":
            return f"session {chunk.place}, key {passage.key}, {day}"
        case _:
            return f"memory {passage.key}, {day}"
