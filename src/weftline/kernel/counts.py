"""Counters that keep only what they count."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections import Counter

K = TypeVar("K")


def decrement(counts: Counter[K], name: K) -> None:
    """Subtract one, and forget a name that counts nothing any more."""
    counts[name] -= 1
    if counts[name] <= 0:
        del counts[name]
