"""A shelf's copy whose vectors stay in the database: words are looked up here, and what is near is asked for there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.capabilities.retrieval.view import Near
from weft.index.view import ShelfView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.retrieval.view import Audiences, Floats, Rows, Wish
    from weft.capabilities.shelves.model import NearChunk
    from weft.capabilities.shelves.store import VectorSearch
    from weft.index.shelf import Moment

# So few are compared one by one, which misses none; and more of them where the graph would have to go so far.
_FEW, _MANY, _FAR = 5_000, 50_000, 1_000
# What a caller may not see is left out here, so more is asked for than is wanted.
_SPARE = 1.5
_MORE = 4


class RemoteShelfView(ShelfView):
    """A view that asks the database for vectors."""

    def __init__(self, shelf: str, moment: Moment, wish: Wish, audiences: Audiences, search: VectorSearch) -> None:
        super().__init__(shelf, moment, wish, audiences)
        self._search = search
        # Of vectors that were fetched some are looked at again.
        self._known: dict[int, bytes] = {}

    async def nearest(self, vector: Floats, limit: int) -> Near:
        halves = np.asarray(vector, "<f2").reshape(-1).tobytes()
        asked = round(limit * _SPARE * self.everything / max(self.size, 1))
        while self.size > (_MANY if asked > _FAR else _FEW):
            found = await self._search.nearest(halves, asked)
            near = self._seen(found)
            if len(near.rows) >= limit or len(found) < asked:
                return Near(near.rows[:limit], near.cosines[:limit])
            asked *= _MORE
        # Few are visible, or they lie far from the question.
        return self._seen(await self._search.nearest_among(halves, limit, self.numbers()))

    async def cosines(self, rows: Rows, questions: Floats) -> Floats:
        found = await self.vectors(rows, questions.shape[1])
        return questions @ found.T

    async def vectors(self, rows: Rows, dimensions: int) -> Floats:
        numbers = self.columns(rows).number.tolist()
        known = await self._search.find(numbers)
        found = np.zeros((len(rows), dimensions), np.float32)
        for place, number in enumerate(numbers):
            vector = known.get(number, b"")
            if len(vector) == dimensions * 2:
                found[place] = np.frombuffer(vector, "<f2")
        return found

    def _seen(self, found: Sequence[NearChunk]) -> Near:
        """Return those of the chunks that are visible here."""
        rows = self.rows_of(np.array([chunk.number for chunk in found], np.int64))
        cosines = np.array([chunk.cosine for chunk in found], np.float32)
        return Near(rows[rows >= 0], cosines[rows >= 0])
