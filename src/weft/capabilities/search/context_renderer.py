"""Weaving passages into one text to read: each with what stands around it, in order, and never longer than allowed."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weft.capabilities.search.passages import ChunkPassage
from weft.kernel.clock import from_micros

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Count = Callable[[str], int]

_GAP = "\n\n"
# Of what fits, so much is for what was found; what stands around it gets the rest, and what that leaves.
_SHARE_OF_FOUND = 0.85


class TextLine(NamedTuple):
    """What passages are parts of that can be read one behind the other: a document, a transcript, a value."""

    collection: str
    place: str
    item: str


class PassageRef(NamedTuple):
    """A passage with its place in its line. ``distance`` is how far it is from what was found: 0 for that itself."""

    line: TextLine
    position: tuple[int, int]
    passage: ChunkPassage
    rank: int
    distance: int = 0


class Section(NamedTuple):
    """Passages that follow each other, and what they say together."""

    passages: list[ChunkPassage]
    text: str
    rank: int


class RenderedContext(NamedTuple):
    """One text, and the stretches it is made of, as they are numbered. ``complete`` if nothing was left out."""

    text: str
    tokens: int
    stretches: list[Section]
    complete: bool


def strand_of(passage: ChunkPassage, rank: int, distance: int = 0) -> PassageRef:
    chunk = passage.chunk
    if chunk.source == "message":
        return PassageRef(
            TextLine(chunk.collection, chunk.place, ""), (int(chunk.item), chunk.ordinal), passage, rank, distance
        )
    return PassageRef(TextLine(chunk.collection, chunk.place, chunk.item), (chunk.ordinal, 0), passage, rank, distance)


def render_context(strands: Sequence[PassageRef], most_tokens: int, count: Count) -> RenderedContext:
    """Return as much of the strands as fits, the best of what was found first, then what is nearest to it."""
    ordered = _in_order_of_need(_each_once(strands))
    taken = _as_many_as_fit(ordered, most_tokens, count)
    if not taken and ordered:
        return _cut_to_fit(ordered[0], most_tokens, count)
    stretches = _stretches(taken)
    text = _text_of(stretches)
    return RenderedContext(text, count(text), stretches, complete=len(taken) == len(ordered))


def _each_once(strands: Sequence[PassageRef]) -> list[PassageRef]:
    """Return each passage once: as what was found itself, if it was, or else as near to the best of it as it stands."""
    best: dict[tuple[TextLine, tuple[int, int]], PassageRef] = {}
    for strand in sorted(strands, key=lambda each: (each.distance, each.rank)):
        best.setdefault((strand.line, strand.position), strand)
    return list(best.values())


def _in_order_of_need(strands: Sequence[PassageRef]) -> list[PassageRef]:
    """Return what was found, the best first, then what is nearest to it.

    One more passage that was found is worth more than what stands around the others: measured on conversations.
    """
    found = sorted((each for each in strands if not each.distance), key=lambda each: each.rank)
    around = sorted((each for each in strands if each.distance), key=lambda each: (each.distance, each.rank))
    return [*found, *around]


def _as_many_as_fit(ordered: Sequence[PassageRef], most_tokens: int, count: Count) -> list[PassageRef]:
    """Return the strands that fit together; one that is too long does not keep shorter ones out."""
    taken: list[PassageRef] = []
    used = 0
    for strand in ordered:
        alone = count(strand.passage.text)
        if used + alone <= most_tokens:
            taken.append(strand)
            used += alone
    # What they are headed by counts as well, and a tokenizer may see more in a text than in its parts.
    while taken and count(_text_of(_stretches(taken))) > most_tokens:
        taken.pop()
    return taken


def _cut_to_fit(strand: PassageRef, most_tokens: int, count: Count) -> RenderedContext:
    """Return the beginning of one passage that is too long as a whole; nothing if not even that fits."""
    passage = strand.passage

    def cut(characters: int) -> PassageRef:
        chunk = structs.replace(passage.chunk, end=passage.chunk.start + characters)
        return strand._replace(passage=structs.replace(passage, chunk=chunk, text=passage.text[:characters]))

    def is_too_long(characters: int) -> bool:
        return count(_text_of(_stretches([cut(characters)]))) > most_tokens

    fitting = bisect_left(range(1, len(passage.text) + 1), True, key=is_too_long)  # noqa: FBT003 - what is looked for
    if fitting == 0:
        return RenderedContext("", 0, [], complete=False)
    stretches = _stretches([cut(fitting)])
    text = _text_of(stretches)
    return RenderedContext(text, count(text), stretches, complete=False)


def _stretches(strands: Sequence[PassageRef]) -> list[Section]:
    """Join what follows each other: lines in the order of the best of each, and in a line everything as it stands."""
    lines: defaultdict[TextLine, list[PassageRef]] = defaultdict(list)
    for strand in strands:
        lines[strand.line].append(strand)
    ordered = sorted(lines.values(), key=lambda members: min(each.rank for each in members))
    return [stretch for members in ordered for stretch in _of_line(sorted(members, key=lambda each: each.position))]


def _of_line(strands: Sequence[PassageRef]) -> list[Section]:
    runs: list[list[PassageRef]] = []
    for strand in strands:
        if runs and _follows(runs[-1][-1], strand):
            runs[-1].append(strand)
        else:
            runs.append([strand])
    return [
        Section([each.passage for each in run], _joined([each.passage for each in run]), min(each.rank for each in run))
        for run in runs
    ]


def _follows(one: PassageRef, other: PassageRef) -> bool:
    if one.passage.chunk.source == "message" and one.position[0] != other.position[0]:
        # Numbers that are missing between two are of messages for others, or of what is not in here.
        return other.position[0] == one.position[0] + 1
    return one.passage.chunk.end >= other.passage.chunk.start


def _joined(passages: Sequence[ChunkPassage]) -> str:
    """Return what passages say one behind the other, what they share only once."""
    parts: list[str] = []
    before: ChunkPassage | None = None
    for passage in passages:
        if before is None or before.chunk.item != passage.chunk.item:
            parts.append(("\n" if parts else "") + _spoken(passage))
        else:
            parts.append(passage.text[max(0, before.chunk.end - passage.chunk.start) :])
        before = passage
    return "".join(parts)


def _spoken(passage: ChunkPassage) -> str:
    if passage.chunk.source != "message":
        return passage.text
    return f"{passage.chunk.speaker}: {passage.text}"


def _text_of(stretches: Sequence[Section]) -> str:
    headings = ["", *map(heading_of, stretches)]
    return _GAP.join(
        # What stands under the same heading as the one before it need not repeat it: tokens are dear.
        f"[{number}]{'' if heading == headings[number - 1] else f' {heading}'}\n{each.text}"
        for number, (heading, each) in enumerate(zip(headings[1:], stretches, strict=True), start=1)
    )


def heading_of(stretch: Section) -> str:
    """Return in a few words where a stretch is from."""
    passage = stretch.passages[0]
    chunk = passage.chunk
    day = from_micros(chunk.timestamp).date().isoformat()
    match chunk.source:
        case "document":
            return f"{chunk.place} > {chunk.heading or passage.title}"
        case "message":
            return f"session {chunk.place}, {day}"
        case "board":
            return f"session {chunk.place}, key {passage.key}, {day}"
        case _:
            return f"memory {passage.key}, {day}"
