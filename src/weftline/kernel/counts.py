"""Counters that keep only what they count."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections import Counter

K = TypeVar("K")


def decrement(counts: Counter[K], *names: K) -> None:
    """Subtract one of each name, and forget those that count nothing any more."""
    for name in names:
        counts[name] -= 1
        if counts[name] <= 0:
            del counts[name]
