"""Beginning with something that was found: what is like it, and what stands around it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from weft.capabilities.search.context_builder import BuiltContext
from weft.capabilities.search.context_renderer import render_context
from weft.capabilities.search.model import Ranked
from weft.capabilities.search.neighbours import strands_around
from weft.capabilities.search.passages import read_numbers
from weft.kernel.errors import NotFound
from weft.kernel.fields import MAX_INT

if TYPE_CHECKING:
    from weft.capabilities.search.context_renderer import Count
    from weft.capabilities.search.index_view import Floats, View
    from weft.capabilities.search.passages import ChunkPassage
    from weft.capabilities.search.retriever import Retriever, SearchHit, SearchScope
    from weft.capabilities.search.scope import RequestedScope
    from weft.capabilities.search.stores import SearchStores
    from weft.kernel.identity import Actor

# Some of what is nearest may be gone when it is read: if it is more than a few, more is looked at.
_SPARE = (10, 250, 4_000)
_FURTHEST = 50


class ChunkNotFound(NotFound):
    """There is no such chunk, or not for you."""

    code = "CHUNK_NOT_FOUND"
    hint = "Use a chunk_id of a recent `search.query` result; a changed or deleted chunk has another one, or none."
    related = ("search",)


class Similar(NamedTuple):
    """What is like something, the most alike first."""

    hits: list[SearchHit]
    searched: int
    outlook: SearchScope


@dataclass(frozen=True, slots=True)
class SimilarSearch:
    """Looks for what is like something, or near to it, in a part of what a caller may see."""

    retriever: Retriever
    actor: Actor
    part: RequestedScope

    async def find(self, chunk_id: str | None, text: str | None, top_k: int, min_score: float) -> Similar:
        """Return what means nearly the same as a chunk or a text, that itself left out."""
        itself = None if chunk_id is None else await self._passage(chunk_id)
        outlook, views = await self.retriever.look(self.actor, self.part)
        said = text if itself is None else itself.chunk.embedded
        vector = await self.retriever.embeddings.of_query(self.actor, said or "", outlook.model)
        most = top_k if outlook.most is None else min(top_k, outlook.most)
        hits: list[SearchHit] = []
        for spare in _SPARE:
            found = [ranked for view in views for ranked in await _nearest(view, vector, most + spare)]
            found.sort(key=lambda each: (-each.score, each.collection, each.number))
            others = [
                each for each in found if each.score >= min_score and f"{each.collection}/{each.number}" != chunk_id
            ]
            hits = await self.retriever.read(self.actor, others[: most + spare])
            if len(hits) >= most or len(others) < most + spare:
                break
        return Similar(hits[:most], sum(view.size for view in views), outlook)

    async def surroundings(self, chunk_id: str, most_tokens: int, count: Count) -> BuiltContext:
        """Return what stands around a chunk, as much as fits."""
        itself = await self._passage(chunk_id)
        outlook, _ = await self.retriever.look(self.actor, self.part)
        strands = await self.retriever.libraries.read(self.actor, partial(strands_around, [itself], _FURTHEST))
        return BuiltContext(render_context(strands, most_tokens, count), {chunk_id: 1.0}, outlook, None)

    async def _passage(self, chunk_id: str) -> ChunkPassage:
        passage = await self.retriever.libraries.read(self.actor, partial(_passage, chunk_id))
        if passage is None or not self.part.reaches(passage.session_id):
            raise ChunkNotFound(resource_type="chunk", resource_id=chunk_id[:100])
        return passage


async def _passage(chunk_id: str, library: SearchStores) -> ChunkPassage | None:
    collection, _, number = chunk_id.rpartition("/")
    if not (number.isascii() and number.isdigit() and len(number) <= len(str(MAX_INT))):
        return None
    return (await read_numbers([(collection, int(number))], library)).get(chunk_id)


async def _nearest(view: View, vector: Floats, limit: int) -> list[Ranked]:
    near = await view.nearest(vector, limit)
    numbers = view.columns(near.rows).number.tolist()
    return [
        Ranked(collection=view.collection, number=number, score=round(min(1.0, max(0.0, cosine)), 4), signals={})
        for number, cosine in zip(numbers, near.cosines.tolist(), strict=True)
    ]
