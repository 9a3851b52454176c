"""Caches of compacted views and of key facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.ports import CacheKey
    from weftline.windows.compaction.model import CompactedView, KeyFact


class ViewCache(Protocol):
    """Views by tenant and compaction; a stored view never changes."""

    def get(self, key: CacheKey) -> CompactedView | None: ...

    def put(self, key: CacheKey, value: CompactedView, weight: int = 1) -> None: ...


class FactCache(Protocol):
    """Key facts by tenant and the versions of the events that they are from."""

    def get(self, key: CacheKey) -> Sequence[KeyFact] | None: ...

    def put(self, key: CacheKey, value: Sequence[KeyFact], weight: int = 1) -> None: ...
