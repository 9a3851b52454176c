"""Bars that are made on the server: parts of a whole as rectangles of an SVG, 1,000 units wide."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

WIDTH = 1_000


class Rectangle(NamedTuple):
    """A part of a bar: its class in the style sheet, where it is, and what it is."""

    kind: str
    x: float
    width: float
    label: str
    is_marked: bool = False


class Part(NamedTuple):
    """A part of a whole to draw; a marked one has a line at its end."""

    kind: str
    amount: float
    label: str
    is_marked: bool = False


def segments(parts: Iterable[Part], whole: float | None = None) -> list[Rectangle]:
    """Return parts next to each other, in their proportion to the whole; by default that is their sum."""
    given = list(parts)
    total = whole or sum(part.amount for part in given)
    drawn, at = [], 0.0
    for part in given:
        width = min(WIDTH - at, part.amount / total * WIDTH) if total else 0.0
        drawn.append(Rectangle(part.kind, round(at, 2), round(width, 2), part.label, part.is_marked))
        at += width
    return drawn
