"""Text diff: a unified diff by lines, or with the changed words marked, in bounded time and size.

Lines are matched as in git's patience diff: lines that occur once on both sides are anchors, and what lies between them
is compared by Myers' algorithm. Both draw on a limited number of steps; when these are used up, what is left is shown
as replaced. So no input makes a diff slow, it only makes it coarse.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CONTEXT_LINES = 3
# Longer lines are cut around their change.
_MAX_LINE = 400
_BEFORE_CHANGE = 80
_CUT = "…"
# Myers' algorithm keeps a row for every difference.
_MAX_DIFFERENCES = 400
_WORD = re.compile(r"\s+|\w+|[^\w\s]")
# Unchanged words shown around a change in a long line, and characters of a change.
_CONTEXT_WORDS = 20
_MAX_MARKED = 2_000


class Match(NamedTuple):
    """Elements that are equal on both sides: ``size`` of them from ``old`` and ``new`` on."""

    old: int
    new: int
    size: int


class Hunk(NamedTuple):
    """A changed range of both sides."""

    old: slice
    new: slice


class DiffBudget:
    """Steps and characters that all diffs of one response may use."""

    def __init__(self, steps: int, characters: int) -> None:
        self.steps = steps
        self.characters = characters

    def spend(self, steps: int) -> bool:
        """Use steps; return whether there were enough."""
        self.steps -= steps
        return self.steps >= 0


class TextDiff(NamedTuple):
    """A unified diff, and the number of its lines that were left out."""

    text: str
    omitted_lines: int


def text_diff(before: str, after: str, budget: DiffBudget, *, words: bool = False) -> TextDiff:
    """Return the unified diff of two texts, or one that marks words as [-removed-] and {+added+}."""
    old, new = before.splitlines(), after.splitlines()
    hunks = changed_ranges(old, new, budget)
    lines = list(_unified(old, new, hunks, budget, words=words))
    shown = _fitting(lines, budget)
    return TextDiff("\n".join(lines[:shown]), len(lines) - shown)


def changed_ranges(old: Sequence[str], new: Sequence[str], budget: DiffBudget) -> list[Hunk]:
    """Return the ranges that differ, in order."""
    hunks, at_old, at_new = [], 0, 0
    for match in [*_merged(matches(old, new, budget)), Match(len(old), len(new), 0)]:
        if match.old > at_old or match.new > at_new:
            hunks.append(Hunk(slice(at_old, match.old), slice(at_new, match.new)))
        at_old, at_new = match.old + match.size, match.new + match.size
    return hunks


def matches(old: Sequence[str], new: Sequence[str], budget: DiffBudget) -> list[Match]:
    """Return equal ranges of two sequences, in order."""
    found: list[Match] = []
    ranges = [(0, len(old), 0, len(new))]
    while ranges:
        start, end, new_start, new_end = ranges.pop()
        if not budget.spend(end - start + new_end - new_start):
            break
        head = _common_start(old, new, start, end, new_start, new_end)
        start, new_start = start + head, new_start + head
        tail = _common_end(old, new, start, end, new_start, new_end)
        end, new_end = end - tail, new_end - tail
        found += [Match(start - head, new_start - head, head), Match(end, new_end, tail)]
        if start == end or new_start == new_end:
            continue
        anchors = _anchors(old[start:end], new[new_start:new_end])
        if not anchors:
            inner = _myers(old[start:end], new[new_start:new_end], budget)
            found += [Match(start + at, new_start + new_at, 1) for at, new_at in inner]
            continue
        places = [(start + at, new_start + new_at) for at, new_at in anchors]
        found += [Match(at, new_at, 1) for at, new_at in places]
        edges = [(start - 1, new_start - 1), *places, (end, new_end)]
        ranges += [
            (at + 1, next_at, new_at + 1, new_next)
            for (at, new_at), (next_at, new_next) in pairwise(edges)
            if next_at > at + 1 and new_next > new_at + 1
        ]
    return sorted(match for match in found if match.size)


def _merged(found: Sequence[Match]) -> list[Match]:
    """Join matches that follow each other on both sides."""
    merged: list[Match] = []
    for match in found:
        last = merged[-1] if merged else None
        if last and (last.old + last.size, last.new + last.size) == (match.old, match.new):
            merged[-1] = Match(last.old, last.new, last.size + match.size)
        else:
            merged.append(match)
    return merged


def _common_start(old: Sequence[str], new: Sequence[str], start: int, end: int, new_start: int, new_end: int) -> int:
    count, limit = 0, min(end - start, new_end - new_start)
    while count < limit and old[start + count] == new[new_start + count]:
        count += 1
    return count


def _common_end(old: Sequence[str], new: Sequence[str], start: int, end: int, new_start: int, new_end: int) -> int:
    count, limit = 0, min(end - start, new_end - new_start)
    while count < limit and old[end - 1 - count] == new[new_end - 1 - count]:
        count += 1
    return count


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return elements that occur once on both sides, as the longest run in the same order."""
    in_old, in_new = Counter(old), Counter(new)
    place = {text: at for at, text in enumerate(new) if in_new[text] == 1}
    pairs = [(at, place[text]) for at, text in enumerate(old) if in_old[text] == 1 and text in place]
    # Longest increasing subsequence of the places in ``new``: ends[n] is the smallest end of a run of n + 1.
    ends: list[int] = []
    run: list[int] = []
    before: list[int] = []
    for at, (_, new_at) in enumerate(pairs):
        length = bisect_left(ends, new_at)
        before.append(run[length - 1] if length else -1)
        ends[length : length + 1] = [new_at]
        run[length : length + 1] = [at]
    chosen, at = [], run[-1] if run else -1
    while at >= 0:
        chosen.append(pairs[at])
        at = before[at]
    return chosen[::-1]


