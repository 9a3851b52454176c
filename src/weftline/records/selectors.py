"""Evaluates selectors on the content of a source, and creates selectors for a passage.

Characters are Unicode code points without normalisation: a CRLF is two. A line ends with LF, CRLF or CR, which is not
part of it. Byte offsets refer to the source as it is; a source given as text is encoded as UTF-8.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from weftline.records.model import ContextSourceRef
from weftline.records.refs import (
    ByteRange,
    JsonPointer,
    LineRange,
    TextPosition,
    TextQuote,
    content_digest,
)
from weftline.records.text_quote import find_quote
from weftline.records.vocabulary import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.records.refs import Selector

# Not None, which is a JSON value.
ABSENT: Final = object()
# Maximum depth to walk: encoding the value at every level takes time proportional to the depth.
_MAX_WALK_DEPTH = 64
_INDEX = re.compile(r"(0|[1-9][0-9]{0,15})\Z")
# A longer passage gets no quote selector, only positions and a digest.
MAX_QUOTE_LENGTH = 100_000
# Lengths of prefix and suffix: the first with which the quote is unique is used, otherwise the last.
_CONTEXT_LENGTHS = (32, 64, 128, 256)
_LINE_BREAK = re.compile(r"\r\n|\n|\r")
_CHARSET = re.compile(r"charset\s*=\s*\"?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
# Allowed charsets of a media type; Python has codecs that must not be applied to untrusted data.
_CHARSETS = re.compile(
    r"(utf-?8|utf-?(16|32)([bl]e)?|(us-)?ascii|latin-?1|iso-8859-\d+|windows-125\d|shift_jis|euc-(jp|kr)"
    r"|gb(2312|k|18030)|big5|koi8-[ru])\Z",
    re.IGNORECASE,
)


class CharSpan(NamedTuple):
    """A range of characters; ``end`` is exclusive."""

    start: int
    end: int


class SelectedPassage(NamedTuple):
    """A passage of a source. Binary passages have no text; passages found by structure have no character span."""

    text: str | None
    digest: str
    span: CharSpan | None = None


@dataclass(frozen=True)
class SourceContent:
    """Content of a source; ``text`` is None if it cannot be decoded."""

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
        return content_digest(self.raw)

    @cached_property
    def lines(self) -> list[CharSpan]:
        return line_spans(self.text or "")

    def passage(self, start: int, end: int) -> SelectedPassage | None:
        """Return the passage between two offsets; None if the text is shorter."""
        if self.text is None or end > len(self.text):
            return None
        words = self.text[start:end]
        return SelectedPassage(words, passage_digest(words), CharSpan(start, end))

    def characters_before(self, byte: int) -> int | None:
        """Convert a byte offset to a character offset; None if it is inside a character."""
        try:
            return len(self.raw[:byte].decode(self.charset))
        except ValueError:
            return None


def passage_digest(text: str) -> str:
    """Return the digest of a passage, as stored in ``metadata.weftline.passage_digest`` of a source ref."""
    return content_digest(text)


def select_passage(selector: Selector, source: SourceContent) -> SelectedPassage | None:
    """Return the passage that a selector selects; None if there is no such passage or the selector is not supported.

    If a quote occurs several times, the occurrence whose context matches best is selected.
    """
    match selector:
        case TextPosition():
            return source.passage(selector.start, selector.end)
        case ByteRange():
            return _select_bytes(selector, source)
        case LineRange():
            return _select_lines(selector, source)
        case TextQuote():
            found = None if source.text is None else find_quote(selector, source.text)
            return None if found is None else source.passage(found.start, found.end)
        case JsonPointer():
            return _select_value(selector, source)
        case _:
            return None


def selectors_for(text: str, start: int, end: int) -> tuple[Selector, ...]:
    """Return all selectors of a passage: by quote, characters, bytes and lines.

    Together they can find the passage again after the text has changed.
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
    """Return a reference to a passage that can still be resolved after the text has changed."""
    return ContextSourceRef(
        schema_version=SCHEMA_VERSION,
        source_id=source_id,
        uri=uri,
        source_kind=source_kind,
        selector=selectors_for(text, start, end),
        digest=passage_digest(text),
        metadata={"weftline": {"passage_digest": passage_digest(text[start:end])}},
    )


