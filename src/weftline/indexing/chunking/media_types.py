"""Media type of a document: declared, or detected from its name or content."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any, TypedDict

import msgspec

from weftline.indexing.chunking.strategies.records import looks_like_log
from weftline.indexing.chunking.strategies.transcript import looks_like_transcript
from weftline.kernel.data_files import JsonFile

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
