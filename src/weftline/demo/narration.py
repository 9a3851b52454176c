"""Output of the demo: who does what, in colour on a terminal."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

_COLOURS = {"bold": "1", "dim": "2", "planner": "36", "analysis": "33", "remediation": "35", "user": "32"}
_WIDTH = 96
_ARGUMENT = 58
_NUMERIC = frozenset("0123456789.,-$%")


class Narrator:
    """Prints the story."""

    def __init__(self) -> None:
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    def chapter(self, title: str) -> None:
        self._print(f"\n{self._paint('bold', title)}")

    def aside(self, text: str) -> None:
        self._print(*(self._paint("dim", line) for line in textwrap.wrap(text, _WIDTH)), sep="\n")

    def says(self, who: str, text: str) -> None:
        wrapped = textwrap.wrap(text, _WIDTH - 14)
        for place, line in enumerate(wrapped):
            name = who if place == 0 else ""
            self._print(f"{self._paint(who, name.rjust(12))}  {line}")

    def does(self, who: str, action: str, arguments: Mapping[str, Any], result: str) -> None:
        given = ", ".join(f"{name}={_short(value)}" for name, value in arguments.items() if name != "session_id")
        self._print(f"{self._paint(who, who.rjust(12))}  {action}({given})")
        self.result(result)

    def result(self, text: str) -> None:
        self._print(f"{'':>12}  {self._paint('dim', '→ ' + text)}")

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Print rows below their headings; columns of numbers are right-aligned."""
        columns = list(zip(*rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        sides = [">" if _NUMERIC.issuperset("".join(column[1:])) else "<" for column in columns]
        for place, row in enumerate(rows):
            cells = [f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)]
            line = "  ".join(cells).rstrip()
            self._print(f"{'':>4}{self._paint('bold', line) if not place else line}")

    def commands(self, lines: Sequence[str]) -> None:
        self._print(*(f"    {line}" for line in lines), sep="\n")

    def _paint(self, style: str, text: str) -> str:
        return f"\x1b[{_COLOURS.get(style, '0')}m{text}\x1b[0m" if self._colour else text

    def _print(self, *lines: str, sep: str = " ") -> None:
        print(*lines, sep=sep, flush=True)  # noqa: T201 - the demo's whole point


def _short(value: object) -> str:
    """Return an argument shortened to fit a line."""
    if isinstance(value, str):
        return f'"{textwrap.shorten(value, _ARGUMENT, placeholder="…")}"'
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_short, value))}]"
    return str(value)
