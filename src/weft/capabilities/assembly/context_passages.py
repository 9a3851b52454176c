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
    from weft.kernel.tokens import TokenCounter

# Places around a single chunk.
_MAX_DISTANCE = 50
# Maximum share of the text for pinned items: the query must be answered as well.
_PINNED_SHARE = 1 / 3
# Score per token: of equally relevant passages the shorter comes first, because more of them fit.
TOKEN_PRICE = 0.001


class GatheredPassages(NamedTuple):
    """Passages for a text, with the search they come from. ``scores`` are those of the results, by chunk_id.

    ``complete``: no result was left out.
    """

    refs: list[PassageRef]
    scores: dict[str, float]
    scope: SearchScope
    found: RetrievalResult | None
    complete: bool = True


async def gather_passages(
    retriever: Retriever, actor: Actor, request: SearchRequest, max_tokens: int, count: TokenCounter
) -> GatheredPassages:
    """Return the best passages for a query with their surroundings; in doubt more of them."""
    query = structs.replace(request.query, top_k=results_within(max_tokens), purpose="prompt")
    found = await retriever.find(actor, request._replace(query=query))
    hits = [*found.hits, *found.pinned]
    pins, others = split_pins(hits, found.ranking.min_score, int(max_tokens * _PINNED_SHARE), count)
    passages = [hit.passage for hit in (*pins, *others)]
    read = partial(with_surroundings, passages, SURROUNDING_PLACES, alone=len(pins))
    refs = await retriever.stores.read(actor, read)
    scores = {hit.passage.chunk_id: hit.ranked.score for hit in hits}
    return GatheredPassages(refs, scores, found.scope, found, complete=len(passages) == len(hits))


async def gather_surroundings(search: SimilarSearch, chunk_id: str) -> GatheredPassages:
    """Return a chunk with its surroundings."""
    origin = await search.passage(chunk_id)
    scope, _ = await search.retriever.open_scope(search.actor, search.filters)
    refs = await search.retriever.stores.read(search.actor, partial(with_surroundings, [origin], _MAX_DISTANCE))
    return GatheredPassages(refs, {chunk_id: 1.0}, scope, None)


def split_pins(
    hits: Sequence[SearchHit], min_score: float, room: int, count: TokenCounter
) -> tuple[list[SearchHit], list[SearchHit]]:
    """Return the pinned hits that fit into ``room`` tokens, and the other hits, best first.

    Pinned hits that do not fit must be as relevant as the others.
    """
    pins, others = [], []
    for hit in sorted(hits, key=_sort_key):
        pinned = hit.ranked.pinned
        tokens = count(hit.passage.text) if pinned else 0
        if pinned and tokens <= room:
            pins.append(hit)
            room -= tokens
        elif not pinned or hit.ranked.score >= min_score:
            others.append(hit)
    return pins, others


def _sort_key(hit: SearchHit) -> float:
    """Sort key: score minus the token price, best first."""
    return TOKEN_PRICE * hit.passage.chunk.tokens - hit.ranked.evidence
