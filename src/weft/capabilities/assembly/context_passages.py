"""Gathers the passages of a text for a prompt: the results of a query with their surroundings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weft.capabilities.assembly.retrieval import SURROUNDING_PLACES, results_within
from weft.capabilities.search.neighbours import with_surroundings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.search.neighbours import PassageRef
    from weft.capabilities.search.retriever import RetrievalResult, Retriever, SearchHit, SearchRequest, SearchScope
    from weft.capabilities.search.similar import SimilarSearch
    from weft.kernel.identity import Actor

# Places around a single chunk.
_MAX_DISTANCE = 50
# Score per token: of equally relevant passages the shorter comes first, because more of them fit.
TOKEN_PRICE = 0.001


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
    retriever: Retriever, actor: Actor, request: SearchRequest, max_tokens: int
) -> GatheredPassages:
    """Return all pins, then the best passages for a query with their surroundings; in doubt more of them."""
    query = structs.replace(request.query, top_k=results_within(max_tokens), purpose="prompt")
    found = await retriever.find(actor, request._replace(query=query))
    pins, others = sorted(found.pinned, key=packing_order), sorted(found.hits, key=packing_order)
    passages = [hit.passage for hit in (*pins, *others)]
    read = partial(with_surroundings, passages, SURROUNDING_PLACES, alone=len(pins))
    refs = await retriever.stores.read(actor, read, heavy=True)
    scores = {hit.passage.chunk_id: hit.ranked.score for hit in (*pins, *others)}
    return GatheredPassages(refs, scores, found.scope, found, pins)


async def gather_surroundings(search: SimilarSearch, chunk_id: str) -> GatheredPassages:
    """Return a chunk with its surroundings."""
    origin = await search.passage(chunk_id)
    scope, _ = await search.retriever.open_scope(search.actor, search.filters)
    refs = await search.retriever.stores.read(
        search.actor, partial(with_surroundings, [origin], _MAX_DISTANCE), heavy=True
    )
    return GatheredPassages(refs, {chunk_id: 1.0}, scope, None)


def packing_order(hit: SearchHit) -> float:
    """Sort key of passages that fill a budget: score minus the token price, best first."""
    return TOKEN_PRICE * hit.passage.chunk.tokens - hit.ranked.evidence
