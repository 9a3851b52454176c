"""Source code: split before classes and functions, else at blank lines, else between lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weftline.indexing.chunking.model import BLOCK, LINE, CodeSymbol, Label, Outline, section_strength

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
# Deeper symbols keep the path of the outer ones.
_MAX_PATH = 12


def outline_of_code(text: str, names: Sequence[CodeSymbol]) -> Outline:
    """Return the outline of source code; without given symbols, definitions are found by a regular expression."""
    symbols = sorted(names or _find_definitions(text), key=lambda symbol: (symbol.start, -symbol.end))
    outline = Outline(labels=list(_labels(symbols)))
    strengths = {start: section_strength(depth) for start, depth in _depths(symbols)}
    after_blank = False
    for match in _LINE.finditer(text):
        strength = strengths.get(match.start(), BLOCK if after_blank else LINE)
        outline.add_boundary(match.start(), strength)
        after_blank = match[0].isspace()
    return outline


def _find_definitions(text: str) -> Iterator[CodeSymbol]:
    """Yield definitions, each up to a line that is not indented deeper."""
    open_symbols: list[tuple[int, int, str]] = []
    for match in _DEFINITION.finditer(text):
        indent = len(match["indent"].expandtabs(4))
        while open_symbols and open_symbols[-1][0] >= indent:
            _, start, name = open_symbols.pop()
            yield CodeSymbol(start, match.start(), name)
        open_symbols.append((indent, match.start(), match["name"]))
    for _, start, name in open_symbols:
        yield CodeSymbol(start, len(text), name)


def _depths(symbols: Sequence[CodeSymbol]) -> Iterator[tuple[int, int]]:
    """Yield the start and depth of each symbol."""
    ends: list[int] = []
    for symbol in symbols:
        while ends and ends[-1] <= symbol.start:
            ends.pop()
        ends.append(symbol.end)
        yield symbol.start, len(ends)


def _labels(symbols: Sequence[CodeSymbol]) -> Iterator[Label]:
    """Yield a label where a symbol starts, and where one ends within another."""
    yield Label(0, (), "code")
    enclosing: list[CodeSymbol] = []
    for symbol in symbols:
        while enclosing and enclosing[-1].end <= symbol.start:
            ended = enclosing.pop().end
            yield Label(ended, _path(enclosing), "code")
        enclosing.append(symbol)
        yield Label(symbol.start, _path(enclosing), "code")
    while enclosing:
        ended = enclosing.pop().end
        yield Label(ended, _path(enclosing), "code")


def _path(enclosing: Sequence[CodeSymbol]) -> tuple[str, ...]:
    return tuple(outer.name for outer in enclosing[:_MAX_PATH])
