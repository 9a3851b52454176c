"""Cutting a text the way its kind asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.capabilities.indexing.chunking.media_types import TRANSCRIPTS, is_code, plain_type
from weft.capabilities.indexing.chunking.packer import pieces
from weft.capabilities.indexing.chunking.strategies.code import outline_of_code
from weft.capabilities.indexing.chunking.strategies.csv import outline_of_rows
from weft.capabilities.indexing.chunking.strategies.json_records import outline_of_json, outline_of_json_lines
from weft.capabilities.indexing.chunking.strategies.logs import outline_of_log
from weft.capabilities.indexing.chunking.strategies.markdown import outline_of_markdown
from weft.capabilities.indexing.chunking.strategies.pdf import outline_of_pages
from weft.capabilities.indexing.chunking.strategies.plain import outline_of_plain
from weft.capabilities.indexing.chunking.strategies.transcript import outline_of_transcript

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.capabilities.indexing.chunking.boundaries import Outline
    from weft.capabilities.indexing.chunking.model import ChunkingOptions, Reading, TextSpan

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


def cut(reading: Reading, cutting: ChunkingOptions, count: Callable[[str], int]) -> list[TextSpan]:
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
