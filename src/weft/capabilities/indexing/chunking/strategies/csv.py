"""Tables as CSV: rows stay whole, and every piece knows the names of the columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weft.capabilities.indexing.chunking.boundaries import LINE, Label, Outline

if TYPE_CHECKING:
    from collections.abc import Iterator

# A quoted field may hold line breaks; a quote elsewhere is a character like others.
_ROW_END = re.compile(r'(?:(?<=[,;\t\n|])|(?<![\s\S]))"(?:[^"]|"")*+"|\n')
_LONGEST_NAMES = 400


def outline_of_rows(text: str) -> Outline:
    outline = Outline()
    starts = list(_row_starts(text))
    first = starts[1] if len(starts) > 1 else len(text)
    outline.labels.append(Label(0, (_column_names(text[:first]),), "table"))
    for start in starts:
        outline.place(start, LINE)
    return outline


def _row_starts(text: str) -> Iterator[int]:
    yield 0
    for match in _ROW_END.finditer(text):
        if match[0] == "\n" and match.end() < len(text):
            yield match.end()


def _column_names(row: str) -> str:
    """Return the first row as names; which sign parts them is seen by which occurs most."""
    between = max(",;\t|", key=row.count)
    names = [name.strip().strip('"').strip() for name in row.split(between)]
    return ", ".join(name for name in names if name)[:_LONGEST_NAMES]
