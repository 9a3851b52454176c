"""Programs: cut before classes and functions, else at blank lines, else between lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weft.capabilities.indexing.chunking.boundaries import BLOCK, LINE, Label, Outline, section
from weft.capabilities.indexing.chunking.model import CodeSymbol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_DEFINITION = re.compile(
    r"^(?P<indent>[ \t]*+)(?:(?:export|default|pub(?:lic|\([a-z]+\))?|private|protected|internal|static|abstract|final"
    r"|sealed|open|override|async|suspend|inline|data|case|unsafe|extern|local|partial)[ \t]++)*+"
    r"(?:class|interface|struct|enum|trait|impl|object|module|namespace|protocol|extension|record"
    r"|def|fn|func|fun|function|sub|proc)[ \t]++(?P<name>[\w$]+(?:(?:::|\.)[\w$]+)*)",
    re.MULTILINE,
)
_LINE = re.compile(r"[^\n]*+\n|[^\n]++")
# Who is nested deeper is called after those around it all the same.
_DEEPEST_NAMED = 12


def outline_of_code(text: str, names: Sequence[CodeSymbol]) -> Outline:
    """Return where a program may be cut; without names, they are looked for by their usual form."""
    named = sorted(names or _by_form(text), key=lambda part: (part.start, -part.end))
    outline = Outline(labels=list(_labels(named)))
    strengths = {start: section(depth) for start, depth in _depths(named)}
    after_blank = False
    for match in _LINE.finditer(text):
        strength = strengths.get(match.start(), BLOCK if after_blank else LINE)
        outline.place(match.start(), strength)
        after_blank = match[0].isspace()
    return outline


def _by_form(text: str) -> Iterator[CodeSymbol]:
    """Yield definitions, each lasting until a line that is indented no more than its own."""
    open_parts: list[tuple[int, int, str]] = []
    for match in _DEFINITION.finditer(text):
        indent = len(match["indent"].expandtabs(4))
        while open_parts and open_parts[-1][0] >= indent:
            _, start, name = open_parts.pop()
            yield CodeSymbol(start, match.start(), name)
        open_parts.append((indent, match.start(), match["name"]))
    for _, start, name in open_parts:
        yield CodeSymbol(start, len(text), name)


def _depths(named: Sequence[CodeSymbol]) -> Iterator[tuple[int, int]]:
    """Yield where each part begins and how deep it is; what begins with its first part begins once."""
    ends: list[int] = []
    for part in named:
        while ends and ends[-1] <= part.start:
            ends.pop()
        ends.append(part.end)
        yield part.start, len(ends)


def _labels(named: Sequence[CodeSymbol]) -> Iterator[Label]:
    """Yield a label where a part begins, and where one ends within another."""
    yield Label(0, (), "code")
    within: list[CodeSymbol] = []
    for part in named:
        while within and within[-1].end <= part.start:
            ended = within.pop().end
            yield Label(ended, _path(within), "code")
        within.append(part)
        yield Label(part.start, _path(within), "code")
    while within:
        ended = within.pop().end
        yield Label(ended, _path(within), "code")


def _path(within: Sequence[CodeSymbol]) -> tuple[str, ...]:
    return tuple(outer.name for outer in within[:_DEEPEST_NAMED])
