"""Where a text may be cut, how gladly, and what its parts are called."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal

# How much is lost by cutting at a place: the higher, the better a place it is.
CHARACTER, WORD, SENTENCE, LINE, BLOCK, SECTION = range(6)
DEEPEST_SECTION = 6

_START = attrgetter("start")


def section(level: int) -> int:
    """Return how gladly a text is cut before a heading of this level, 1 being the highest."""
    return SECTION + DEEPEST_SECTION - min(level, DEEPEST_SECTION)


@dataclass(frozen=True, slots=True)
class Label:
    """What a text is from ``start`` until the next label. What has no kind, as a heading, is of the kind beside it."""

    start: int
    path: tuple[str, ...] = ()
    kind: str = "prose"
    speaker: str = ""
    timestamp: int | None = None


@dataclass(slots=True)
class Outline:
    """The places of a text, in their order: ``starts[n]`` may begin a piece, and ``strengths[n]`` says how gladly.

    What lies between two places stays together if it fits. ``naming`` says what a piece with several labels is called:
    after what they have in common, or from the first to the last.
    """

    naming: Literal["common", "range"] = "common"
    starts: list[int] = field(default_factory=list)
    strengths: list[int] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)

    def place(self, start: int, strength: int) -> None:
        """Add a place behind all others; the stronger counts where there is one already."""
        if self.starts and self.starts[-1] >= start:
            self.strengths[-1] = max(self.strengths[-1], strength)
        else:
            self.starts.append(start)
            self.strengths.append(strength)

    def labels_of(self, start: int, end: int) -> list[Label]:
        """Return the labels that hold for some of the characters from start to end."""
        first = bisect_right(self.labels, start, key=_START) - 1
        last = bisect_right(self.labels, end - 1, key=_START)
        return self.labels[max(first, 0) : last]
