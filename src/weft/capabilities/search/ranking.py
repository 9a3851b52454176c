"""Hybrid ranking of visible chunks by relevance to a query.

Candidates come by words and by meaning. What speaks for each is added up (evidence), and the sum stands for a relevance
from 0 to 1 (calibration). Where it is not likely that the answer is among the best, more is taken, from a lower score;
where nothing is relevant, the most recent comes instead.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft.capabilities.search.bm25 import Lexicon
from weft.capabilities.search.dedup import penalise_duplicates
from weft.capabilities.search.query_parser import parse_query
from weft.capabilities.search.scoring import add_recency_and_importance, add_speaker, score_candidates
from weft.capabilities.search.selection import ScoredCandidates, choose
from weft.kernel.thread_pools import SEARCH_THREADS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.search.index_view import Floats, View
    from weft.capabilities.search.model import Query, Ranking
    from weft.capabilities.search.retriever import Embed
    from weft.capabilities.search.scoring import Scores

# Maximum parts of a long query: those with the highest lexical scores.
_MOST_PARTS = 16
# Maximum parts considered for that, longest first.
_MOST_LOOKED_AT = 64


class _Asked(NamedTuple):
    """Query parts for one view, by index, and the speaker that the query names."""

    view: View
    parts: list[int]
    speaker: str | None


async def rank(question: Query, views: Sequence[View], embed: Embed) -> Ranking:
    """Rank the rows of views for a query. ``embed`` returns None if the model is unavailable."""
    weighed = await weigh(question, views, embed)
    return await SEARCH_THREADS.run(choose, question, views, weighed)


async def weigh(question: Query, views: Sequence[View], embed: Embed) -> ScoredCandidates:
    """Return the candidates with their signals."""
    texts, asked, lexicon = await SEARCH_THREADS.run(_understood, question.text, views)
    vectors = await _meanings(texts, {part for each in asked for part in each.parts}, embed)
    found = await asyncio.gather(
        *(_evidence(place, each, question, lexicon, vectors) for place, each in enumerate(asked) if each.view.size)
    )
    return ScoredCandidates(found, vectors is not None)


def _understood(text: str, views: Sequence[View]) -> tuple[list[str], list[_Asked], Lexicon]:
    """Parse the query for each view: all distinct parts, the parts of each view, and their posting lists."""
    texts: dict[str, int] = {}
    asked = []
    for view in views:
        parts, speaker = parse_query(text, view.present_speakers() if view.is_conversation else ())
        told = sorted(parts, key=len, reverse=True)[:_MOST_LOOKED_AT]
        asked.append(_Asked(view, [texts.setdefault(part, len(texts)) for part in parts if part in told], speaker))
    lexicon = Lexicon(views, list(texts))
    return list(texts), [_telling(place, each, lexicon) for place, each in enumerate(asked)], lexicon


async def _evidence(place: int, asked: _Asked, question: Query, lexicon: Lexicon, vectors: Floats | None) -> Scores:
    evidence = await score_candidates(place, asked.view, lexicon, vectors, asked.parts)
    await SEARCH_THREADS.run(_complete, evidence, asked.speaker, question)
    return evidence


def _complete(evidence: Scores, speaker: str | None, question: Query) -> None:
    add_speaker(evidence, speaker)
    add_recency_and_importance(evidence, question.weighing, question.asked_at)
    penalise_duplicates(evidence)


def _telling(place: int, asked: _Asked, lexicon: Lexicon) -> _Asked:
    """Keep the parts of a long query with the highest lexical scores."""
    if len(asked.parts) <= _MOST_PARTS:
        return asked

    def echo(part: int) -> float:
        _, said = lexicon.strongest(place, lexicon.weights(part), 1)
        return -float(said.max(initial=0.0)) * lexicon.total_idf(part)

    return asked._replace(parts=sorted(sorted(asked.parts, key=echo)[:_MOST_PARTS]))


async def _meanings(texts: Sequence[str], parts: set[int], embed: Embed) -> Floats | None:
    """Return an embedding for each text, zeros for parts that no view uses."""
    wanted = sorted(parts)
    found = await embed([texts[part] for part in wanted]) if wanted else None
    if found is None:
        return None
    vectors = np.zeros((len(texts), found.shape[1]), np.float32)
    vectors[wanted] = found
    return vectors
