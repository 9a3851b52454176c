"""Gathering context for a question: what was found, with what stands around it, woven into a text that fits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weft.capabilities.retrieval.around import strands_around
from weft.capabilities.retrieval.weaving import weave

if TYPE_CHECKING:
    from weft.capabilities.retrieval.searching import Asked, Found, Hit, Outlook, Retriever
    from weft.capabilities.retrieval.weaving import Count, Woven
    from weft.kernel.identity import Actor

# A turn of a conversation is rarely shorter than this, so no more of them can be needed.
_SHORTEST_PASSAGE = 20
_FEWEST, _MOST = 5, 100
# What stands further away has mostly turned to something else.
_REACH = 2
# What a token costs, as evidence: of what is equally relevant the shorter comes first, since more of it fits.
TOKEN_PRICE = 0.001


class Gathering(NamedTuple):
    """A text, and what it was made of: ``scores`` are those of what was found, by chunk_id."""

    woven: Woven
    scores: dict[str, float]
    outlook: Outlook
    found: Found | None


async def gather(retriever: Retriever, actor: Actor, asked: Asked, most_tokens: int, count: Count) -> Gathering:
    """Return the best passages for a question with their surroundings, in at most so many tokens."""
    enough = min(_MOST, max(_FEWEST, most_tokens // _SHORTEST_PASSAGE))
    wider = structs.replace(asked.question, top_k=enough)
    found = await retriever.find(actor, asked._replace(question=wider))
    passages = [hit.passage for hit in sorted(found.hits, key=by_worth)]
    strands = await retriever.libraries.read(actor, partial(strands_around, passages, _REACH))
    scores = {hit.passage.chunk_id: hit.ranked.score for hit in found.hits}
    return Gathering(weave(strands, most_tokens, count), scores, found.outlook, found)


def by_worth(hit: Hit) -> tuple[bool, float]:
    """Sort what is pinned first, since it must not be left out, then by evidence beside what it costs."""
    chunk = hit.passage.chunk
    return not chunk.pinned, TOKEN_PRICE * chunk.tokens - hit.ranked.evidence
