"""The port to a database's own vector search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from weftline.indexing.collections.model import (
    NearChunk,
    PackedVectors,
)


class VectorSearch(Protocol):
    """Nearest-neighbour search of one collection and model in the database. Vectors are in half precision."""

    async def nearest(self, vector: bytes, limit: int) -> Sequence[NearChunk]:
        """Return the nearest chunks, nearest first; approximate for large collections."""
        ...

    async def nearest_among(self, vector: bytes, limit: int, numbers: Sequence[int]) -> Sequence[NearChunk]:
        """Return the nearest of these chunks, nearest first; exact."""
        ...

    async def cosines(self, vectors: Sequence[bytes], numbers: Sequence[int]) -> Mapping[int, Sequence[float]]:
        """Return the cosines of these chunks with each of the vectors, by number."""
        ...

    async def find(self, numbers: Sequence[int], dimensions: int) -> PackedVectors:
        """Return the vectors of these chunks that have these dimensions."""
        ...

    async def prepare(self) -> bool:
        """Build the vector index; return whether it is ready. False if another process is building it.

        Readers and writers do not wait for it.
        """
        ...

    async def discard(self) -> None:
        """Drop the vector index: these vectors are no longer searched."""
        ...
