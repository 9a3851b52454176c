"""Parts of long items: an answer seldom uses all of a document or of a tool's result."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# About the size of an indexed passage, and what an embedding model reads of a text.
PART_CHARACTERS = 1_500
_ENDS = ("\n", ". ", " ")


def text_parts(text: str) -> list[str]:
    """Divide a text into parts of bounded length that are together the text, at ends of lines or sentences."""
    if len(text) <= PART_CHARACTERS:
        return [text]
    parts: list[str] = []
    start = 0
    while len(text) - start > PART_CHARACTERS:
        end = _last_break(text, start)
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]


def _last_break(text: str, start: int) -> int:
    """Return where the part that begins at ``start`` ends: after its last line, sentence or word."""
    limit = start + PART_CHARACTERS
    least = start + PART_CHARACTERS // 2
    for separator in _ENDS:
        found = text.rfind(separator, least, limit)
        if found >= 0:
            return found + len(separator)
    return limit


def shares(tokens: int, weights: Iterable[int]) -> Iterator[int]:
    """Divide tokens in proportion to weights, without a remainder."""
    weights = list(weights)
    total = sum(weights)
    reached = given = 0
    for weight in weights:
        reached += weight
        upto = round(tokens * reached / total) if total else tokens
        yield upto - given
        given = upto
