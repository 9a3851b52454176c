"""Guessing what a name that is not there was meant to be."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Comparing takes time, and who errs among thousands is better served by a list.
COMPARE_WITH = 200
_MOST = 5
_LEAST_ALIKE = 0.5


def names_like(name: str, known: Sequence[str]) -> list[str]:
    """Return those of the names that look most like this one."""
    return get_close_matches(name, known, n=_MOST, cutoff=_LEAST_ALIKE)
