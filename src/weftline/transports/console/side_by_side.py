"""Unified diffs as two columns: old lines on the left, new ones on the right, with the changed part of each marked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from weftline.history.text_diff import DiffBudget, TextDiff, text_diff
from weftline.kernel.thread_pools import TEXT_THREADS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_PLACE = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


class DiffSide(NamedTuple):
    """A line of one side: its number, and its text before, in and after the part that changed."""

    number: int
    before: str
    changed: str = ""
    after: str = ""


class DiffRow(NamedTuple):
    """A row of two columns. A gap has neither side: lines without a change are left out there."""

    kind: Literal["same", "changed", "gap"]
    old: DiffSide | None
    new: DiffSide | None


def rows_of(unified: str) -> list[DiffRow]:
    """Return the rows of a unified diff; removed lines stand next to the added ones that follow them."""
    rows: list[DiffRow] = []
    old_at = new_at = 1
    removed: list[str] = []
    added: list[str] = []
    for line in [*unified.splitlines(), "@@"]:
        place = _PLACE.match(line)
        if line.startswith(("-", "+")) and not (line.startswith("-") and added):
            (removed if line.startswith("-") else added).append(line[1:])
            continue
        rows += _paired(removed, added, old_at, new_at)
        old_at, new_at = old_at + len(removed), new_at + len(added)
        removed, added = ([line[1:]] if line.startswith("-") else []), []
        if place is not None:
            # A range without lines is named by the line before it.
            old_at, new_at = max(1, int(place[1])), max(1, int(place[2]))
            if rows:
                rows.append(DiffRow("gap", None, None))
        elif line.startswith(" "):
            rows.append(DiffRow("same", DiffSide(old_at, line[1:]), DiffSide(new_at, line[1:])))
            old_at, new_at = old_at + 1, new_at + 1
    return rows


def _paired(removed: Sequence[str], added: Sequence[str], old_at: int, new_at: int) -> Iterator[DiffRow]:
    for place in range(max(len(removed), len(added))):
        old = removed[place] if place < len(removed) else None
        new = added[place] if place < len(added) else None
        yield DiffRow("changed", _marked(old_at + place, old, new), _marked(new_at + place, new, old))


def _marked(number: int, text: str | None, other: str | None) -> DiffSide | None:
    """Return a line with the part that the other side does not have between the same beginning and end."""
    if text is None:
        return None
    if other is None:
        return DiffSide(number, text)
    start, end = _shared(text, other), 0
    longest = min(len(text), len(other)) - start
    while end < longest and text[-1 - end] == other[-1 - end]:
        end += 1
    return DiffSide(number, text[:start], text[start : len(text) - end], text[len(text) - end :])


def _shared(text: str, other: str) -> int:
    """Return how many characters two texts have in common at their start."""
    for place, (one, two) in enumerate(zip(text, other, strict=False)):
        if one != two:
            return place
    return min(len(text), len(other))


# Diffs of texts that pages compare themselves: sides of a merge, blocks of two prompts. Bounded in work and size.

# For all diffs of one page: a tenth of a second of work.
_STEPS, _CHARACTERS = 100_000, 60_000


async def compared(pairs: Sequence[tuple[str, str]]) -> list[TextDiff]:
    """Return the unified diff of each pair of texts; lines beyond the bounds of a page are left out and counted."""
    return await TEXT_THREADS.run(_compare, pairs)


def as_text(value: object) -> str:
    """Return a stored value as it is compared: a text as it is, anything else as indented JSON."""
    return value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _compare(pairs: Sequence[tuple[str, str]]) -> list[TextDiff]:
    budget = DiffBudget(_STEPS, _CHARACTERS)
    return [text_diff(before, after, budget) for before, after in pairs]