def _myers(old: Sequence[str], new: Sequence[str], budget: DiffBudget) -> list[tuple[int, int]]:
    """Return the equal elements of the shortest edit script; none if it is too long or too slow to find."""
    reach, rows = {1: 0}, list[dict[int, int]]()
    for differences in range(min(len(old) + len(new), _MAX_DIFFERENCES) + 1):
        rows.append(dict(reach))
        for diagonal in range(-differences, differences + 1, 2):
            down = diagonal == -differences or (diagonal != differences and reach[diagonal - 1] < reach[diagonal + 1])
            at = reach[diagonal + 1] if down else reach[diagonal - 1] + 1
            begin = at
            while at < len(old) and 0 <= at - diagonal < len(new) and old[at] == new[at - diagonal]:
                at += 1
            reach[diagonal] = at
            if not budget.spend(1 + at - begin):
                return []
            if at >= len(old) and at - diagonal >= len(new):
                return _path(rows, len(old), len(new))
    return []


def _path(rows: Sequence[dict[int, int]], at: int, new_at: int) -> list[tuple[int, int]]:
    """Walk back through the rows of Myers' algorithm; return the equal elements in order."""
    equal = []
    for differences in range(len(rows) - 1, -1, -1):
        reach, diagonal = rows[differences], at - new_at
        down = diagonal == -differences or (diagonal != differences and reach[diagonal - 1] < reach[diagonal + 1])
        previous = diagonal + 1 if down else diagonal - 1
        begin = reach[previous] if differences else 0
        new_begin = begin - previous if differences else 0
        while at > begin and new_at > new_begin:
            at, new_at = at - 1, new_at - 1
            equal.append((at, new_at))
        if differences:
            at, new_at = begin, new_begin
    return equal[::-1]


