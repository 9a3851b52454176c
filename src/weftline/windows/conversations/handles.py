"""Handles of whole texts: how a shortened result names its text, and how calls of tools ask for it or some lines."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from weftline.windows.compaction.tool_outputs import lines_of

_RANGE = r"[0-9]{1,9}(?:-[0-9]{1,9})?"
_HANDLE = re.compile(rf"\bwl-([0-9a-f]{{16}})(?::({_RANGE}(?:,{_RANGE})*))?(?![0-9a-f])")
HANDLE_PATTERN = r"^wl-[0-9a-f]{16}\Z"
_START = b"wl-"
# Whoever asks for more at a time asks again.
MAX_NAMED = 5
# Characters of a text that are added to a result at once.
_MAX_ADDED = 100_000


class NamedLines(NamedTuple):
    """A handle in the arguments of a call, and the ranges of lines it asks for, counted from 1; none: all."""

    handle: str
    ranges: tuple[tuple[int, int], ...] = ()

    def select(self, text: str) -> str:
        """Return the lines of a text that are asked for."""
        if not self.ranges:
            return text
        lines = lines_of(text)
        return "\n".join(line for first, last in self.ranges for line in lines[max(first - 1, 0) : last])

    def opened(self, text: str) -> tuple[str, str]:
        """Return in words what is asked for, and the lines that there are of it, cut at the limit.

        Ranges beyond the end are named in the first, so that nothing is missing without a word.
        """
        lines = lines_of(text)
        asked = self.ranges or ((1, len(lines)),)
        missing = [_range(first, last) for first, last in self.ranges if first > len(lines)]
        shown = [(max(first, 1), min(last, len(lines))) for first, last in asked if first <= len(lines)]
        place = self.handle
        if self.ranges and shown:
            place += f", {'lines' if len(shown) > 1 or shown[0][0] < shown[0][1] else 'line'} "
            place += " and ".join(_range(*each) for each in shown)
        if missing or shown != list(asked):
            place += f" (it has {len(lines):,} lines{''.join(f': none is {each}' for each in missing)})"
        return place, self._cut(lines, shown)

    def _cut(self, lines: list[str], shown: list[tuple[int, int]]) -> str:
        """Return these lines as far as they have room, and say where they go on."""
        added: list[str] = []
        room = _MAX_ADDED
        for first, last in shown:
            for number in range(first, last + 1):
                line = lines[number - 1]
                room -= len(line) + 1
                if room < 0:
                    # A line that has no room by itself is cut.
                    if not added:
                        added.append(line[:_MAX_ADDED])
                        number += 1  # noqa: PLW2901 - it goes on after this line
                    rest = f"line {number:,}" if number == last else f"lines {number:,} to {last:,}"
                    return "\n".join([*added, f"[{rest} left out: ask for {self.handle}:{number}-{last}]"])
                added.append(line)
        return "\n".join(added)


def _range(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def handle_of(text: str) -> str:
    """Return the handle of a text. It opens nothing by itself: texts are looked up among those of one agent."""
    return f"wl-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def named_handles(arguments: bytes) -> list[NamedLines]:
    """Return the handles that the arguments of a call name, each once."""
    if _START not in arguments:
        return []
    found = (
        NamedLines(f"wl-{match[1]}", tuple(map(_numbers, match[2].split(",") if match[2] else ())))
        for match in _HANDLE.finditer(arguments.decode(errors="replace"))
    )
    return list(dict.fromkeys(found))


def _numbers(written: str) -> tuple[int, int]:
    first, _, last = written.partition("-")
    numbers = sorted((int(first), int(last or first)))
    return numbers[0], numbers[1]
