"""Searches for passages similar to a chunk or a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from weftline.indexing.embeddings.model import SemanticSearchOff
from weftline.kernel.errors import NotFound
from weftline.search.model import Ranked

if TYPE_CHECKING:
    from weftline.kernel.identity import Actor
    from weftline.search.index_view import Floats, View
    from weftline.search.passages import ChunkPassage
    from weftline.search.retriever import Retriever, SearchHit, SearchScope
    from weftline.search.scope import RequestedScope

# Some of the nearest rows may be unreadable: if it is more than a few, more are read.
_EXTRA_ROWS = (10, 250, 4_000)


class ChunkNotFound(NotFound):
    """The chunk does not exist, or you may not read it."""

    code = "CHUNK_NOT_FOUND"
    hint = "Use a ref of a recent `search.query` result; a changed or deleted chunk has another one, or none."
    related = ("search",)


class Similar(NamedTuple):
    """Similar passages, most similar first."""

    hits: list[SearchHit]
    searched: int
    scope: SearchScope


@dataclass(frozen=True, slots=True)
class SimilarSearch:
    """Finds passages similar to a chunk or text, in a caller's scope."""

    retriever: Retriever
    actor: Actor
    filters: RequestedScope

    async def find(self, chunk_id: str | None, text: str | None, top_k: int, min_score: float) -> Similar:
        """Return the passages nearest in meaning to a chunk or a text, except the chunk itself."""
        origin = None if chunk_id is None else await self.passage(chunk_id)
        scope, views = await self.retriever.open_scope(self.actor, self.filters)
        if scope.semantic_off:
            raise SemanticSearchOff(f"Semantic search is off: {scope.semantic_off}.")
        query_text = text if origin is None else origin.chunk.embedded
        vector = await self.retriever.embeddings.of_query(self.actor, query_text or "", scope.model)
        most = scope.allowance.results
        limit = top_k if most is None else min(top_k, most)
        hits: list[SearchHit] = []
        for extra in _EXTRA_ROWS:
            found = [ranked for view in views for ranked in await _nearest(view, vector, limit + extra)]
            found.sort(key=lambda each: (-each.score, each.collection, each.number))
            others = [
                each for each in found if each.score >= min_score and f"{each.collection}/{each.number}" != chunk_id
            ]
            hits = await self.retriever.read(self.actor, others[: limit + extra], scope)
            if len(hits) >= limit or len(others) < limit + extra:
                break
        return Similar(hits[:limit], sum(view.size for view in views), scope)

    async def passage(self, chunk_id: str) -> ChunkPassage:
        """Return a chunk that the caller may read in its scope."""
        passage = await self.retriever.open_passage(self.actor, chunk_id, self.filters)
        if passage is None:
            raise ChunkNotFound(resource_type="chunk", resource_id=chunk_id[:100])
        return passage


async def _nearest(view: View, vector: Floats, limit: int) -> list[Ranked]:
    near = await view.nearest(vector, limit)
    numbers = view.columns(near.rows).number.tolist()
    return [
        Ranked(collection=view.collection, number=number, score=round(min(1.0, max(0.0, cosine)), 4), signals={})
        for number, cosine in zip(numbers, near.cosines.tolist(), strict=True)
    ]
