"""Packer: renders the results of a query with their surroundings within a token budget."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weft.capabilities.assembly.passages import render_context
from weft.capabilities.assembly.retrieval import SURROUNDING_PLACES, results_within
from weft.capabilities.search.neighbours import with_surroundings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.assembly.passages import RenderedContext
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


class BuiltContext(NamedTuple):
    """A rendered text with the search it comes from. ``scores`` are those of the results, by chunk_id."""

    rendered: RenderedContext
    scores: dict[str, float]
    scope: SearchScope
    found: RetrievalResult | None


async def build_context(
    retriever: Retriever, actor: Actor, request: SearchRequest, max_tokens: int, count: TokenCounter
) -> BuiltContext:
    """Return the best passages for a query with their surroundings, within a token budget."""
    query = structs.replace(request.query, top_k=results_within(max_tokens))
    found = await retriever.find(actor, request._replace(query=query))
    room = int(max_tokens * _PINNED_SHARE)
    pins, others = split_pins(found.hits, found.ranking.min_score, room, count)
    passages = [hit.passage for hit in (*pins, *others)]
    read = partial(with_surroundings, passages, SURROUNDING_PLACES, alone=len(pins))
    refs = await retriever.stores.read(actor, read)
    scores = {hit.passage.chunk_id: hit.ranked.score for hit in found.hits}
    rendered = render_context(refs, max_tokens, count)
    complete = rendered.complete and len(passages) == len(found.hits)
    return BuiltContext(rendered._replace(complete=complete), scores, found.scope, found)


async def build_surroundings(
    search: SimilarSearch, chunk_id: str, max_tokens: int, count: TokenCounter
) -> BuiltContext:
    """Return the surroundings of a chunk, within a token budget."""
    origin = await search.passage(chunk_id)
    scope, _ = await search.retriever.open_scope(search.actor, search.filters)
    read = partial(with_surroundings, [origin], _MAX_DISTANCE)
    refs = await search.retriever.stores.read(search.actor, read)
    return BuiltContext(render_context(refs, max_tokens, count), {chunk_id: 1.0}, scope, None)


def split_pins(
    hits: Sequence[SearchHit], min_score: float, room: int, count: TokenCounter
) -> tuple[list[SearchHit], list[SearchHit]]:
    """Return the pinned hits that fit into ``room`` tokens, and the other hits, best first.

    Pinned hits that do not fit must be as relevant as the others.
    """
    pins, others = [], []
    for hit in sorted(hits, key=_sort_key):
        pinned = hit.ranked.signals.get("pinned", False)
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
