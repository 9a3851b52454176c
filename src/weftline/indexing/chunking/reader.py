"""Decodes documents to text; only encoding and line ends are changed."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Protocol

from weftline.kernel.errors import Rejected

if TYPE_CHECKING:
    from weftline.indexing.chunking.model import ParsedDocument

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{2,40})", re.IGNORECASE)
_HTML_HEAD = 2_048
_SAMPLE_BYTES = 4_096
# In UTF-16 of western text every second byte is zero.
_MIN_UTF_16_ZEROS = 0.3
_LINE_END = re.compile(r"\r\n?")


class DocumentUnreadable(Rejected):
    """The document cannot be read as text."""

    code = "DOCUMENT_UNREADABLE"
    hint = "Send text, Markdown, HTML, JSON, CSV, a transcript, source code, or a PDF with text and without a password."


class DocumentReader(Protocol):
    """Reads documents as text."""

    def read(self, content: bytes, media_type: str | None, name: str) -> ParsedDocument:
        """Return a document as text; raises DocumentUnreadable. Slow: call it in a thread."""
        ...

    def close(self) -> None:
        """Release the worker processes."""
        ...


def decode_document(content: bytes, media_type: str | None) -> str:
    """Decode a document by its declared encoding, or else by the detected one."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return _text(content[len(mark) :], encoding)
    declared = _named_encoding(content, media_type)
    for encoding in (*declared, "utf-8"):
        try:
            return _reject_nul(_normalise_line_ends(content.decode(encoding)))
        except (UnicodeDecodeError, LookupError):
            continue
        except _ContainsNul:
            break
    return _text(content, _guessed_encoding(content))


class _ContainsNul(Exception):
    """Text with NUL characters has another encoding."""


def _named_encoding(content: bytes, media_type: str | None) -> list[str]:
    """Return the encoding of the media type, or else of an HTML page's meta tag."""
    match = _CHARSET.search(media_type or "") or _CHARSET.search(_head(content))
    try:
        return [codecs.lookup(match[1]).name] if match and codecs.lookup(match[1])._is_text_encoding else []  # noqa: SLF001
    except LookupError:
        return []


def _head(content: bytes) -> str:
    head = content[:_HTML_HEAD].decode("latin-1")
    return head if "<meta" in head.lower() else ""


def _guessed_encoding(content: bytes) -> str:
    begin = content[:_SAMPLE_BYTES]
    half = max(len(begin) // 2, 1)
    if begin[1::2].count(0) >= _MIN_UTF_16_ZEROS * half and not begin[0::2].count(0):
        return "utf-16-le"
    if begin[0::2].count(0) >= _MIN_UTF_16_ZEROS * half and not begin[1::2].count(0):
        return "utf-16-be"
    return "cp1252"


def _text(content: bytes, encoding: str) -> str:
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        # latin-1 decodes every byte.
        text = content.decode(encoding if encoding.startswith("utf") else "latin-1", "replace")
    try:
        return _reject_nul(_normalise_line_ends(text))
    except _ContainsNul:
        raise DocumentUnreadable("The document contains NUL bytes, so it is not text.") from None


def _normalise_line_ends(text: str) -> str:
    return _LINE_END.sub("\n", text) if "\r" in text else text


def _reject_nul(text: str) -> str:
    if "\0" in text:
        raise _ContainsNul
    return text
