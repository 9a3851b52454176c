"""Finding a passage again in what its source says now: where it was, somewhere else, or not any more.

A reference says what its passage said by a quote, by ``metadata.weft.passage_digest`` (SHA-256 of the passage's text in
UTF-8), or not at all but for the digest of its whole source. A passage is found exactly only if one of these proves it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec
from msgspec import UNSET

from weft.capabilities.records.json_pointer import tokens_of, value_text, values_in
from weft.capabilities.records.markup_port import LARGEST_MARKUP, MarkupReading
from weft.capabilities.records.refs import (
    ByteRange,
    Css,
    CustomSelector,
    JsonPointer,
    LineRange,
    MediaTimeRange,
    PageRegion,
    Selector,
    TextPosition,
    TextQuote,
    XPath,
)
from weft.capabilities.records.selectors import (
    SelectedPassage,
    SourceContent,
    cut,
    passage_digest,
    selectors_for,
    selectors_of,
)
from weft.capabilities.records.text_quote import find_near, find_quote, likeness, surroundings_at
from weft.kernel.operation import Response

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.capabilities.records.markup_port import MarkupReader
    from weft.capabilities.records.model import ContextSourceRef
    from weft.capabilities.records.text_quote import QuoteMatch

Outcome = Literal["exact", "moved", "lost"]
# Tell of a passage to the character.
_PRECISE = (TextPosition, ByteRange)
_IN_PLACE = "The passage is where it was and says what it said."
_IN_WORDS = "What was quoted is there, with what stood around it."
_WORDLESS = (PageRegion, MediaTimeRange, CustomSelector)
# How much is looked through for a passage of which only the digest is known.
_MOST_WINDOWS, _MOST_HASHED = 20_000, 32 * 2**20


class PassageResolution(Response):
    """What became of a passage. ``was`` and ``now`` say where it was and is; ``selector`` finds it from now on."""

    outcome: Outcome
    reason: Annotated[str, msgspec.Meta(description="What was found, in words.")]
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1, description="How sure it is that this is the passage.")]
    likeness: Annotated[float, msgspec.Meta(ge=0, le=1, description="How much it says what it said.")] = 0.0
    source_unchanged: bool | None = None
    found_by: str | None = None
    text: str | None = None
    was: Selector | None = None
    now: Selector | None = None
    selector: tuple[Selector, ...] = ()


class _Candidate(NamedTuple):
    """A passage that may be the one: by what it was found, how sure that is, and where it is if not where it was."""

    passage: SelectedPassage
    found_by: str
    confidence: float
    now: Selector | None = None
    likeness: float = 1.0


def resolve(
    ref: ContextSourceRef, content: bytes | str, media_type: str | None = None, markup: MarkupReader | None = None
) -> PassageResolution:
    """Find the passage that a reference means in what its source says now. Without selectors it means all of it."""
    source = SourceContent.of(content, media_type)
    return _Search(ref, source, selectors_of(ref), markup).resolution()


def lost(reason: str, was: Selector | None = None, *, unchanged: bool | None = None) -> PassageResolution:
    return PassageResolution(outcome="lost", reason=reason, confidence=0.0, was=was, source_unchanged=unchanged)


@dataclass
class _Search:
    """One look for a passage."""

    ref: ContextSourceRef
    source: SourceContent
    selectors: Sequence[Selector]
    markup: MarkupReader | None
    quote: TextQuote | None = field(init=False)
    digest: str | None = field(init=False)
    unchanged: bool | None = field(init=False)
    reading: MarkupReading = field(init=False)
    best: QuoteMatch | None = field(init=False)

    def __post_init__(self) -> None:
        self.quote = next((each for each in self.selectors if isinstance(each, TextQuote)), None)
        self.digest = known_passage_digest(self.ref)
        self.unchanged = None if self.ref.digest is UNSET else self.ref.digest == self.source.digest
        self.reading = self._read_markup()
        self.best = self._find_quote()

    def resolution(self) -> PassageResolution:
        if not self.selectors:
            return self._whole()
        if self.quote and self.digest and passage_digest(self.quote.exact) != self.digest:
            return self._lost("The reference contradicts itself: its quote does not have its passage_digest.")
        exact = self._exact()
        if exact is not None:
            return self._told("exact", exact, _IN_WORDS if exact.found_by == "text_quote" else _IN_PLACE)
        moved = next(self._moved(), None)
        if moved is not None:
            return self._told("moved", moved, _how_it_moved(moved))
        return self._without_words() or self._lost(self._why())

    def _whole(self) -> PassageResolution:
        """Resolve a reference to all of its source."""
        passage = SelectedPassage(self.source.text, self.source.digest)
        if (self.ref.digest if self.ref.digest is not UNSET else self.digest) == self.source.digest:
            return self._told("exact", _Candidate(passage, "digest", 1.0), "The source says what it said.")
        known = self.ref.digest is not UNSET or self.digest is not None
        said = "The source has changed." if known else "Nothing says what the source said: no digest, no selector."
        return self._lost(said)

    def _exact(self) -> _Candidate | None:
        places = [each for each in self.selectors if not isinstance(each, (TextQuote, *_WORDLESS))]
        precise = any(isinstance(each, _PRECISE) for each in places)
        for selector in places:
            passage = self._cut(selector)
            # Within its lines a passage can move, so they say less than what tells its characters.
            outdone = precise and isinstance(selector, LineRange)
            if passage is not None and not outdone and self._is_it(passage):
                return _Candidate(passage, _kind(selector), 1.0, selector)
        return None if places else self._exactly_quoted()

    def _exactly_quoted(self) -> _Candidate | None:
        """Return what a quote means that has no other place than its words and what stands around them."""
        if self.best is None or self.quote is None:
            return None
        passage = self.source.passage(self.best.start, self.best.end)
        alone = self.best.surroundings == 1.0 and self.best.ties == 1
        if passage is None or not (alone or self.unchanged):
            return None
        return _Candidate(passage, "text_quote", 1 / self.best.ties, _position(passage))

    def _is_it(self, passage: SelectedPassage) -> bool:
        """Tell whether a passage says what it said, and no other that says the same fits better."""
        if self.digest is not None and passage.digest != self.digest:
            return False
        if self.quote is None:
            return self.digest is not None or self.unchanged is True
        if passage.text != self.quote.exact:
            return False
        if passage.span is None or self.best is None or self.unchanged:
            return True
        here = surroundings_at(self.quote, self.source.text or "", passage.span.start)
        return self.best.start == passage.span.start or here >= self.best.surroundings

    def _cut(self, selector: Selector) -> SelectedPassage | None:
        """Return what a selector means; of a place that is wider than the quote, what is quoted of it."""
        if isinstance(selector, Css | XPath):
            words = dict(zip(self._markup_selectors(), self.reading.texts, strict=False)).get(selector)
            found = None if words is None else SelectedPassage(words, passage_digest(words))
        else:
            found = cut(selector, self.source)
        if found is None or found.text is None or self.quote is None or isinstance(selector, _PRECISE):
            return found
        return self._narrowed(found)

    def _narrowed(self, wide: SelectedPassage) -> SelectedPassage:
        words = self.quote.exact if self.quote else ""
        if wide.span is None:
            return SelectedPassage(words, passage_digest(words)) if words in (wide.text or "") else wide
        best = self.best
        inside = best is not None and wide.span.start <= best.start and best.end <= wide.span.end
        return self.source.passage(best.start, best.end) or wide if inside and best is not None else wide

    def _moved(self) -> Iterator[_Candidate]:
        """Yield where else the passage may be, the surest first."""
        yield from self._moved_values()
        yield from self._moved_elements()
        yield from self._moved_words()
        yield from self._same_digest()
        yield from self._changed_in_place()
        yield from self._nearly_quoted()

    def _moved_words(self) -> Iterator[_Candidate]:
        passage = None if self.best is None else self.source.passage(self.best.start, self.best.end)
        if self.best is not None and passage is not None:
            sureness = (1 + self.best.surroundings) / 2 / self.best.ties
            yield _Candidate(passage, "text_quote", sureness, _position(passage))

    def _moved_values(self) -> Iterator[_Candidate]:
        """Yield the value of a JSON document that says the same under another pointer, most like the one it had."""
        pointer = next((each.pointer for each in self.selectors if isinstance(each, JsonPointer)), None)
        if pointer is None or self.source.text is None or not (self.quote or self.digest):
            return
        told = ((place, value_text(value)) for place, value in values_in(self.source.text))
        same = {place: text for place, text in told if self._says_it(text)}
        if same:
            place = max(same, key=lambda each: (_shared(each, pointer), len(each)))
            passage = SelectedPassage(same[place], passage_digest(same[place]))
            yield _Candidate(passage, "json_pointer", 1 / len(same), JsonPointer(pointer=place))

    def _says_it(self, text: str) -> bool:
        if self.quote is None:
            return passage_digest(text) == self.digest
        return text == self.quote.exact

    def _moved_elements(self) -> Iterator[_Candidate]:
        holder = self.reading.holder
        if holder is not None and self.quote is not None:
            words = self.quote.exact
            passage = SelectedPassage(words, passage_digest(words))
            yield _Candidate(passage, "text_quote", 1 / holder.ties, XPath(path=holder.path))

    def _same_digest(self) -> Iterator[_Candidate]:
        """Yield the passage of the same length that has the digest, nearest to where it was."""
        if self.quote is not None or self.digest is None:
            return
        hashed = 0
        for start, end in self._windows():
            passage = self.source.passage(start, end)
            hashed += end - start
            if passage is None or hashed > _MOST_HASHED:
                return
            if passage.digest == self.digest:
                yield _Candidate(passage, "passage_digest", 1.0, _position(passage))

    def _windows(self) -> Iterator[tuple[int, int]]:
        """Yield stretches as long as the passage was: in characters, or in lines."""
        lines = self.source.lines
        for selector in self.selectors:
            if isinstance(selector, TextPosition) and self.source.text is not None:
                width = selector.end - selector.start
                for start in _outwards(selector.start, len(self.source.text) - width + 1):
                    yield start, start + width
            if isinstance(selector, LineRange):
                more = selector.end - selector.start
                for first in _outwards(selector.start - 1, len(lines) - more):
                    yield lines[first].start, lines[first + more].end

    def _changed_in_place(self) -> Iterator[_Candidate]:
        """Yield what a place found by structure says now, if that is nearly what it said."""
        for selector in self.selectors:
            if self.quote is not None and isinstance(selector, JsonPointer | Css | XPath):
                found = self._cut(selector)
                alike = likeness(self.quote.exact, found.text) if found and found.text else 0.0
                if found is not None and alike:
                    yield _Candidate(found, _kind(selector), alike, selector, alike)

    def _nearly_quoted(self) -> Iterator[_Candidate]:
        text = self.source.text
        near = find_near(self.quote.exact, text, self._expected()) if self.quote and text else None
        passage = None if near is None else self.source.passage(near.start, near.end)
        if near is not None and passage is not None:
            yield _Candidate(passage, "text_quote", near.likeness, _position(passage), near.likeness)

    def _without_words(self) -> PassageResolution | None:
        """Resolve what has no words, or none that can be compared: it is what it was if the whole source is."""
        wordless = next((each for each in self.selectors if isinstance(each, _WORDLESS)), None)
        contradicted = self.quote is not None and self.source.text is not None
        if wordless is None or not self.unchanged or contradicted:
            return None
        said = "The whole source is what it was, so this part of it is; its words cannot be shown."
        return PassageResolution(
            outcome="exact",
            reason=said,
            confidence=1.0,
            likeness=1.0,
            source_unchanged=True,
            found_by=_kind(wordless),
            was=wordless,
            now=wordless,
        )

    def _why(self) -> str:
        if self.reading.problem is not None:
            return self.reading.problem
        if any(isinstance(each, _WORDLESS) for each in self.selectors) and self.quote is None and self.digest is None:
            return "Such a part has no words to look for, and " + self._why_not_unchanged()
        if self.quote is None and self.digest is None and not self.unchanged:
            return f"Nothing says what the passage said, and {self._why_not_unchanged()}"
        if self.unchanged:
            return "The source is what it was, but has no such part."
        return "Nothing in the source says this any more."

    def _why_not_unchanged(self) -> str:
        return "the source has changed." if self.unchanged is False else "the source's own digest is not known."

    def _told(self, outcome: Outcome, found: _Candidate, reason: str) -> PassageResolution:
        passage, span = found.passage, found.passage.span
        text = self.source.text
        return PassageResolution(
            outcome=outcome,
            reason=reason,
            confidence=_shortened(found.confidence),
            likeness=_shortened(found.likeness),
            source_unchanged=self.unchanged,
            found_by=found.found_by,
            text=passage.text,
            was=self._was(found.found_by),
            now=found.now,
            selector=() if span is None or text is None else selectors_for(text, span.start, span.end),
        )

    def _lost(self, reason: str) -> PassageResolution:
        return lost(reason, self._was(None), unchanged=self.unchanged)

    def _was(self, kind: str | None) -> Selector | None:
        """Return where the passage was: by the selector of this kind, or by the first that names a place."""
        places = [each for each in self.selectors if not isinstance(each, TextQuote)]
        same = [each for each in places if _kind(each) == kind]
        return next(iter([*same, *places, *self.selectors]), None)

    def _find_quote(self) -> QuoteMatch | None:
        if self.quote is None or self.source.text is None:
            return None
        return find_quote(self.quote, self.source.text, self._expected())

    def _expected(self) -> int | None:
        """Return the character at which the passage was."""
        for selector in self.selectors:
            match selector:
                case TextPosition():
                    return selector.start
                case ByteRange():
                    return self.source.characters_before(min(selector.start, len(self.source.raw)))
                case LineRange() if selector.start <= len(self.source.lines):
                    return self.source.lines[selector.start - 1].start
                case _:
                    continue
        return None

    def _markup_selectors(self) -> list[Css | XPath]:
        return [each for each in self.selectors if isinstance(each, Css | XPath)]

    def _read_markup(self) -> MarkupReading:
        selectors = self._markup_selectors()
        if not selectors:
            return MarkupReading()
        if self.markup is None or self.source.text is None:
            return MarkupReading(problem="The source cannot be read as HTML or XML.")
        if len(self.source.raw) > LARGEST_MARKUP:
            return MarkupReading(
                problem=f"The source is larger than {LARGEST_MARKUP} bytes, too large to read as HTML."
            )
        words = self.quote.exact if self.quote else None
        return self.markup.read(self.source.text, self.source.media_type, selectors, words)


def known_passage_digest(ref: ContextSourceRef) -> str | None:
    """Return what a reference gives as the digest of its passage."""
    ours = ref.metadata.get("weft")
    said = ours.get("passage_digest") if isinstance(ours, dict) else None
    return said if isinstance(said, str) else None


def _how_it_moved(found: _Candidate) -> str:
    if found.likeness < 1:
        return f"The passage says nearly what it said: {_shortened(found.likeness) * 100:g}% alike."
    return "The passage says what it said, in another place."


def _shortened(share: float) -> float:
    """Return a share with four digits, and never more than it is: what is nearly all is not all."""
    return math.floor(share * 10_000) / 10_000


def _position(passage: SelectedPassage) -> Selector | None:
    return None if passage.span is None else TextPosition(start=passage.span.start, end=passage.span.end)


def _kind(selector: Selector) -> str:
    return str(type(selector).__struct_config__.tag)


def _outwards(middle: int, size: int) -> Iterator[int]:
    """Yield the numbers below ``size``, those near the middle first; not more than can be looked at."""
    middle = min(max(middle, 0), max(size - 1, 0))
    for distance in range(min(max(middle, size - middle) + 1, _MOST_WINDOWS // 2)):
        for place in dict.fromkeys((middle - distance, middle + distance)):
            if 0 <= place < size:
                yield place


def _shared(one: str, other: str) -> int:
    """Return how many steps of two pointers are the same, counted from the outside and from the inside."""
    mine, theirs = tokens_of(one), tokens_of(other)
    outside = sum(1 for a, b in zip(mine, theirs, strict=False) if a == b)
    return outside + sum(1 for a, b in zip(reversed(mine), reversed(theirs), strict=False) if a == b)
