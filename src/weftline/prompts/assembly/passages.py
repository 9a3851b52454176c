"""Renders passages with their surroundings as one text within a token budget."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.history.item_ids import VersionId
from weftline.indexing.collections import SOURCES
from weftline.kernel.clock import from_micros
from weftline.models.language_models.content import ConversationMessage
from weftline.prompts.assembly.packers import PackedText, TextPacker, data_messages, spans_of
from weftline.prompts.assembly.plan import Packed
from weftline.prompts.assembly.prompt_trust import item_trust, least_trusted
from weftline.prompts.assembly.receipts import Candidate, OmittedCandidate, PackingLog, PlannedBlock, digest_of
from weftline.safety.trust.model import Source
from weftline.search.model import MAX_PASSAGE_TOKENS, STRONG_PROBABILITY
from weftline.search.neighbours import passage_ref
from weftline.search.passages import ChunkPassage
from weftline.state.layers.prefix import element_text, sanitise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from weftline.kernel.ports import TokenCounter
    from weftline.prompts.assembly.packers import CountMessages
    from weftline.prompts.assembly.prompt_trust import ItemTrust, Screening
    from weftline.prompts.assembly.retrieval import Retrieved, RetrievedPassage
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


# Packs retrieved passages with their surroundings into one block.

_NAME = "found for the task"
_PINS = "pinned, always relevant"
_UNREADABLE = "unreadable:"
# Why a doubtful passage is not in a prompt.
DOUBT = "probably no evidence for the task"
# A block is not worth its heading below this size.
MIN_PASSAGE_ROOM = 24
# Tokens that a passage needs besides its text: source and line breaks.
PASSAGE_OVERHEAD = 12
# And a turn of a conversation: its speaker and a line break.
TURN_OVERHEAD = 4


def candidate_of(passage: ChunkPassage) -> tuple[str, str]:
    """Return ref and version of the candidate that a passage belongs to.

    Chunks of a document are candidates of their own. Everything else is one item: an event, message, key or memory.
    """
    if passage.chunk.source == "document":
        return passage.chunk_id, str(passage.chunk.version)
    name = VersionId.parse(passage.uri)
    if name is None:
        return passage.uri, ""
    return f"{name.line_id}/{name.key}", f"{name.incarnation}.{name.version}"


class _Found(NamedTuple):
    """A passage with ref and version of its candidate.

    ``places`` are refs, versions and positions of the passage and its surroundings.
    """

    ref: str
    version: str
    passage: RetrievedPassage
    places: list[tuple[str, str, PassageRef]]

    @classmethod
    def of(cls, found: RetrievedPassage, rank: int) -> _Found:
        around = [each if each.rank == rank else each._replace(rank=rank) for each in found.surroundings]
        places = [(*candidate_of(each.passage), each) for each in (passage_ref(found.passage, rank), *around)]
        ref, version, _ = places[0]
        return cls(ref, version, found, places)


@dataclass(frozen=True)
class PassagePacker:
    """Passages that are not pinned, best first. Board entries are left to the board's own packer.

    Passages that ``screening`` leaves out are in ``omitted``; ``reader`` is the agent that the prompt is for. Doubtful
    passages have at most ``doubt_tokens``, and never take the place of a part of the conversation. ``covered`` are
    the events that a compaction covers, ``original_tokens`` is the room for passages of them.
    """

    retrieved: Retrieved
    board: frozenset[str]
    screening: Screening
    reader: str
    count: CountMessages
    doubt_tokens: int = 0
    max_tokens: int = MAX_PASSAGE_TOKENS
    covered: frozenset[str] = frozenset()
    original_tokens: int = 0

    @cached_property
    def found(self) -> list[_Found]:
        found = [_Found.of(each, rank) for rank, each in enumerate(self.retrieved.passages) if not each.pinned]
        return [each for each in found if each.ref not in self.board]

    @cached_property
    def passages(self) -> list[_Found]:
        return [each for each in self.found if each.ref not in self._screened]

    @cached_property
    def _screened(self) -> dict[str, OmittedCandidate]:
        """Return what the policy leaves out, by ref."""
        reasons = (self._omission(each.ref, each.passage.passage) for each in self.found)
        return {reason.ref: reason for reason in reasons if reason is not None}

    def _omission(self, ref: str, passage: ChunkPassage) -> OmittedCandidate | None:
        return self.screening.omission(ref, passage.text, passage_trust(passage, self.reader))

    @cached_property
    def candidates(self) -> list[Candidate]:
        found = [
            Candidate(
                ref=each.ref,
                kind="passage",
                tokens=each.passage.tokens,
                version=each.version,
                score=each.passage.score,
                probability=each.passage.probability,
                doubtful=each.passage.doubtful,
            )
            for each in self.found
        ]
        omitted = zip(self._omissions, self.retrieved.omitted, strict=True)
        return [*found, *(Candidate(ref=o.ref, kind="passage", tokens=0, score=r.score) for o, r in omitted)]

    @cached_property
    def _omissions(self) -> list[OmittedCandidate]:
        """Return what retrieval left out. Passages that the caller may not read any more have a number, not an id."""
        return [
            OmittedCandidate(each.chunk_id or f"{_UNREADABLE}{place}", each.reason)
            for place, each in enumerate(self.retrieved.omitted)
        ]

    @property
    def tokens(self) -> int:
        return sum(each.passage.tokens + PASSAGE_OVERHEAD for each in self._best)

    @cached_property
    def _best(self) -> list[_Found]:
        """Return the passages that are evidence, up to the maximum, whether or not a prompt has them already."""
        return _within((each for each in self.passages if not each.passage.doubtful), self.max_tokens)

    @cached_property
    def _doubtful(self) -> list[_Found]:
        """Return the best doubtful passages that may be in a prompt, by their tokens as the model counts them."""
        room, found = self.doubt_tokens, list[_Found]()
        for each in (each for each in self.passages if each.passage.doubtful):
            room -= self._count_text(each.passage.text) + PASSAGE_OVERHEAD
            if room < 0:
                break
            found.append(each)
        return found

    def wanted_tokens(self, known: Mapping[str, str]) -> int:
        strong = [each for each in self._best if each.passage.probability >= STRONG_PROBABILITY]
        places = [each.places[0] for each in _unknown(strong, known)]
        return sum(place.passage.chunk.tokens + PASSAGE_OVERHEAD for place in self._within_originals(places))

    def pack(self, room: int, known: Mapping[str, str], *, in_doubt: bool = False) -> Packed:
        wanted = _unknown([*self._best, *self._doubtful] if in_doubt else self._best, known)
        packed = self._pack(wanted, room, known)
        self.log.add(room, len(wanted), packed.block)
        return packed

    @cached_property
    def log(self) -> PackingLog:
        return PackingLog("passage")

    def _pack(self, wanted: Sequence[_Found], room: int, known: Mapping[str, str]) -> Packed:
        room = min(room, self.max_tokens)
        left = [*self._left, *self._omitted_in_doubt(wanted)]
        heading = self.count(self._messages(()))
        if not wanted or room - heading < MIN_PASSAGE_ROOM:
            return Packed(None, [*left, *_over_budget(wanted)])
        places = [place for each in wanted for place in self._places(each) if known.get(place[0]) != place[1]]
        refs = self._within_originals(places)
        rendered = render_context(refs, room, self._count_text, self._content, measure=self._measured)
        block = self._block(rendered, room)
        items = {} if block is None else block.items
        return Packed(block, [*left, *_over_budget(each for each in wanted if each.ref not in items)])

    def _omitted_in_doubt(self, wanted: Sequence[_Found]) -> list[OmittedCandidate]:
        refs = {each.ref for each in wanted}
        doubtful = (each for each in self.passages if each.passage.doubtful and each.ref not in refs)
        return [OmittedCandidate(each.ref, "low_relevance", DOUBT) for each in doubtful]

    def _within_originals(self, places: Sequence[tuple[str, str, PassageRef]]) -> list[PassageRef]:
        """Return the passages, of events that a compaction covers only the best ones."""
        if not self.covered:
            return [place for *_, place in places]
        room = self.original_tokens
        kept: list[PassageRef] = []
        # Results, best first, then surroundings, nearest first.
        for ref, _, place in sorted(places, key=lambda each: (each[2].distance, each[2].rank)):
            if ref in self.covered:
                room -= place.passage.chunk.tokens + TURN_OVERHEAD
                if room < 0:
                    continue
            kept.append(place)
        return kept

    @cached_property
    def _left(self) -> list[OmittedCandidate]:
        """Return the omissions that do not depend on the room."""
        return [*self._omissions, *self._screened.values()]

    def _places(self, each: _Found) -> list[tuple[str, str, PassageRef]]:
        """Return a passage, and of its surroundings those that are not left out."""
        return [
            (ref, version, place)
            for ref, version, place in each.places
            if ref == each.ref or self._omission(ref, place.passage) is None
        ]

    def _messages(self, sections: Sequence[Section]) -> tuple[ConversationMessage, ...]:
        """Return the message of some sections: those with a suspicious passage in an element of their own."""
        clean = [each for each in sections if not self._trust(each).is_suspicious]
        suspect = [each for each in sections if self._trust(each).is_suspicious]
        texts = (compact([each._replace(text=self._shown(each.text)) for each in part]) for part in (clean, suspect))
        return data_messages(_NAME, *texts, mark_words=self.screening.mark_words)

    def _content(self, sections: Sequence[Section]) -> str:
        return self._messages(sections)[0].content

    def _measured(self, sections: Sequence[Section]) -> int:
        return self.count(self._messages(sections))

    def _trust(self, section: Section) -> ItemTrust:
        return least_trusted(passage_trust(passage, self.reader) for passage in section.passages)

    def _shown(self, text: str) -> str:
        found = self._masked.get(text)
        if found is None:
            found = self._masked[text] = self.screening.shown(text)
        return found

    @cached_property
    def _masked(self) -> dict[str, str]:
        """Return masked texts by what they were: sections are measured several times."""
        return {}

    def _block(self, rendered: RenderedContext, room: int) -> PlannedBlock | None:
        if not rendered.sections or rendered.tokens > room:
            return None
        messages = (ConversationMessage(role="user", content=rendered.text),)
        least = least_trusted(map(self._trust, rendered.sections))
        return PlannedBlock(
            block_id=f"retrieved:{digest_of(messages).hex()[:16]}",
            kind="retrieved",
            messages=messages,
            tokens=rendered.tokens,
            source=least.source,
            trust=least.trust,
            items=dict(candidate_of(passage) for section in rendered.sections for passage in section.passages),
            spans=self._spans(rendered),
        )

    def _spans(self, rendered: RenderedContext) -> dict[str, tuple[int, int]]:
        """Return where the text of each candidate begins and ends in the message."""
        ordered = sorted(rendered.sections, key=lambda each: self._trust(each).is_suspicious)
        bodies = [section_body(each._replace(text=self._shown(each.text))) for each in ordered]
        shown = [element_text(body, mark_words=self.screening.mark_words) for body in bodies]
        spans: dict[str, tuple[int, int]] = {}
        for section, span in zip(ordered, spans_of(shown, rendered.text), strict=True):
            for ref, (start, end) in _spans_in(section, span):
                spans[ref] = (min(start, spans[ref][0]), end) if ref in spans else (start, end)
        return spans

    def _count_text(self, text: str) -> int:
        found = self._counted.get(text)
        if found is None:
            message = ConversationMessage(role="user", content=text)
            found = self._counted[text] = self.count((message,)) - self._empty_tokens
        return found

    @cached_property
    def _counted(self) -> dict[str, int]:
        """Return the texts that were counted: passages are packed several times with different room."""
        return {}

    @cached_property
    def _empty_tokens(self) -> int:
        return self.count((ConversationMessage(role="user"),))


def _within(passages: Iterable[_Found], max_tokens: int) -> list[_Found]:
    """Return the best passages whose tokens add up to at most ``max_tokens``."""
    found = list(passages)
    totals = accumulate(each.passage.tokens for each in found)
    return [each for each, total in zip(found, totals, strict=True) if total <= max_tokens]


def _unknown(passages: Iterable[_Found], known: Mapping[str, str]) -> list[_Found]:
    """Return the passages that a prompt does not have already in this version."""
    return [each for each in passages if known.get(each.ref) != each.version]


def pinned_texts(retrieved: Retrieved, reader: str) -> list[PackedText]:
    """Return the pinned passages; several chunks of one item are one pin."""
    texts: dict[str, PackedText] = {}
    for each in sorted((each for each in retrieved.passages if each.pinned), key=lambda pin: pin.chunk_id):
        ref, version = candidate_of(each.passage)
        before = f"{texts[ref].text}\n  " if ref in texts else "- "
        text = before + "\n  ".join(each.text.splitlines())
        texts[ref] = PackedText(ref, version, text, passage_trust(each.passage, reader), each.score)
    return list(texts.values())


def pins_packer(texts: Sequence[PackedText], count: CountMessages, *, mark_words: bool = False) -> TextPacker:
    return TextPacker("pins", "pin", _PINS, texts, count, mark_words)


def passage_trust(passage: ChunkPassage, reader: str) -> ItemTrust:
    """Return the trust of a passage for an agent."""
    source = Source.DOCUMENT if passage.chunk.source == "document" else None
    return item_trust(passage.label, passage.author, reader, source)


def _spans_in(section: Section, span: tuple[int, int] | None) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the candidates of a section with their parts of its span: in proportion, as masking may change lengths."""
    if span is None:
        return
    ends = list(accumulate(map(len, text_pieces(section.passages))))
    scale = (span[1] - span[0]) / ends[-1] if ends[-1] else 0.0
    start = span[0]
    for passage, reached in zip(section.passages, ends, strict=True):
        end = span[0] + round(reached * scale)
        yield candidate_of(passage)[0], (start, end)
        start = end


def _over_budget(passages: Iterable[_Found]) -> list[OmittedCandidate]:
    return [OmittedCandidate(each.ref, "budget") for each in passages]