def selectors_of(ref: ContextSourceRef) -> tuple[Selector, ...]:
    """Return the selectors of a reference."""
    if ref.selector is UNSET:
        return ()
    return ref.selector if isinstance(ref.selector, tuple) else (ref.selector,)


def line_spans(text: str) -> list[CharSpan]:
    """Return the span of each line, without line breaks. A trailing line break starts no further line."""
    spans, begin = [], 0
    for found in _LINE_BREAK.finditer(text):
        spans.append(CharSpan(begin, found.start()))
        begin = found.end()
    return spans if begin == len(text) else [*spans, CharSpan(begin, len(text))]


def _select_bytes(selector: ByteRange, source: SourceContent) -> SelectedPassage | None:
    if selector.end > len(source.raw):
        return None
    if source.text is not None:
        start, end = map(source.characters_before, (selector.start, selector.end))
        if start is not None and end is not None:
            return source.passage(start, end)
    return SelectedPassage(None, content_digest(source.raw[selector.start : selector.end]))


def _select_lines(selector: LineRange, source: SourceContent) -> SelectedPassage | None:
    if source.text is None or selector.end > len(source.lines):
        return None
    return source.passage(source.lines[selector.start - 1].start, source.lines[selector.end - 1].end)


def _select_value(selector: JsonPointer, source: SourceContent) -> SelectedPassage | None:
    value = ABSENT if source.text is None else value_at(source.text, selector.pointer)
    if value is ABSENT:
        return None
    words = value_text(value)
    return SelectedPassage(words, passage_digest(words))


def _quotes(text: str, start: int, end: int) -> tuple[Selector, ...]:
    if not 0 < end - start <= MAX_QUOTE_LENGTH:
        return ()
    for around in _CONTEXT_LENGTHS:
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
    after_last_line = not begins or (start == len(text) and _LINE_BREAK.match(text[-1:]) is not None)
    return () if after_last_line else (LineRange(start=first, end=last),)


def _charset(media_type: str | None) -> str:
    named = _CHARSET.search(media_type or "")
    return named[1] if named and _CHARSETS.match(named[1]) else "utf-8"


def value_at(document: str, pointer: str) -> Any:  # noqa: ANN401 - any JSON
    """Return the value at a pointer; ABSENT if there is none or the document is not JSON."""
    value = read_json(document)
    for token in pointer_tokens(pointer):
        value = _member(value, token)
    return value


def walk_values(document: str) -> Iterator[tuple[str, Any]]:
    """Yield every value of a document with its pointer, outer values first."""
    stack = [("", read_json(document), 0)]
    while stack:
        pointer, value, depth = stack.pop()
        if value is not ABSENT:
            yield pointer, value
        if depth < _MAX_WALK_DEPTH:
            stack += [(f"{pointer}/{_escaped(name)}", member, depth + 1) for name, member in reversed(_members(value))]


def value_text(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return the canonical text of a value: a string as it is, anything else as JSON with sorted keys."""
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()


def pointer_tokens(pointer: str) -> list[str]:
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def read_json(document: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return msgspec.json.decode(document)
    except (ValueError, RecursionError):
        return ABSENT


def _members(value: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return list(value.items())
    return [(str(place), member) for place, member in enumerate(value)] if isinstance(value, list) else []


def _member(value: Any, token: str) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return value.get(token, ABSENT)
    if isinstance(value, list) and _INDEX.match(token) and int(token) < len(value):
        return value[int(token)]
    return ABSENT


def _escaped(token: str) -> str:
    return token.replace("~", "~0").replace("/", "~1")
