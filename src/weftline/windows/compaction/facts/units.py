"""Division of a message into units: sentences, list items, table rows, pieces of JSON, lines of code and logs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from weftline.indexing.chunking.sentences import sentence_ends
from weftline.windows.compaction.facts.values import MONTHS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Longer units are cut: nobody writes such a sentence.
MAX_UNIT = 400
# A longer run without white space is encoded data.
_MAX_RUN = 2_000
_FENCE = re.compile(r"[ \t]{0,8}(?:```|~~~)")
_MARKER = re.compile(r"[\s>]*(?:[-*+\u2022]\s+(?:\[[ xX]\]\s+)?|\d{1,3}[.)]\s+|#{1,6}\s+)?")
_BORDER = re.compile(r"[\s|:+=-]*\Z")
# The dot of an ordinal ends no sentence: 12. Mai.
_ORDINAL = re.compile(r"\b\d{1,2}\.\s+\Z")
_ORDINAL_LENGTH = 5
_MONTH = re.compile("(?:" + "|".join(MONTHS) + r")\b", re.IGNORECASE)
_JSON_BREAK = re.compile(r"(?<=[}\]]),\s*(?=[{\[])|(?<=[\d\"}\]el]),\s*(?=\")")
_JSON_LINE = re.compile(r"\s*[\[{]|\s*\"[^\"\n]{1,80}\"\s*:")
_LOG_LINE = re.compile(
    r"\s*\[?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d|(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|TRACE|CRITICAL)\b|"
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d)"
)


class Unit(NamedTuple):
    """A part of a message. ``is_data``: of JSON, a table or a log. ``header``: that of its table."""

    text: str
    is_code: bool = False
    is_data: bool = False
    header: str = ""


def units_of(text: str) -> Iterator[Unit]:
    """Yield the units of a message in order."""
    is_code, header = False, ""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if not line or line.isspace():
            header = ""
        elif _is_fence(line):
            is_code = not is_code
        elif is_code:
            yield from _pieces(line.strip(), is_code=True)
        elif not line.lstrip().startswith("|"):
            header = ""
            yield from _units_of_line(line)
        elif _is_header(lines, number):
            header = line
        elif not _BORDER.match(line):
            yield from _pieces(line.strip(), is_data=True, header=header)


def _is_fence(line: str) -> bool:
    return ("`" in line or "~" in line) and _FENCE.match(line) is not None


def _is_header(lines: Sequence[str], number: int) -> bool:
    """Tell whether a row of a table is its header: a border follows."""
    following = lines[number + 1] if number + 1 < len(lines) else ""
    return "-" in following and following.lstrip().startswith("|") and _BORDER.match(following) is not None


def _units_of_line(line: str) -> Iterator[Unit]:
    if _JSON_LINE.match(line):
        yield from _json_units(line)
    elif _LOG_LINE.match(line):
        yield from _pieces(line.strip(), is_data=True)
    else:
        yield from _sentences(line)


def _sentences(line: str) -> Iterator[Unit]:
    marker = _MARKER.match(line)
    start = marker.end() if marker is not None else 0
    for end, _ in sentence_ends(line, start, len(line)):
        if _ORDINAL.search(line, max(start, end - _ORDINAL_LENGTH), end) and _MONTH.match(line, end):
            continue
        yield from _pieces(line[start:end].strip())
        start = end
    yield from _pieces(line[start:].strip())


def _json_units(line: str) -> Iterator[Unit]:
    """Yield the objects of a line of JSON, or its fields if they are long."""
    if len(line) <= MAX_UNIT // 2:
        yield Unit(line.strip(), is_data=True)
        return
    start = 0
    for match in _JSON_BREAK.finditer(line):
        # Small neighbours stay together, so that a field keeps its object.
        if match.start() - start >= MAX_UNIT // 4:
            yield from _pieces(line[start : match.start()].strip(), is_data=True)
            start = match.end()
    yield from _pieces(line[start:].strip(), is_data=True)


def _pieces(text: str, *, is_code: bool = False, is_data: bool = False, header: str = "") -> Iterator[Unit]:
    """Yield a unit, in pieces if it is too long; runs without white space are left out."""
    start = 0
    while len(text) - start > MAX_UNIT:
        end = text.rfind(" ", start + MAX_UNIT // 2, start + MAX_UNIT)
        if end < 0:
            end = text.find(" ", start + MAX_UNIT, start + _MAX_RUN)
            if end < 0:
                gap = text.find(" ", start + _MAX_RUN)
                if gap < 0:
                    return
                start = gap + 1
                continue
        yield Unit(text[start:end], is_code, is_data, header)
        start = end + 1
    if start < len(text):
        yield Unit(text[start:], is_code, is_data, header)
