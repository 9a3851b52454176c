"""Renders passages with their surroundings as one text within a token budget."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.indexing.collections.model import SOURCES
from weftline.kernel.clock import from_micros
from weftline.search.passages import ChunkPassage
from weftline.state.layers.tags import sanitise

if TYPE_CHECKING:
    from weftline.kernel.tokens import TokenCounter
    from weftline.search.neighbours import PassageRef, TextLine

_GAP = "\n\n"
# Takes the place of what lies between two passages of one source.
_ELLIPSIS = "…"
_HEADING_TOKENS = 3
_BRACKET = re.compile(r"^\[", re.MULTILINE)


class Section(NamedTuple):
    """Consecutive passages with their joined text."""

    passages: list[ChunkPassage]
    text: str
    rank: int


Layout = Callable[[Sequence[Section]], str]
# Returns the tokens of everything that is returned for some sections.
Measure = Callable[[Sequence[Section]], int]


class RenderedContext(NamedTuple):
    """The rendered text and its numbered sections. ``complete``: nothing was left out."""

    text: str
    tokens: int
    sections: list[Section]
    complete: bool


def numbered(sections: Sequence[Section]) -> str:
    """Return sections with numbers, which citations refer to. For prompts, so tags of Weftline are neutralised."""
    headings = ["", *map(heading_of, sections)]
    return sanitise(
        _GAP.join(
            # A heading equal to the previous one is omitted, to save tokens.
            f"[{number}]{'' if heading == headings[number - 1] else f' {heading}'}\n{section_body(each)}"
            for number, (heading, each) in enumerate(zip(headings[1:], sections, strict=True), start=1)
        )
    )


def compact(sections: Sequence[Section]) -> str:
    """Return sections with few tokens besides their texts: what equals the heading before is not repeated."""
    lines: list[str] = []
    before = _Heading("", "", "")
    for section in sections:
        heading = _heading(section)
        if heading != before:
            lines.append(f"\n[{heading.detail if heading.source == before.source else heading}]")
        elif not SOURCES[section.passages[0].chunk.source].is_spoken:
            # Turns have a line each.
            lines.append(_ELLIPSIS)
        lines.append(section_body(section))
        before = heading
    return "\n".join(lines).removeprefix("\n")


def section_body(section: Section) -> str:
    """Return the text of a section; a line that would pass for a heading is indented."""
    return _BRACKET.sub(" [", section.text) if "[" in section.text else section.text


def render_context(
    refs: Sequence[PassageRef],
    max_tokens: int,
    count: TokenCounter,
    layout: Layout = numbered,
    measure: Measure | None = None,
) -> RenderedContext:
    """Return as many passages as fit: results first, best first, then their surroundings, nearest first.

    ``measure`` says what counts, by default the text.
    """
    measure = measure or (lambda sections: count(layout(sections)))
    ordered = _by_priority(_deduplicated(refs))
    taken = _fitting(ordered, max_tokens, count, measure)
    if ordered and ordered[0] not in taken:
        # The best passage is shortened rather than replaced by one that is shorter.
        return _truncated(ordered[0], max_tokens, layout, measure)
    sections = _sections(taken)
    return RenderedContext(layout(sections), measure(sections), sections, complete=len(taken) == len(ordered))


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


def _fitting(ordered: Sequence[PassageRef], max_tokens: int, count: TokenCounter, measure: Measure) -> list[PassageRef]:
    """Return the passages that fit; one that is too long does not exclude shorter ones."""
    taken: list[PassageRef] = []
    headings: set[str] = set()
    used = 0
    for ref in ordered:
        heading = _heading_of_passage(ref.passage).detail
        tokens = count(_with_speaker(ref.passage))
        if heading not in headings:
            tokens += count(heading) + _HEADING_TOKENS
        if used + tokens <= max_tokens:
            taken.append(ref)
            headings.add(heading)
            used += tokens

    def is_too_long(number: int) -> bool:
        return measure(_sections(taken[:number])) > max_tokens

    # The tokens of the whole may be more than the sum of its parts'.
    fitting = len(taken)
    if taken and is_too_long(fitting):
        fitting = bisect_left(range(1, len(taken) + 1), True, key=is_too_long)  # noqa: FBT003 - the sought value
    return taken[:fitting]


def _truncated(ref: PassageRef, max_tokens: int, layout: Layout, measure: Measure) -> RenderedContext:
    """Return the beginning of a passage that does not fit; empty if not even that fits."""
    passage = ref.passage

    def truncate(characters: int) -> PassageRef:
        chunk = structs.replace(passage.chunk, end=passage.chunk.start + characters)
        return ref._replace(passage=structs.replace(passage, chunk=chunk, text=passage.text[:characters]))

    def is_too_long(characters: int) -> bool:
        return measure(_sections([truncate(characters)])) > max_tokens

    fitting = bisect_left(range(1, len(passage.text) + 1), True, key=is_too_long)  # noqa: FBT003 - the sought value
    if fitting == 0:
        return RenderedContext("", measure([]), [], complete=False)
    sections = _sections([truncate(fitting)])
    return RenderedContext(layout(sections), measure(sections), sections, complete=False)


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
    # Between consecutive chunks there is only white space.
    return other.passage.chunk.ordinal <= one.passage.chunk.ordinal + 1


def _joined_text(passages: Sequence[ChunkPassage]) -> str:
    return "".join(text_pieces(passages))


def text_pieces(passages: Sequence[ChunkPassage]) -> list[str]:
    """Return what each of consecutive passages adds to their joined text: nothing is repeated where they overlap."""
    pieces: list[str] = []
    before: ChunkPassage | None = None
    for passage in passages:
        if before is None or before.chunk.item != passage.chunk.item:
            pieces.append(("\n" if pieces else "") + _with_speaker(passage))
        else:
            overlap = before.chunk.end - passage.chunk.start
            more = passage.text[max(0, overlap) :]
            more = _one_turn(more) if SOURCES[passage.chunk.source].is_spoken else more
            pieces.append(("\n" if overlap < 0 else "") + more)
        before = passage
    return pieces


def _with_speaker(passage: ChunkPassage) -> str:
    if not SOURCES[passage.chunk.source].is_spoken:
        return passage.text
    return f"{passage.chunk.speaker}: {_one_turn(passage.text)}"


def _one_turn(text: str) -> str:
    """Return what someone said; further lines are indented, so that none passes for the turn of another."""
    return text.replace("\n", "\n  ")


class _Heading(NamedTuple):
    """The label of a section: its source, and what of it."""

    source: str
    separator: str
    detail: str

    def __str__(self) -> str:
        return "".join(self)


def heading_of(section: Section) -> str:
    """Return a short label of a section's source."""
    return str(_heading(section))


def _heading(section: Section) -> _Heading:
    return _heading_of_passage(section.passages[0])


def _heading_of_passage(passage: ChunkPassage) -> _Heading:
    chunk = passage.chunk
    day = from_micros(chunk.timestamp).date().isoformat()
    match chunk.source:
        case "document":
            return _Heading(chunk.place, " > ", chunk.heading or passage.title)
        case "message":
            return _Heading(f"session {chunk.place}", ", ", day)
        case "event":
            return _Heading(f"your conversation, session {passage.session_id}", ", ", day)
        case "board":
            return _Heading(f"session {chunk.place}, key {passage.key}", ", ", day)
        case _:
            return _Heading("memory", " ", f"{passage.key}, {day}")
