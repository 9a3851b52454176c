"""Text without markup: split at paragraphs and sentences; pages of a PDF, separated by form feeds, are labelled."""

from __future__ import annotations

import re

from weftline.indexing.chunking.model import BLOCK, Label, Outline
from weftline.indexing.chunking.sentences import add_paragraphs

PAGE_BREAK = "\f"
_PAGE = re.compile(r"[^\f]*\f?")


def outline_of_plain(text: str) -> Outline:
    outline = Outline()
    add_paragraphs(outline, text, 0, len(text))
    return outline


def outline_of_pages(text: str) -> Outline:
    outline = Outline(heading_style="range")
    for number, match in enumerate(_PAGE.finditer(text), start=1):
        if match[0]:
            outline.labels.append(Label(match.start(), (f"page {number}",), "page"))
            add_paragraphs(outline, text, match.start(), match.end(), strength=BLOCK)
    return outline
