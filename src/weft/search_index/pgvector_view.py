"""Collection view with the vectors in the database (pgvector): terms are looked up here, nearest neighbours there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.capabilities.search.index_view import NearestRows
from weft.search_index.view import CollectionView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.indexing.collections.model import NearChunk
    from weft.capabilities.indexing.collections.store import VectorSearch
    from weft.capabilities.search.index_view import Audiences, CollectionQuery, Floats, Rows
    from weft.search_index.snapshot import IndexSnapshot

# So few are compared one by one, which misses none; and more of them where the graph would have to go so far.
_FEW, _MANY, _FAR = 5_000, 50_000, 1_000
# What a caller may not see is left out here, so more is asked for than is wanted.
_SPARE = 1.5
_MORE = 4


class PgvectorView(CollectionView):
    """A view that asks the database for vectors."""

    def __init__(
        self,
        collection: str,
        snapshot: IndexSnapshot,
        wish: CollectionQuery,
        audiences: Audiences,
        search: VectorSearch,
    ) -> None:
        super().__init__(collection, snapshot, wish, audiences)
        self._search = search

    async def nearest(self, vector: Floats, limit: int) -> NearestRows:
        halves = _halves(vector)
        asked = round(limit * _SPARE * self.everything / max(self.size, 1))
        while self.size > (_MANY if asked > _FAR else _FEW):
            found = await self._search.nearest(halves, asked)
            near = self._seen(found)
            if len(near.rows) >= limit or len(found) < asked:
                return NearestRows(near.rows[:limit], near.cosines[:limit])
            asked *= _MORE
        # Few are visible, or they lie far from the question.
        return self._seen(await self._search.nearest_among(halves, limit, self.numbers()))

    async def cosines(self, rows: Rows, questions: Floats) -> Floats:
        numbers = self.columns(rows).number.tolist()
        known = await self._search.cosines([_halves(question) for question in questions], numbers)
        without = [0.0] * len(questions)
        return np.array([known.get(number, without) for number in numbers], np.float32).reshape(-1, len(questions)).T

    async def vectors(self, rows: Rows, dimensions: int) -> Floats:
        numbers = self.columns(rows).number
        packed = await self._search.find(numbers.tolist(), dimensions)
        known = np.array(packed.numbers, np.int64)
        # Those without a vector are given the one behind all others, which is zero.
        vectors = np.zeros((len(known) + 1, dimensions), np.float32)
        vectors[:-1] = np.frombuffer(packed.vectors, "<f2").reshape(-1, dimensions)
        places = np.searchsorted(known, numbers)
        places[~np.isin(numbers, known)] = len(known)
        return vectors[places]

    def _seen(self, found: Sequence[NearChunk]) -> NearestRows:
        """Return those of the chunks that are visible here."""
        rows = self.rows_of(np.array([chunk.number for chunk in found], np.int64))
        cosines = np.array([chunk.cosine for chunk in found], np.float32)
        return NearestRows(rows[rows >= 0], cosines[rows >= 0])


def _halves(vector: Floats) -> bytes:
    return np.asarray(vector, "<f2").reshape(-1).tobytes()
