"""Cheap check before detection: texts too short or too plain to carry an instruction need no network."""

from __future__ import annotations

import re

# Three words in a row, a run of characters long enough to be an encoded text, or letters that are spaced out.
_MAY_INSTRUCT = re.compile(
    r"[A-Za-z]{2,}[^A-Za-z0-9]{1,8}[A-Za-z]{1,}[^A-Za-z0-9]{1,8}[A-Za-z]{2}|[A-Za-z0-9+/%&#;]{24}|(?:\w\W){7}"
    r"|(?:[0-9a-fA-F]{2}[ :]){16}"
)


def could_matter(text: str) -> bool:
    """Tell whether a text can carry an instruction at all; if not, ``detect`` would find it harmless."""
    return not text.isascii() or _MAY_INSTRUCT.search(text) is not None
