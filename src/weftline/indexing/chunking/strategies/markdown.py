"""Markdown: sections under their headings; code blocks and table rows stay whole if they fit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weftline.indexing.chunking.model import BLOCK, LINE, WORD, Label, Outline, section_strength
from weftline.indexing.chunking.sentences import add_sentences

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
_UNDERLINE = re.compile(r" {0,3}(=++|-++)[ \t]*+$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"[ \t]*+(?:[-*+]|\d{1,9}[.)])[ \t]")
_BLANK = " \t"
_MAX_HEADING = 200


def outline_of_markdown(text: str) -> Outline:
    return _Scan(text).outline


def title_of_markdown(text: str) -> str:
    """Return the first heading of the highest level."""
    for label in outline_of_markdown(text).labels:
        if len(label.path) == 1:
            return label.path[0]
    return ""


class _Scan:
    """Scans the lines once; a paragraph stays open until another block starts."""

    def __init__(self, text: str) -> None:
        self.outline = Outline()
        self._text = text
        self._path: list[tuple[int, str]] = []
        self._paragraph: int | None = None
        self._kind = ""
        self._below_heading = False
        self._lines = _lines(text)
        for start, line in self._lines:
            self._take(start, line)
        self._close_paragraph(len(text))

    def _take(self, start: int, line: str) -> None:
        first = line.lstrip()[:1]
        if not first:
            self._close_paragraph(start)
        elif first == "#" and (heading := _HEADING.match(line)):
            self._close_paragraph(start)
            self._heading(start, len(heading[1]), _without_closing(line[heading.end() :]))
        elif first in "`~" and (fence := _FENCE.match(line)):
            self._close_paragraph(start)
            self._block(start, "code", BLOCK)
            self._skip_to_closing(fence[1])
        elif first == "|":
            self._row(start)
        elif first in "=-" and self._paragraph is not None and (line_below := _UNDERLINE.match(line)):
            self._underlined(start, 1 if line_below[1][0] == "=" else 2)
        elif first in "-*+0123456789" and _ITEM.match(line):
            self._item(start)
        else:
            self._prose(start)

    def _heading(self, start: int, level: int, name: str) -> None:
        self._path = [above for above in self._path if above[0] < level]
        self._path.append((level, name[:_MAX_HEADING]))
        # A heading directly followed by another stays with it.
        self.outline.add_boundary(start, WORD if self._below_heading else section_strength(level))
        self._label(start, "")
        self._below_heading = True

    def _underlined(self, start: int, level: int) -> None:
        first = start if self._paragraph is None else self._paragraph
        self._paragraph = None
        self._heading(first, level, " ".join(self._text[first:start].split()))

    def _skip_to_closing(self, fence: str) -> None:
        for _, line in self._lines:
            closing = line.strip()
            if closing.startswith(fence) and not closing.strip(fence[0]):
                return

    def _row(self, start: int) -> None:
        if self._kind == "table":
            self.outline.add_boundary(start, LINE)
        else:
            self._close_paragraph(start)
            self._block(start, "table", BLOCK)

    def _item(self, start: int) -> None:
        if self._paragraph is not None:
            add_sentences(self.outline, self._text, self._paragraph, start)
            self.outline.add_boundary(start, LINE)
        else:
            self._block(start, "prose", BLOCK)
        self._paragraph = start

    def _prose(self, start: int) -> None:
        if self._paragraph is None:
            self._block(start, "prose", BLOCK)
            self._paragraph = start

    def _block(self, start: int, kind: str, strength: int) -> None:
        self.outline.add_boundary(start, WORD if self._below_heading else strength)
        self._below_heading = False
        if kind != self._kind:
            self._label(start, kind)

    def _close_paragraph(self, end: int) -> None:
        if self._paragraph is not None:
            add_sentences(self.outline, self._text, self._paragraph, end)
            self._paragraph = None
        elif self._kind == "table":
            self._kind = "ended table"

    def _label(self, start: int, kind: str) -> None:
        self._kind = kind
        self.outline.labels.append(Label(start, tuple(name for _, name in self._path if name), kind))


def _without_closing(heading: str) -> str:
    """Return the text of a heading, without closing number signs."""
    text = heading.strip()
    bare = text.rstrip("#")
    return text if bare and bare[-1] not in _BLANK else bare.rstrip()


def _lines(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for line in text.split("\n"):
        yield start, line
        start += len(line) + 1
