"""Reading documents: bytes become text, changed in nothing but their encoding and their line ends."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Protocol

from weft.kernel.errors import Rejected

if TYPE_CHECKING:
    from weft.capabilities.indexing.chunking.model import Reading

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{2,40})", re.IGNORECASE)
_HTML_HEAD = 2_048
_LOOKED_AT = 4_096
# Where western text has its letters, every second byte of UTF-16 is zero.
_ZEROS_IN_UTF_16 = 0.3
_LINE_END = re.compile(r"\r\n?")


class DocumentUnreadable(Rejected):
    """The document cannot be read as text."""

    code = "DOCUMENT_UNREADABLE"
    hint = (
        "Bring it as text, markdown, HTML, JSON, CSV, a transcript, a program or a PDF that has text and no password."
    )


class DocumentReader(Protocol):
    """Turns documents into text."""

    def read(self, content: bytes, media_type: str | None, name: str) -> Reading:
        """Return a document as text; raises DocumentUnreadable. It may take long: it is meant for a thread."""
        ...

    def close(self) -> None:
        """Let go of what reading needed."""
        ...


def decoded(content: bytes, media_type: str | None) -> str:
    """Return the text of a document, by the encoding it names or else the one that it seems to have."""
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return _text(content[len(mark) :], encoding)
    named = _named_encoding(content, media_type)
    for encoding in (*named, "utf-8"):
        try:
            return _without_zeros(_with_plain_lines(content.decode(encoding)))
        except (UnicodeDecodeError, LookupError):
            continue
        except _HoldsZeros:
            break
    return _text(content, _guessed_encoding(content))


class _HoldsZeros(Exception):
    """A text that holds zeros was not written in this encoding."""


def _named_encoding(content: bytes, media_type: str | None) -> list[str]:
    """Return what the media type says, else what an HTML page says of itself."""
    said = _CHARSET.search(media_type or "") or _CHARSET.search(_head(content))
    try:
        return [codecs.lookup(said[1]).name] if said and codecs.lookup(said[1])._is_text_encoding else []  # noqa: SLF001
    except LookupError:
        return []


def _head(content: bytes) -> str:
    head = content[:_HTML_HEAD].decode("latin-1")
    return head if "<meta" in head.lower() else ""


def _guessed_encoding(content: bytes) -> str:
    begin = content[:_LOOKED_AT]
    half = max(len(begin) // 2, 1)
    if begin[1::2].count(0) >= _ZEROS_IN_UTF_16 * half and not begin[0::2].count(0):
        return "utf-16-le"
    if begin[0::2].count(0) >= _ZEROS_IN_UTF_16 * half and not begin[1::2].count(0):
        return "utf-16-be"
    return "cp1252"


def _text(content: bytes, encoding: str) -> str:
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        # Every byte is a character of this one.
        text = content.decode(encoding if encoding.startswith("utf") else "latin-1", "replace")
    try:
        return _without_zeros(_with_plain_lines(text))
    except _HoldsZeros:
        raise DocumentUnreadable("The document holds bytes that no text has.") from None


def _with_plain_lines(text: str) -> str:
    return _LINE_END.sub("\n", text) if "\r" in text else text


def _without_zeros(text: str) -> str:
    if "\0" in text:
        raise _HoldsZeros
    return text
