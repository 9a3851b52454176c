"""Text without any structure but paragraphs and sentences."""

from __future__ import annotations

from weft.capabilities.indexing.chunking.boundaries import Outline
from weft.capabilities.indexing.chunking.sentences import add_paragraphs


def outline_of_plain(text: str) -> Outline:
    outline = Outline()
    add_paragraphs(outline, text, 0, len(text))
    return outline
