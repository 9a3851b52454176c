"""What changed between two texts, line by line, as far as it is worth showing."""

from __future__ import annotations

import difflib
from typing import NamedTuple

MOST_CHARACTERS = 20_000
MOST_LINES = 500
# Beyond so many compared lines in one answer, people look at single keys.
MOST_LINES_IN_ALL = 5_000


class TextDiff(NamedTuple):
    """A unified diff, or why there is none."""

    text: str | None
    why_none: str | None = None


class TextDiffs:
    """Text diffs of one answer, which together take no more than a moment."""

    def __init__(self) -> None:
        self._room = MOST_LINES_IN_ALL

    def between(self, before: str | None, after: str | None) -> TextDiff:
        """Return the diff of two values; None stands for one that is not there."""
        old, new = (before or "").splitlines(), (after or "").splitlines()
        if max(len(before or ""), len(after or "")) > MOST_CHARACTERS:
            return TextDiff(None, f"A value is longer than {MOST_CHARACTERS} characters.")
        if max(len(old), len(new)) > MOST_LINES:
            return TextDiff(None, f"A value has more than {MOST_LINES} lines.")
        self._room -= len(old) + len(new)
        if self._room < 0:
            return TextDiff(None, "The answer would be too long; compare fewer versions, or read the key.")
        return TextDiff("\n".join(_hunks(old, new)))


def _hunks(old: list[str], new: list[str]) -> list[str]:
    # The first two lines only name the texts, which the answer does itself.
    return list(difflib.unified_diff(old, new, lineterm=""))[2:]
