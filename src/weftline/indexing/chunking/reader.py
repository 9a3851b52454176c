"""Decodes documents to text; only encoding and line ends are changed."""

from __future__ import annotations

import codecs
import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

import msgspec

from weftline.indexing.chunking.outlines import looks_like_log, looks_like_transcript
from weftline.kernel.data_files import JsonFile
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


# Media type of a document: declared, or detected from its name or content.

TRANSCRIPTS = ("text/vtt", "application/x-subrip", "text/x-transcript")
# Declared by programs that did not check.
_UNSPECIFIC = ("", "text/plain", "application/octet-stream", "binary/octet-stream")


class _MediaTypes(TypedDict):
    """Types by their other names, and the suffixes of each type."""

    aliases: dict[str, str]
    suffixes: dict[str, str]


_media_types = JsonFile("indexing/chunking/media_types.json", _MediaTypes)
_TYPE_OF_SUFFIX = {
    suffix: media_type for media_type, suffixes in _media_types()["suffixes"].items() for suffix in suffixes.split()
}
_OTHER_CODE = ("text/javascript", "text/css", "application/yaml", "application/toml", "application/xml")
_NO_CODE = ("text/x-log", "text/x-transcript")

_MARKDOWN = re.compile(r"^(?:#{1,6} \S|```|~~~)", re.MULTILINE)
_HTML = re.compile(r"\s*+(?:<!--.*?-->\s*+)?<(?:!doctype html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_SUBRIP = re.compile(r"\s*+\d++\s*+(?<=\n)\d{1,2}:\d\d:\d\d,\d{3} --> ")
_SAMPLE_CHARACTERS = 20_000
_SAMPLE_LINES = 20


def canonical_type(media_type: str) -> str:
    """Return the canonical name of a media type, without parameters."""
    bare = media_type.partition(";")[0].strip().lower()
    return _media_types()["aliases"].get(bare, bare)


def is_code(media_type: str) -> bool:
    return media_type in _OTHER_CODE or (media_type.startswith("text/x-") and media_type not in _NO_CODE)


def declared_type(media_type: str | None, name: str) -> str | None:
    """Return the media type declared by the sender or the file name; None if it must be detected."""
    declared = canonical_type(media_type or "")
    if declared not in _UNSPECIFIC:
        return declared
    return _TYPE_OF_SUFFIX.get(PurePath(name).suffix.lower())


def detect_type(text: str) -> str:
    """Detect the media type of a text."""
    sample = text[:_SAMPLE_CHARACTERS]
    if sample.startswith("WEBVTT"):
        return "text/vtt"
    if _SUBRIP.match(sample):
        return "application/x-subrip"
    if sample.lstrip()[:1] in {"{", "["} and (structured := _structured_type(text)):
        return structured
    return _type_by_lines(sample)


def _type_by_lines(sample: str) -> str:
    if _HTML.match(sample):
        return "text/html"
    if sample.startswith("#!"):
        return "text/x-python" if "python" in sample[:80] else "text/x-sh"
    if looks_like_log(sample):
        return "text/x-log"
    if looks_like_transcript(sample):
        return "text/x-transcript"
    return "text/markdown" if _MARKDOWN.search(sample) else "text/plain"


def _structured_type(text: str) -> str | None:
    if _decoded(text) is not None:
        return "application/json"
    lines = [line for line in text[:_SAMPLE_CHARACTERS].split("\n")[:_SAMPLE_LINES] if line.strip()]
    whole = lines if len(text) <= _SAMPLE_CHARACTERS else lines[:-1]
    several = len(whole) > 1 and all(isinstance(_decoded(line), dict) for line in whole)
    return "application/x-ndjson" if several else None


def _decoded(text: str) -> Any:  # noqa: ANN401 - JSON of any shape
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
