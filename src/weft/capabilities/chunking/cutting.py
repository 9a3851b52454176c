"""Cutting a text the way its kind asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.capabilities.chunking.media import TRANSCRIPTS, is_code, plain_type
from weft.capabilities.chunking.packing import pieces
from weft.capabilities.chunking.strategies.code import outline_of_code
from weft.capabilities.chunking.strategies.logs import outline_of_log
from weft.capabilities.chunking.strategies.markdown import outline_of_markdown
from weft.capabilities.chunking.strategies.pages import outline_of_pages
from weft.capabilities.chunking.strategies.plain import outline_of_plain
from weft.capabilities.chunking.strategies.records import outline_of_json, outline_of_json_lines
from weft.capabilities.chunking.strategies.rows import outline_of_rows
from weft.capabilities.chunking.strategies.transcript import outline_of_transcript

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.capabilities.chunking.model import Cutting, Piece, Reading
    from weft.capabilities.chunking.outline import Outline

# HTML is read as markdown.
_STRATEGIES: dict[str, Callable[[str], Outline]] = {
    "text/plain": outline_of_plain,
    "text/markdown": outline_of_markdown,
    "text/html": outline_of_markdown,
    "application/pdf": outline_of_pages,
    "application/json": outline_of_json,
    "application/x-ndjson": outline_of_json_lines,
    "text/csv": outline_of_rows,
    "text/tab-separated-values": outline_of_rows,
    "text/x-log": outline_of_log,
    **dict.fromkeys(TRANSCRIPTS, outline_of_transcript),
}


def cut(reading: Reading, cutting: Cutting, count: Callable[[str], int]) -> list[Piece]:
    """Return a document in pieces.

    No piece has more tokens than asked for, pieces come in order and cover all but white space, and two neighbours
    share no more than the overlap.
    """
    return pieces(reading.text, _outline(reading), cutting, count)


def _outline(reading: Reading) -> Outline:
    media_type = plain_type(reading.media_type)
    if is_code(media_type):
        return outline_of_code(reading.text, reading.names)
    return _STRATEGIES.get(media_type, outline_of_plain)(reading.text)
