"""Gathers the passages of a text for a prompt: the results of a query with their surroundings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.prompts.assembly.retrieval import SURROUNDING_PLACES, results_within, surrounded_passages
from weftline.search.neighbours import passage_ref, with_surroundings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weftline.kernel.identity import Actor
    from weftline.search.neighbours import PassageRef
    from weftline.search.retriever import RetrievalResult, Retriever, SearchHit, SearchRequest, SearchScope
    from weftline.search.similar import SimilarSearch

# Places around a single chunk.
_MAX_DISTANCE = 50


class GatheredPassages(NamedTuple):
    """Passages for a text, with the search they come from. ``scores`` are those of the results, by chunk_id.

    ``pins`` are the pinned ones, which must all be in the text; ``withheld`` were left out because of their trust.
    """

    refs: list[PassageRef]
    scores: dict[str, float]
    scope: SearchScope
    found: RetrievalResult | None
    pins: Sequence[SearchHit] = ()
    withheld: int = 0


async def gather_passages(
    retriever: Retriever, actor: Actor, request: SearchRequest, max_tokens: int, doubt_tokens: int
) -> GatheredPassages:
    """Return all pins, then the passages that are evidence with their surroundings, as a prompt has them.

    In doubt they are followed by the best doubtful ones, of ``doubt_tokens`` at the most.
    """
    query = structs.replace(request.query, top_k=results_within(max_tokens), purpose="prompt")
    found = await retriever.find(actor, request._replace(query=query))
    hits = [*found.pinned, *_within_doubt(found.hits, doubt_tokens)]
    refs: list[PassageRef] = []
    for rank, each in enumerate(await surrounded_passages(retriever, actor, hits, SURROUNDING_PLACES)):
        refs.append(passage_ref(each.passage, rank))
        refs += [ref._replace(rank=rank) for ref in each.surroundings]
    scores = {hit.passage.chunk_id: hit.ranked.score for hit in hits}
    return GatheredPassages(refs, scores, found.scope, found._replace(hits=hits[len(found.pinned) :]), found.pinned)


def _within_doubt(hits: Iterable[SearchHit], doubt_tokens: int) -> Iterator[SearchHit]:
    """Yield hits, of the doubtful ones the best that fit into their room."""
    for hit in hits:
        doubt_tokens -= hit.passage.chunk.tokens if hit.ranked.doubtful else 0
        if doubt_tokens >= 0 or not hit.ranked.doubtful:
            yield hit


async def gather_surroundings(search: SimilarSearch, chunk_id: str) -> GatheredPassages:
    """Return a chunk with its surroundings."""
    origin = await search.passage(chunk_id)
    scope, _ = await search.retriever.open_scope(search.actor, search.filters)
    refs = await search.retriever.stores.read(
        search.actor, partial(with_surroundings, [origin], _MAX_DISTANCE), heavy=True
    )
    return GatheredPassages(refs, {chunk_id: 1.0}, scope, None)
