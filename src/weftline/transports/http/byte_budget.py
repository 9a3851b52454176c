"""Bytes that the server keeps for its clients: what they have half sent, and what they do not read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from weftline.kernel.fair_queue import server_busy

if TYPE_CHECKING:
    from collections.abc import Sequence

_MEBIBYTE = 2**20
_RETRY_SECONDS = 1.0


class Holder(NamedTuple):
    """An address, or a principal with its tenant; ``limit`` is how much may be kept for it."""

    name: tuple[str, ...]
    limit: int


class ByteBudget:
    """Counts the bytes kept in all, and for each holder."""

    def __init__(self, total: int = 256 * _MEBIBYTE) -> None:
        self.per_address = total // 2
        self.per_principal = total // 5
        self.used = 0
        self._total = total
        self._by_holder: Counter[tuple[str, ...]] = Counter()

    def take(self, holders: Sequence[Holder], size: int) -> None:
        """Count bytes for all their holders; raises ServerBusy if those of one are too many, or all together.

        What a holder keeps first is accepted whatever its size: an answer may be larger than its share.
        """
        over = any(self._by_holder[name] and self._by_holder[name] + size > limit for name, limit in holders)
        if over or self.used + size > self._total:
            raise server_busy(_RETRY_SECONDS)
        self.used += size
        for name, _ in holders:
            self._by_holder[name] += size

    def give_back(self, holders: Sequence[Holder], size: int) -> None:
        self.used -= size
        for name, _ in holders:
            self._by_holder[name] -= size
            if not self._by_holder[name]:
                del self._by_holder[name]
