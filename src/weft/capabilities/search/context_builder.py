"""Gathering context for a question: what was found, with what stands around it, woven into a text that fits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weft.capabilities.search.context_renderer import render_context
from weft.capabilities.search.neighbours import strands_around

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.search.context_renderer import Count, RenderedContext
    from weft.capabilities.search.retriever import RetrievalResult, Retriever, SearchHit, SearchRequest, SearchScope
    from weft.kernel.identity import Actor

# A turn of a conversation is rarely shorter than this, so no more of them can be needed.
_SHORTEST_PASSAGE = 20
_FEWEST, _MOST = 5, 100
# What stands further away has mostly turned to something else.
_REACH = 2
# So much of the text is at most for what is pinned: whatever was asked, it should be answered.
_SHARE_OF_PINS = 1 / 3
# What a token costs, as evidence: of what is equally relevant the shorter comes first, since more of it fits.
TOKEN_PRICE = 0.001


class BuiltContext(NamedTuple):
    """A text, and what it was made of: ``scores`` are those of what was found, by chunk_id."""

    woven: RenderedContext
    scores: dict[str, float]
    outlook: SearchScope
    found: RetrievalResult | None


async def build_context(
    retriever: Retriever, actor: Actor, asked: SearchRequest, most_tokens: int, count: Count
) -> BuiltContext:
    """Return the best passages for a question with their surroundings, in at most so many tokens."""
    enough = min(_MOST, max(_FEWEST, most_tokens // _SHORTEST_PASSAGE))
    wider = structs.replace(asked.question, top_k=enough)
    found = await retriever.find(actor, asked._replace(question=wider))
    room = int(most_tokens * _SHARE_OF_PINS)
    pins, others = in_order(found.hits, found.ranking.min_score, room, count)
    passages = [hit.passage for hit in (*pins, *others)]
    around = partial(strands_around, passages, _REACH, alone=len(pins))
    strands = await retriever.libraries.read(actor, around)
    scores = {hit.passage.chunk_id: hit.ranked.score for hit in found.hits}
    woven = render_context(strands, most_tokens, count)
    complete = woven.complete and len(passages) == len(found.hits)
    return BuiltContext(woven._replace(complete=complete), scores, found.outlook, found)


def in_order(
    hits: Sequence[SearchHit], min_score: float, room: int, count: Count
) -> tuple[list[SearchHit], list[SearchHit]]:
    """Return what is pinned, as far as there is room for it, and what else goes into the text, the best first.

    What is pinned and has no room must be as relevant as anything else.
    """
    pins, others = [], []
    for hit in sorted(hits, key=_price):
        pinned = hit.ranked.signals.get("pinned", False)
        tokens = count(hit.passage.text) if pinned else 0
        if pinned and tokens <= room:
            pins.append(hit)
            room -= tokens
        elif not pinned or hit.ranked.score >= min_score:
            others.append(hit)
    return pins, others


def _price(hit: SearchHit) -> float:
    """Sort by evidence beside what it costs, the best first."""
    return TOKEN_PRICE * hit.passage.chunk.tokens - hit.ranked.evidence
