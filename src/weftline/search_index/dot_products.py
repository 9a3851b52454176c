"""Dot products of int8 and float16 vectors: on numkong where weftline[search] is installed, else on numpy.

numpy has no fast product of int8: converted to float32 first, 50,000 vectors of 384 dimensions take 32 ms instead of 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

try:
    import numkong
except ImportError:
    HAS_NUMKONG = False
else:
    HAS_NUMKONG = True

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Codes = NDArray[np.int8]
    Halves = NDArray[np.float16]
    Floats = NDArray[np.float32]


def packed_codes(codes: Codes) -> Any:  # noqa: ANN401 - a type of numkong, or floats
    """Prepare int8 vectors for products with many others."""
    return numkong.dots_pack(codes) if HAS_NUMKONG else codes.astype(np.float32).T


def code_dots(codes: Codes, packed: Any) -> NDArray[Any]:  # noqa: ANN401 - see above
    """Return the product of each vector, a row, with each packed one, a column."""
    if HAS_NUMKONG:
        return np.asarray(numkong.dots_packed(np.ascontiguousarray(codes), packed))
    dots: Floats = codes.astype(np.float32) @ packed
    return dots


def half_dots(vectors: Halves, halves: Halves) -> Floats:
    """Return the product of each vector, a row, with each of the others, a column."""
    if not len(halves):
        return np.empty((len(vectors), 0), np.float32)
    if HAS_NUMKONG:
        dots: Floats = np.asarray(numkong.cdist(vectors, halves, "dot")).astype(np.float32)
        return dots
    return vectors.astype(np.float32) @ halves.astype(np.float32).T


def to_floats(halves: Halves) -> Floats:
    return np.asarray(numkong.astype(halves, "float32")) if HAS_NUMKONG else halves.astype(np.float32)
