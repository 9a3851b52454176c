"""Collection view with the vectors in the database (pgvector): terms are looked up here, nearest neighbours there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from weftline.search.index_view import NearestRows
from weftline.search_index.view import CollectionView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.indexing.collections.model import NearChunk
    from weftline.indexing.collections.store import VectorSearch
    from weftline.search.index_view import Audiences, CollectionQuery, Floats, Rows
    from weftline.search_index.snapshot import IndexSnapshot

# Up to this many visible rows are compared exactly; up to the second number if the HNSW scan would exceed the third.
_EXACT_ROWS, _MAX_EXACT_ROWS, _MAX_SCAN = 5_000, 50_000, 1_000
# Invisible rows are filtered out here, so more rows are requested.
_OVERSAMPLING = 1.5
_GROWTH = 4


class PgvectorView(CollectionView):
    """A view whose vectors are in the database."""

    asks_database = True

    def __init__(
        self,
        collection: str,
        snapshot: IndexSnapshot,
        query: CollectionQuery,
        audiences: Audiences,
        search: VectorSearch,
    ) -> None:
        super().__init__(collection, snapshot, query, audiences)
        self._search = search

    async def nearest(self, vector: Floats, limit: int) -> NearestRows:
        encoded = _as_float16(vector)
        requested = round(limit * _OVERSAMPLING * self.total_rows / max(self.size, 1))
        while self.size > (_MAX_EXACT_ROWS if requested > _MAX_SCAN else _EXACT_ROWS):
            found = await self._search.nearest(encoded, requested)
            near = self._visible(found)
            if len(near.rows) >= limit or len(found) < requested:
                return NearestRows(near.rows[:limit], near.cosines[:limit])
            requested *= _GROWTH
        # Few rows are visible, or they are far from the query.
        return self._visible(await self._search.nearest_among(encoded, limit, self.numbers()))

    async def nearest_each(self, vectors: Sequence[Floats], limit: int) -> Sequence[NearestRows]:
        return await asyncio.gather(*(self.nearest(vector, limit) for vector in vectors))

    async def cosines(self, rows: Rows, queries: Floats) -> Floats:
        numbers = self.columns(rows).number.tolist()
        known = await self._search.cosines([_as_float16(query) for query in queries], numbers)
        missing = [0.0] * len(queries)
        return np.array([known.get(number, missing) for number in numbers], np.float32).reshape(-1, len(queries)).T

    async def vectors(self, rows: Rows, dimensions: int) -> Floats:
        numbers = self.columns(rows).number
        packed = await self._search.find(numbers.tolist(), dimensions)
        known = np.array(packed.numbers, np.int64)
        # Rows without a vector get the last one, which is zero.
        vectors = np.zeros((len(known) + 1, dimensions), np.float32)
        vectors[:-1] = np.frombuffer(packed.vectors, "<f2").reshape(-1, dimensions)
        slots = np.searchsorted(known, numbers)
        slots[~np.isin(numbers, known)] = len(known)
        return vectors[slots]

    def _visible(self, found: Sequence[NearChunk]) -> NearestRows:
        """Return the visible ones of these chunks."""
        rows = self.rows_of(np.array([chunk.number for chunk in found], np.int64))
        cosines = np.array([chunk.cosine for chunk in found], np.float32)
        return NearestRows(rows[rows >= 0], cosines[rows >= 0])


def _as_float16(vector: Floats) -> bytes:
    return np.asarray(vector, "<f2").reshape(-1).tobytes()
