"""Port for caches of computed values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Hashable

# Memory of Python objects relative to the size of their JSON, measured with many small values.
_OBJECT_OVERHEAD = 8
_encode = msgspec.json.Encoder().encode


class ValueCache(Protocol):
    """A cache. A key contains everything its value depends on, so values are never stale."""

    def get(self, key: Hashable) -> Any | None: ...  # noqa: ANN401 - values of any type

    def put(self, key: Hashable, value: Any, weight: int) -> None: ...  # noqa: ANN401 - likewise


def memory_size(answer: object) -> int:
    """Estimate the bytes that an answer occupies in memory."""
    return len(_encode(answer)) * _OBJECT_OVERHEAD
