"""Windows of a text for an encoder: neighbouring segments, as many as fit, each window beginning with the last ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# Tokens of a window, with start and end.
MAX_TOKENS = 160
# Tokens of the window before that are read again, so that an instruction is seen with what precedes it.
_OVERLAP = 40
_START, _END = 101, 102


class TokenWindow(NamedTuple):
    """Token ids with start and end, and which segments they are of."""

    tokens: list[int]
    first: int
    last: int


def token_windows(segments: Sequence[Sequence[int]]) -> list[TokenWindow]:
    """Return the windows of segments, each given by its token ids; longer segments are cut."""
    room = MAX_TOKENS - 2
    windows: list[TokenWindow] = []
    first, count = 0, 0
    for number, segment in enumerate(segments):
        size = min(len(segment), room)
        if count and count + size > room:
            windows.append(_window(segments, first, number))
            first, count = _again(segments, first, number, room - size)
        count += size
    if count:
        windows.append(_window(segments, first, len(segments)))
    return windows


def _again(segments: Sequence[Sequence[int]], first: int, end: int, room: int) -> tuple[int, int]:
    """Return from which segment on the next window begins, and the tokens of what it repeats."""
    count, start = 0, end
    while start - 1 > first and count + len(segments[start - 1]) <= min(_OVERLAP, room):
        start -= 1
        count += len(segments[start])
    return start, count


def _window(segments: Sequence[Sequence[int]], first: int, end: int) -> TokenWindow:
    ids = [token for segment in segments[first:end] for token in segment[: MAX_TOKENS - 2]]
    return TokenWindow([_START, *ids, _END], first, end - 1)
