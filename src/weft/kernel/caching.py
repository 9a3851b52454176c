"""What is kept for a while because it took work to make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Hashable

# JSON of many small parts takes this many times as much room once it is Python objects.
_UNPACKED = 8
_encode = msgspec.json.Encoder().encode


class Keeping(Protocol):
    """Somewhere to keep things by key. Whatever a thing depends on is part of its key, so none is ever out of date."""

    def get(self, key: Hashable) -> Any | None: ...  # noqa: ANN401 - things of any type

    def put(self, key: Hashable, value: Any, weight: int) -> None: ...  # noqa: ANN401 - likewise


def weight_of(answer: object) -> int:
    """Return about how many bytes an answer takes up in memory."""
    return len(_encode(answer)) * _UNPACKED