def _unified(
    old: Sequence[str], new: Sequence[str], hunks: Sequence[Hunk], budget: DiffBudget, *, words: bool
) -> Iterator[str]:
    """Yield the lines of a unified diff; in a diff by words, lines have no sign in front."""
    for group in _grouped(hunks):
        start, new_start = (max(0, group[0].old.start - _CONTEXT_LINES), max(0, group[0].new.start - _CONTEXT_LINES))
        lead = min(group[0].old.start - start, group[0].new.start - new_start)
        start, new_start = group[0].old.start - lead, group[0].new.start - lead
        end = min(len(old), group[-1].old.stop + _CONTEXT_LINES)
        new_end = group[-1].new.stop + end - group[-1].old.stop
        yield f"@@ -{_place(start, end)} +{_place(new_start, new_end)} @@"
        sign = "" if words else " "
        at = start
        for hunk in group:
            yield from (f"{sign}{_clipped(line)}" for line in old[at : hunk.old.start])
            if words:
                yield from _by_words(old[hunk.old], new[hunk.new], budget)
            else:
                yield from _by_lines(old[hunk.old], new[hunk.new])
            at = hunk.old.stop
        yield from (f"{sign}{_clipped(line)}" for line in old[at:end])


def _grouped(hunks: Sequence[Hunk]) -> list[list[Hunk]]:
    """Group hunks whose context lines would meet."""
    groups: list[list[Hunk]] = []
    for hunk in hunks:
        if groups and hunk.old.start - groups[-1][-1].old.stop <= 2 * _CONTEXT_LINES:
            groups[-1].append(hunk)
        else:
            groups.append([hunk])
    return groups


def _place(start: int, end: int) -> str:
    """Return a range of lines as unified diffs write it."""
    count = end - start
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"


def _by_lines(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield removed lines, then added ones; long ones are cut around the first difference to their counterpart."""
    for sign, lines, others in (("-", old, new), ("+", new, old)):
        for at, line in enumerate(lines):
            other = others[at] if at < len(others) else ""
            yield f"{sign}{_clipped(line, other)}"


def _clipped(line: str, other: str | None = None) -> str:
    if len(line) <= _MAX_LINE:
        return line
    start = 0 if other is None else max(0, _first_difference(line, other) - _BEFORE_CHANGE)
    end = start + _MAX_LINE
    return f"{_CUT if start else ''}{line[start:end]}{_CUT if end < len(line) else ''}"


def _first_difference(line: str, other: str) -> int:
    """Return how many characters two lines have in common at their start."""
    low, high = 0, min(len(line), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if line[:middle] == other[:middle] else (low, middle - 1)
    return low


def _by_words(old: Sequence[str], new: Sequence[str], budget: DiffBudget) -> Iterator[str]:
    before, after = _WORD.findall("\n".join(old)), _WORD.findall("\n".join(new))
    parts, at = [], 0
    for hunk in changed_ranges(before, after, budget):
        parts.append(_context(before[at : hunk.old.start], first=at == 0))
        parts.append(_marked("[-", before[hunk.old], "-]"))
        parts.append(_marked("{+", after[hunk.new], "+}"))
        at = hunk.old.stop
    parts.append(_context(before[at:], first=at == 0, last=True))
    yield from "".join(parts).split("\n")


def _marked(opening: str, words: Sequence[str], closing: str) -> str:
    text = "".join(words)
    cut = _CUT if len(text) > _MAX_MARKED else ""
    return f"{opening}{text[:_MAX_MARKED]}{cut}{closing}" if text else ""


def _context(words: Sequence[str], *, first: bool, last: bool = False) -> str:
    """Return unchanged words; of many, those next to a change."""
    if len(words) <= 2 * _CONTEXT_WORDS:
        return "".join(words)
    start = "" if first else "".join(words[:_CONTEXT_WORDS])
    end = "" if last else "".join(words[-_CONTEXT_WORDS:])
    return f"{start}{_CUT}{end}"


def _fitting(lines: Sequence[str], budget: DiffBudget) -> int:
    """Return how many lines fit, and use up their characters."""
    for number, line in enumerate(lines):
        budget.characters -= len(line) + 1
        if budget.characters < 0:
            return number
    return len(lines)
