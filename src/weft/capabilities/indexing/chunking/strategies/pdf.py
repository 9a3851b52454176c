"""Text in pages, one form feed between two: a page is a better place than a paragraph, but no obstacle."""

from __future__ import annotations

import re

from weft.capabilities.indexing.chunking.boundaries import BLOCK, Label, Outline
from weft.capabilities.indexing.chunking.sentences import add_paragraphs

PAGE_BREAK = "\f"
_PAGE = re.compile(r"[^\f]*\f?")


def outline_of_pages(text: str) -> Outline:
    outline = Outline(naming="range")
    for number, match in enumerate(_PAGE.finditer(text), start=1):
        if match[0]:
            outline.labels.append(Label(match.start(), (f"page {number}",), "page"))
            add_paragraphs(outline, text, match.start(), match.end(), strength=BLOCK)
    return outline
