"""Parts of a source: cutting out what a selector means, and making selectors that find a passage again.

Characters are Unicode code points of the text as it is: nothing is normalised, a CRLF is two. A line ends with LF, CRLF
or CR, which is no part of it. Bytes are those of the source; text given as text is counted in UTF-8.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET

from weft.capabilities.records.json_pointer import NOTHING, value_at, value_text
from weft.capabilities.records.model import ContextSourceRef
from weft.capabilities.records.refs import ByteRange, JsonPointer, LineRange, TextPosition, TextQuote
from weft.capabilities.records.text_quote import find_quote
from weft.capabilities.records.vocabulary import SCHEMA_VERSION

if TYPE_CHECKING:
    from weft.capabilities.records.refs import Selector

# A passage that is longer is told by its place and its digest.
LONGEST_QUOTE = 100_000
# How much stands around a quote: the first of these with which it is the only one, or else the last.
_SURROUNDINGS = (32, 64, 128, 256)
_LINE_BREAK = re.compile(r"\r\n|\n|\r")
_CHARSET = re.compile(r"charset\s*=\s*\"?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
# Encodings that a media type may name; others are not worth what decoding by any name at all would allow.
_CHARSETS = re.compile(
    r"(utf-?8|utf-?(16|32)([bl]e)?|(us-)?ascii|latin-?1|iso-8859-\d+|windows-125\d|shift_jis|euc-(jp|kr)"
    r"|gb(2312|k|18030)|big5|koi8-[ru])\Z",
    re.IGNORECASE,
)


class CharSpan(NamedTuple):
    """Characters of a text, from ``start`` up to but without ``end``."""

    start: int
    end: int


class SelectedPassage(NamedTuple):
    """A part of a source. What is no text has no words, what is found by structure no place among the characters."""

    text: str | None
    digest: str
    span: CharSpan | None = None


@dataclass(frozen=True)
class SourceContent:
    """What a source says at a moment; ``text`` is None if that is no text."""

    raw: bytes
    text: str | None
    charset: str = "utf-8"
    media_type: str | None = None

    @classmethod
    def of(cls, content: bytes | str, media_type: str | None = None) -> SourceContent:
        if isinstance(content, str):
            return cls(content.encode(errors="surrogatepass"), content, media_type=media_type)
        charset = _charset(media_type)
        try:
            return cls(content, content.decode(charset), charset, media_type)
        except ValueError:
            return cls(content, None, media_type=media_type)

    @cached_property
    def digest(self) -> str:
        return _digest(self.raw)

    @cached_property
    def lines(self) -> list[CharSpan]:
        return line_spans(self.text or "")

    def passage(self, start: int, end: int) -> SelectedPassage | None:
        """Return what stands between two characters; None if the text is not that long."""
        if self.text is None or end > len(self.text):
            return None
        words = self.text[start:end]
        return SelectedPassage(words, passage_digest(words), CharSpan(start, end))

    def characters_before(self, byte: int) -> int | None:
        """Return how many characters begin before a byte; None if it is inside of one."""
        try:
            return len(self.raw[:byte].decode(self.charset))
        except ValueError:
            return None


def passage_digest(text: str) -> str:
    """Return the digest of a passage, as ``metadata.weft.passage_digest`` of a source ref gives it."""
    return _digest(text.encode(errors="surrogatepass"))


def cut(selector: Selector, source: SourceContent) -> SelectedPassage | None:
    """Return what a selector means in a source; None if there is no such part, or none that can be told in words.

    Of a quote that stands in several places, that is the one whose surroundings fit best.
    """
    match selector:
        case TextPosition():
            return source.passage(selector.start, selector.end)
        case ByteRange():
            return _cut_bytes(selector, source)
        case LineRange():
            return _cut_lines(selector, source)
        case TextQuote():
            found = None if source.text is None else find_quote(selector, source.text)
            return None if found is None else source.passage(found.start, found.end)
        case JsonPointer():
            return _cut_value(selector, source)
        case _:
            return None


def selectors_for(text: str, start: int, end: int) -> tuple[Selector, ...]:
    """Return selectors that all mean one passage: by its words, its characters, its bytes and the lines it is in.

    Kept together they find it again when some of them no longer do.
    """
    if not 0 <= start <= end <= len(text):
        raise ValueError(f"a text of {len(text)} characters has no passage from {start} to {end}")
    first_byte = len(text[:start].encode(errors="surrogatepass"))
    size = len(text[start:end].encode(errors="surrogatepass"))
    return (
        *_quotes(text, start, end),
        TextPosition(start=start, end=end),
        ByteRange(start=first_byte, end=first_byte + size),
        *_lines_of(text, start, end),
    )


def source_ref(source_id: str, uri: str, text: str, *, start: int, end: int, source_kind: str) -> ContextSourceRef:
    """Return a reference to a passage of a text that can be resolved later, whatever becomes of the text."""
    return ContextSourceRef(
        schema_version=SCHEMA_VERSION,
        source_id=source_id,
        uri=uri,
        source_kind=source_kind,
        selector=selectors_for(text, start, end),
        digest=passage_digest(text),
        metadata={"weft": {"passage_digest": passage_digest(text[start:end])}},
    )


def selectors_of(ref: ContextSourceRef) -> tuple[Selector, ...]:
    """Return the ways in which a reference tells of its passage."""
    if ref.selector is UNSET:
        return ()
    return ref.selector if isinstance(ref.selector, tuple) else (ref.selector,)


def line_spans(text: str) -> list[CharSpan]:
    """Return where each line stands, without what ends it; behind the last line break there is one if there is text."""
    spans, begin = [], 0
    for found in _LINE_BREAK.finditer(text):
        spans.append(CharSpan(begin, found.start()))
        begin = found.end()
    return spans if begin == len(text) else [*spans, CharSpan(begin, len(text))]


def _cut_bytes(selector: ByteRange, source: SourceContent) -> SelectedPassage | None:
    if selector.end > len(source.raw):
        return None
    if source.text is not None:
        start, end = map(source.characters_before, (selector.start, selector.end))
        if start is not None and end is not None:
            return source.passage(start, end)
    return SelectedPassage(None, _digest(source.raw[selector.start : selector.end]))


def _cut_lines(selector: LineRange, source: SourceContent) -> SelectedPassage | None:
    if source.text is None or selector.end > len(source.lines):
        return None
    return source.passage(source.lines[selector.start - 1].start, source.lines[selector.end - 1].end)


def _cut_value(selector: JsonPointer, source: SourceContent) -> SelectedPassage | None:
    value = NOTHING if source.text is None else value_at(source.text, selector.pointer)
    if value is NOTHING:
        return None
    words = value_text(value)
    return SelectedPassage(words, passage_digest(words))


def _quotes(text: str, start: int, end: int) -> tuple[Selector, ...]:
    if not 0 < end - start <= LONGEST_QUOTE:
        return ()
    for around in _SURROUNDINGS:
        quote = TextQuote(
            exact=text[start:end], prefix=text[max(0, start - around) : start], suffix=text[end : end + around]
        )
        found = find_quote(quote, text)
        if found is not None and found.ties == 1:
            break
    return (quote,)


def _lines_of(text: str, start: int, end: int) -> tuple[Selector, ...]:
    begins = [span.start for span in line_spans(text)]
    first, last = bisect_right(begins, start), bisect_right(begins, max(start, end - 1))
    behind_the_last = not begins or (start == len(text) and _LINE_BREAK.match(text[-1:]) is not None)
    return () if behind_the_last else (LineRange(start=first, end=last),)


def _charset(media_type: str | None) -> str:
    named = _CHARSET.search(media_type or "")
    return named[1] if named and _CHARSETS.match(named[1]) else "utf-8"


def _digest(raw: bytes) -> str:
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"
