"""Selection of the largest values with a defined order of ties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def largest(
    values: NDArray[Any], limit: int, ties: Callable[[NDArray[np.intp]], NDArray[np.integer]]
) -> NDArray[np.intp]:
    """Return the indices of the largest values, in order; ``ties`` of indices decide between equal values, least first.

    A partition alone chooses among equal values by their position, which depends on how an index is laid out.
    """
    if len(values) <= limit:
        return np.arange(len(values))
    if limit <= 0:
        return np.empty(0, np.intp)
    smallest = np.partition(values, len(values) - limit)[len(values) - limit]
    above = np.flatnonzero(values > smallest)
    equal = np.flatnonzero(values == smallest)
    chosen = equal[np.argsort(ties(equal), kind="stable")[: limit - len(above)]]
    return np.sort(np.concatenate([above, chosen]))
