"""Resolves a source ref against the current content of its source: the passage is unchanged, moved or lost.

A reference identifies its passage by a quote, by ``metadata.weftline.passage_digest`` (SHA-256 of the passage's text in
UTF-8), or only by the digest of the whole source. The outcome is ``exact`` only if one of these proves it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec
from msgspec import UNSET

from weftline.kernel.operation import Response
from weftline.records.engine_metadata import engine_metadata
from weftline.records.refs import (
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
from weftline.records.schemas import MAX_MARKUP_BYTES, MarkupResult
from weftline.records.selectors import (
    SelectedPassage,
    SourceContent,
    passage_digest,
    pointer_tokens,
    select_passage,
    selectors_for,
    selectors_of,
    value_text,
    walk_values,
)
from weftline.records.text_quote import context_score, find_quote, find_similar, similarity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weftline.records.model import ContextSourceRef
    from weftline.records.schemas import MarkupReader
    from weftline.records.text_quote import QuoteMatch

ResolutionOutcome = Literal["exact", "moved", "lost"]
# Selectors that are exact to the character.
_PRECISE = (TextPosition, ByteRange)
_IN_PLACE = "The passage is unchanged, at the same position."
_QUOTE_FOUND = "The quote was found, with the same context."
# Selectors of passages without text.
_NON_TEXT = (PageRegion, MediaTimeRange, CustomSelector)
# Limits of the search for a passage by its digest: windows, and bytes hashed.
_MAX_WINDOWS, _MAX_HASHED = 20_000, 32 * 2**20


class PassageResolution(Response):
    """Result of resolving a source ref: old (``was``) and new (``now``) position; ``selector`` is up to date."""

    outcome: ResolutionOutcome
    reason: Annotated[str, msgspec.Meta(description="Explanation of the outcome.")]
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1, description="Confidence that this is the passage.")]
    similarity: Annotated[float, msgspec.Meta(ge=0, le=1, description="Similarity to the original text.")] = 0.0
    source_unchanged: bool | None = None
    found_by: str | None = None
    text: str | None = None
    was: Selector | None = None
    now: Selector | None = None
    selector: tuple[Selector, ...] = ()


class _Candidate(NamedTuple):
    """A candidate passage: the selector that found it, the confidence, and its position."""

    passage: SelectedPassage
    found_by: str
    confidence: float
    now: Selector | None = None
    similarity: float = 1.0


def resolve(
    ref: ContextSourceRef, content: bytes | str, media_type: str | None = None, markup: MarkupReader | None = None
) -> PassageResolution:
    """Find the passage of a reference in the current content of its source. Without selectors, that is all of it."""
    source = SourceContent.of(content, media_type)
    return _Search(ref, source, selectors_of(ref), markup).resolution()


def lost(reason: str, was: Selector | None = None, *, unchanged: bool | None = None) -> PassageResolution:
    return PassageResolution(outcome="lost", reason=reason, confidence=0.0, was=was, source_unchanged=unchanged)


@dataclass
class _Search:
    """One search for a passage."""

    ref: ContextSourceRef
    source: SourceContent
    selectors: Sequence[Selector]
    markup: MarkupReader | None
    quote: TextQuote | None = field(init=False)
    digest: str | None = field(init=False)
    unchanged: bool | None = field(init=False)
    reading: MarkupResult = field(init=False)
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
            return self._lost("The reference contradicts itself: its quote does not match its passage_digest.")
        exact = self._exact()
        if exact is not None:
            return self._result("exact", exact, _QUOTE_FOUND if exact.found_by == "text_quote" else _IN_PLACE)
        moved = next(self._moved(), None)
        if moved is not None:
            return self._result("moved", moved, _moved_reason(moved))
        return self._without_text() or self._lost(self._lost_reason())

    def _whole(self) -> PassageResolution:
        """Resolve a reference to a whole source."""
        passage = SelectedPassage(self.source.text, self.source.digest)
        if (self.ref.digest if self.ref.digest is not UNSET else self.digest) == self.source.digest:
            return self._result("exact", _Candidate(passage, "digest", 1.0), "The source is unchanged.")
        known = self.ref.digest is not UNSET or self.digest is not None
        return self._lost("The source has changed." if known else "The reference has neither a digest nor a selector.")

    def _exact(self) -> _Candidate | None:
        places = [each for each in self.selectors if not isinstance(each, (TextQuote, *_NON_TEXT))]
        precise = any(isinstance(each, _PRECISE) for each in places)
        for selector in places:
            passage = self._select(selector)
            # A passage can move within its lines, so a line range does not prove its position.
            imprecise = precise and isinstance(selector, LineRange)
            if passage is not None and not imprecise and self._matches(passage):
                return _Candidate(passage, _kind(selector), 1.0, selector)
        return None if places else self._exactly_quoted()

    def _exactly_quoted(self) -> _Candidate | None:
        """Return the passage of a quote, if no other selector gives its position."""
        if self.best is None or self.quote is None:
            return None
        passage = self.source.passage(self.best.start, self.best.end)
        alone = self.best.context_score == 1.0 and self.best.ties == 1
        if passage is None or not (alone or self.unchanged):
            return None
        return _Candidate(passage, "text_quote", 1 / self.best.ties, _position(passage))

    def _matches(self, passage: SelectedPassage) -> bool:
        """Whether a passage is unchanged and no other occurrence has a better matching context."""
        if self.digest is not None and passage.digest != self.digest:
            return False
        if self.quote is None:
            return self.digest is not None or self.unchanged is True
        if passage.text != self.quote.exact:
            return False
        if passage.span is None or self.best is None or self.unchanged:
            return True
        here = context_score(self.quote, self.source.text or "", passage.span.start)
        return self.best.start == passage.span.start or here >= self.best.context_score

    def _select(self, selector: Selector) -> SelectedPassage | None:
        """Return the passage of a selector, narrowed to the quote if it is wider."""
        if isinstance(selector, Css | XPath):
            words = dict(zip(self._markup_selectors(), self.reading.texts, strict=False)).get(selector)
            found = None if words is None else SelectedPassage(words, passage_digest(words))
        else:
            found = select_passage(selector, self.source)
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
        """Yield other positions of the passage, most certain first."""
        yield from self._moved_values()
        yield from self._moved_elements()
        yield from self._moved_words()
        yield from self._same_digest()
        yield from self._changed_in_place()
        yield from self._nearly_quoted()

    def _moved_words(self) -> Iterator[_Candidate]:
        passage = None if self.best is None else self.source.passage(self.best.start, self.best.end)
        if self.best is not None and passage is not None:
            confidence = (1 + self.best.context_score) / 2 / self.best.ties
            yield _Candidate(passage, "text_quote", confidence, _position(passage))

    def _moved_values(self) -> Iterator[_Candidate]:
        """Yield the same value under another JSON Pointer, the one most like the old pointer."""
        pointer = next((each.pointer for each in self.selectors if isinstance(each, JsonPointer)), None)
        if pointer is None or self.source.text is None or not (self.quote or self.digest):
            return
        texts = ((place, value_text(value)) for place, value in walk_values(self.source.text))
        same = {place: text for place, text in texts if self._is_same_text(text)}
        if same:
            place = max(same, key=lambda each: (_shared(each, pointer), len(each)))
            passage = SelectedPassage(same[place], passage_digest(same[place]))
            yield _Candidate(passage, "json_pointer", 1 / len(same), JsonPointer(pointer=place))

    def _is_same_text(self, text: str) -> bool:
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
        """Yield the passage of the same length with the same digest, nearest to the old position."""
        if self.quote is not None or self.digest is None:
            return
        hashed = 0
        for start, end in self._windows():
            passage = self.source.passage(start, end)
            hashed += end - start
            if passage is None or hashed > _MAX_HASHED:
                return
            if passage.digest == self.digest:
                yield _Candidate(passage, "passage_digest", 1.0, _position(passage))

    def _windows(self) -> Iterator[tuple[int, int]]:
        """Yield windows of the length of the passage, in characters or in lines."""
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
        """Yield the current text at a structural selector, if it is similar to the quote."""
        for selector in self.selectors:
            if self.quote is not None and isinstance(selector, JsonPointer | Css | XPath):
                found = self._select(selector)
                score = similarity(self.quote.exact, found.text) if found and found.text else 0.0
                if found is not None and score:
                    yield _Candidate(found, _kind(selector), score, selector, score)

    def _nearly_quoted(self) -> Iterator[_Candidate]:
        text = self.source.text
        near = find_similar(self.quote.exact, text, self._expected()) if self.quote and text else None
        passage = None if near is None else self.source.passage(near.start, near.end)
        if near is not None and passage is not None:
            yield _Candidate(passage, "text_quote", near.similarity, _position(passage), near.similarity)

    def _without_text(self) -> PassageResolution | None:
        """Resolve a passage without text: it is unchanged if the whole source is."""
        non_text = next((each for each in self.selectors if isinstance(each, _NON_TEXT)), None)
        contradicted = self.quote is not None and self.source.text is not None
        if non_text is None or not self.unchanged or contradicted:
            return None
        return PassageResolution(
            outcome="exact",
            reason="The whole source is unchanged. The passage has no text to show.",
            confidence=1.0,
            similarity=1.0,
            source_unchanged=True,
            found_by=_kind(non_text),
            was=non_text,
            now=non_text,
        )

    def _lost_reason(self) -> str:
        if self.reading.problem is not None:
            return self.reading.problem
        if any(isinstance(each, _NON_TEXT) for each in self.selectors) and self.quote is None and self.digest is None:
            return "The passage has no text to search for, and " + self._changed_reason()
        if self.quote is None and self.digest is None and not self.unchanged:
            return f"The reference has no quote and no passage_digest, and {self._changed_reason()}"
        if self.unchanged:
            return "The source is unchanged, but has no such passage."
        return "The passage is no longer in the source."

    def _changed_reason(self) -> str:
        return "the source has changed." if self.unchanged is False else "the source's own digest is not known."

    def _result(self, outcome: ResolutionOutcome, found: _Candidate, reason: str) -> PassageResolution:
        passage, span = found.passage, found.passage.span
        text = self.source.text
        return PassageResolution(
            outcome=outcome,
            reason=reason,
            confidence=_rounded_down(found.confidence),
            similarity=_rounded_down(found.similarity),
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
        """Return the old position: the selector of this kind, otherwise the first that gives a position."""
        places = [each for each in self.selectors if not isinstance(each, TextQuote)]
        same = [each for each in places if _kind(each) == kind]
        return next(iter([*same, *places, *self.selectors]), None)

    def _find_quote(self) -> QuoteMatch | None:
        if self.quote is None or self.source.text is None:
            return None
        return find_quote(self.quote, self.source.text, self._expected())

    def _expected(self) -> int | None:
        """Return the old character offset of the passage."""
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

    def _read_markup(self) -> MarkupResult:
        selectors = self._markup_selectors()
        if not selectors:
            return MarkupResult()
        if self.markup is None or self.source.text is None:
            return MarkupResult(problem="The source cannot be read as HTML or XML.")
        if len(self.source.raw) > MAX_MARKUP_BYTES:
            return MarkupResult(
                problem=f"The source is larger than {MAX_MARKUP_BYTES} bytes, too large to read as HTML."
            )
        words = self.quote.exact if self.quote else None
        return self.markup.read(self.source.text, self.source.media_type, selectors, words)


def known_passage_digest(ref: ContextSourceRef) -> str | None:
    """Return the passage digest of a reference."""
    digest = engine_metadata(ref.metadata).get("passage_digest")
    return digest if isinstance(digest, str) else None


def _moved_reason(found: _Candidate) -> str:
    if found.similarity < 1:
        return f"A similar passage was found: {_rounded_down(found.similarity) * 100:g}% alike."
    return "The passage is unchanged, at another position."


def _rounded_down(share: float) -> float:
    """Round down to four digits, so that less than 1 never becomes 1."""
    return math.floor(share * 10_000) / 10_000


def _position(passage: SelectedPassage) -> Selector | None:
    return None if passage.span is None else TextPosition(start=passage.span.start, end=passage.span.end)


def _kind(selector: Selector) -> str:
    return str(type(selector).__struct_config__.tag)


def _outwards(middle: int, size: int) -> Iterator[int]:
    """Yield numbers below ``size`` outwards from the middle, up to the maximum number of windows."""
    middle = min(max(middle, 0), max(size - 1, 0))
    for distance in range(min(max(middle, size - middle) + 1, _MAX_WINDOWS // 2)):
        for place in dict.fromkeys((middle - distance, middle + distance)):
            if 0 <= place < size:
                yield place


def _shared(one: str, other: str) -> int:
    """Return how many tokens two pointers share, aligned at the start and at the end."""
    mine, theirs = pointer_tokens(one), pointer_tokens(other)
    outside = sum(1 for a, b in zip(mine, theirs, strict=False) if a == b)
    return outside + sum(1 for a, b in zip(reversed(mine), reversed(theirs), strict=False) if a == b)
