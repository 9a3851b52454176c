"""Text of a PDF, with a form feed between pages."""

from __future__ import annotations

import io
import logging
from typing import Any

import pypdf
from pypdf.errors import LimitReachedError

_MAX_PAGES = 20_000
_MAX_CHARACTERS = 32_000_000


def answer(content: bytes, _question: dict[str, Any]) -> dict[str, Any]:
    """Return the text and title of a PDF, or the problem."""
    # pypdf logs what is wrong with a damaged file; the answer contains it.
    logging.disable(logging.CRITICAL)
    try:
        document = pypdf.PdfReader(io.BytesIO(content))
        if document.is_encrypted and not document.decrypt(""):
            return {"problem": "The PDF is encrypted.", "hint": "Save it without a password and add it again."}
        pages = _pages(document)
        title = document.metadata.title if document.metadata else None
    except MemoryError:
        raise
    except (LimitReachedError, OverflowError, RecursionError):
        return {"problem": "The PDF asks for too much memory or time.", "hint": "Split it, or add its text."}
    except Exception as error:  # noqa: BLE001 - a damaged PDF may raise anything
        return {"problem": f"The PDF is damaged: {type(error).__name__}.", "hint": "Save it again and add it."}
    if not any(page.strip() for page in pages):
        return {
            "problem": "The PDF has no text, only pictures.",
            "hint": "Run OCR on it and add the result.",
        }
    return {"text": "\f".join(pages), "title": str(title or "")}


def _pages(document: pypdf.PdfReader) -> list[str]:
    if len(document.pages) > _MAX_PAGES:
        raise OverflowError
    pages, length = [], 0
    for page in document.pages:
        text = page.extract_text().replace("\f", "\n")
        pages.append(text)
        length += len(text)
        if length > _MAX_CHARACTERS:
            raise OverflowError
    return pages
