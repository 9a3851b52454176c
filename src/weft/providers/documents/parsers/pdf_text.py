"""The text of a PDF, a form feed between two pages."""

from __future__ import annotations

import io
import logging
from typing import Any

import pypdf

_MOST_PAGES = 20_000
_MOST_CHARACTERS = 32_000_000


def answer(content: bytes, _question: dict[str, Any]) -> dict[str, Any]:
    """Return the text and the title of a PDF, or what the problem is."""
    # What it says of a damaged file is said in the answer.
    logging.disable(logging.CRITICAL)
    try:
        document = pypdf.PdfReader(io.BytesIO(content))
        if document.is_encrypted and not document.decrypt(""):
            return {"problem": "The PDF is encrypted.", "hint": "Save it without a password and bring it again."}
        pages = _pages(document)
        title = document.metadata.title if document.metadata else None
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - a damaged PDF may raise anything
        return {"problem": f"The PDF is damaged: {type(error).__name__}.", "hint": "Save it anew and bring it again."}
    if not any(page.strip() for page in pages):
        return {"problem": "The PDF has no text, only pictures.", "hint": "Have its text recognised, then bring that."}
    return {"text": "\f".join(pages), "title": str(title or "")}


def _pages(document: pypdf.PdfReader) -> list[str]:
    if len(document.pages) > _MOST_PAGES:
        raise OverflowError
    pages, length = [], 0
    for page in document.pages:
        text = page.extract_text().replace("\f", "\n")
        pages.append(text)
        length += len(text)
        if length > _MOST_CHARACTERS:
            raise OverflowError
    return pages
