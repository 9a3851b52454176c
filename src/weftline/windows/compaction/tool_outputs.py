"""Shorter results of tools: the shape, the extremes, the errors and what was referred to later stay.

A result is JSON, or lines of a table, log, stack trace, source code or command. Lines have a rank by their kind; the
best ones within the tokens stay in their order, and a note says how many of which kind were left out.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from weftline.windows.compaction.json_outputs import slim_json
from weftline.windows.compaction.output_lines import OutputKind, kind_of_lines, rank_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weftline.kernel.tokens import TokenCounter

# A note about lines that were left out takes about this many tokens.
_NOTE_TOKENS = 10
_GAP_TOKENS = 2
_GAP = "[...]"
# Up to this many gaps have a note each; more have a sign each and one note at the end.
_MAX_NOTES = 3
_LONG_LINE = 400
_JUDGED = 2_000
_LINE_HEAD, _LINE_TAIL = 240, 80
# Names, numbers, paths and addresses: what a later message can refer to.
_TOKEN = re.compile(r"[A-Za-z0-9_][\w./:@#-]{2,}")
_DISTINCTIVE = re.compile(r"[0-9_./@#]|.-.|[a-z][A-Z]")


class SlimOutput(NamedTuple):
    """A shortened result. ``left_out`` says what is not in it, such as "214 rows"; empty if everything is."""

    text: str
    left_out: str = ""


def slim_output(text: str, target_tokens: int, count: TokenCounter, wanted: frozenset[str] = frozenset()) -> SlimOutput:
    """Shorten a result of a tool to about the target. ``wanted``: names and numbers that were referred to later."""
    if count(text) <= target_tokens:
        return SlimOutput(text)
    slim = slim_json(text, target_tokens, count, wanted)
    if slim is not None:
        return SlimOutput(slim.text, slim.left_out)
    lines = text.splitlines()
    if len(lines) < 3:  # noqa: PLR2004 - nothing to choose from
        return _clipped(text, target_tokens)
    # Lines of a megabyte are judged by their beginning.
    heads = [line[:_JUDGED] for line in lines]
    kind = kind_of_lines(heads)
    ranks = rank_lines(heads, kind, wanted)
    chosen = _chosen(lines, ranks, target_tokens, count)
    return _rendered(lines, chosen, kind)


def references(text: str) -> Iterator[str]:
    """Yield the names, numbers, paths and addresses in a text."""
    return (match.rstrip(".:") for match in _TOKEN.findall(text) if _DISTINCTIVE.search(match))


def clip_line(line: str) -> str:
    """Return a line without the middle if it is very long."""
    if len(line) <= _LONG_LINE:
        return line
    left_out = len(line) - _LINE_HEAD - _LINE_TAIL
    return f"{line[:_LINE_HEAD]} [{left_out} characters left out] {line[-_LINE_TAIL:]}"


def _clipped(text: str, target_tokens: int) -> SlimOutput:
    """Return head and tail of a text without lines."""
    kept = max(target_tokens - _NOTE_TOKENS, 8) * 3
    head, tail = kept * 3 // 4, kept // 4
    left_out = f"{len(text) - head - tail:,} characters"
    return SlimOutput(f"{text[:head]} [{left_out} left out] {text[-tail:]}", left_out)


def _chosen(lines: Sequence[str], ranks: Sequence[int], target_tokens: int, count: TokenCounter) -> list[int]:
    """Return the positions of the best lines that fit, in order; always the best one."""
    room = target_tokens - _NOTE_TOKENS
    chosen: set[int] = set()
    for at in sorted(range(len(lines)), key=ranks.__getitem__):
        cost = count(clip_line(lines[at])) + 1
        if at - 1 not in chosen and at + 1 not in chosen:
            cost += _GAP_TOKENS
        if cost <= room or not chosen:
            chosen.add(at)
            room -= cost
        elif room < _GAP_TOKENS * 2:
            break
    return sorted(chosen)


def _rendered(lines: Sequence[str], chosen: Sequence[int], kind: OutputKind) -> SlimOutput:
    left_out = len(lines) - len(chosen)
    if not left_out:
        return SlimOutput("\n".join(map(clip_line, lines)))
    places = [-1, *chosen, len(lines)]
    gaps = sum(after - before > 1 for before, after in pairwise(places))
    found: list[str] = []
    for before, after in pairwise(places):
        if after - before > 1:
            found.append(_note(after - before - 1, kind) if gaps <= _MAX_NOTES else _GAP)
        if after < len(lines):
            found.append(clip_line(lines[after]))
    if gaps > _MAX_NOTES:
        found.append(_note(left_out, kind))
    return SlimOutput("\n".join(found), f"{left_out:,} {kind.noun(left_out)}")


def _note(number: int, kind: OutputKind) -> str:
    alike = " like these" if kind.is_uniform and number > 1 else ""
    return f"[{number:,} {kind.noun(number)}{alike} left out]"
