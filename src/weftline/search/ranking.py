"""Hybrid ranking of visible chunks by relevance to a query.

Candidates are found by keywords and by meaning. Their signals add up to a score, which is calibrated to a relevance
from 0 to 1. Selection then takes what an answer or a prompt needs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weftline.indexing.collections import WINDOWS
from weftline.indexing.text_analysis import terms
from weftline.kernel.thread_pools import SEARCH_THREADS
from weftline.search.scoring import (
    Lexicon,
    add_entities,
    add_prior,
    add_recency_and_importance,
    add_speaker,
    entity_weights,
    penalise_duplicates,
    score_candidates,
)
from weftline.search.selection import ScoredCandidates, select_results
from weftline.search.task_queries import parse_query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.search.model import Floats, Query, Ranking, View
    from weftline.search.retriever import Embed
    from weftline.search.scoring import Scores

# Maximum parts of a long query: those with the highest lexical scores.
_MAX_PARTS = 16
# Maximum parts considered for that, longest first.
_MAX_CONSIDERED_PARTS = 64


class _ParsedQuery(NamedTuple):
    """All distinct parts of a query, the parts of each view, and those of the own conversation weighed with all."""

    texts: list[str]
    by_view: list[_ViewQuery]
    conversation: list[_ViewQuery]


class _Statistics(NamedTuple):
    """Posting lists of views that are weighed together, and the weights of the entities of a query in them."""

    lexicon: Lexicon
    entities: Mapping[str, float]


class _ViewQuery(NamedTuple):
    """Query parts for one view, by index, and the speaker that the query names.

    ``place`` is that of the view in its ``statistics``.
    """

    view: View
    place: int
    parts: list[int]
    speaker: str | None
    statistics: _Statistics


async def rank(query: Query, views: Sequence[View], embed: Embed) -> Ranking:
    """Rank the rows of views for a query. ``embed`` returns None if the model is unavailable."""
    candidates = await score_views(query, views, embed)
    return await SEARCH_THREADS.run(select_results, query, views, candidates)


async def score_views(query: Query, views: Sequence[View], embed: Embed) -> ScoredCandidates:
    """Return the candidates with their signals."""
    parsed = await SEARCH_THREADS.run(_parse, query, views)
    queries = [*parsed.by_view, *parsed.conversation]
    vectors = await _embed_parts(parsed.texts, {part for each in queries for part in each.parts}, embed)
    by_view, conversation = await asyncio.gather(
        *(
            asyncio.gather(*(_scored(each, query, vectors) for each in of_views if each.view.size))
            for of_views in (parsed.by_view, parsed.conversation)
        )
    )
    return ScoredCandidates(by_view, conversation, vectors is not None, len(set(terms(query.text))))


def _parse(query: Query, views: Sequence[View]) -> _ParsedQuery:
    """Parse the query for each view."""
    texts: dict[str, int] = {}
    parts = [_parse_for(query, view, texts) for view in views]
    together = _statistics(query, views, texts)
    by_view = [
        _strongest_parts(_ViewQuery(view, place, *each, together))
        for place, (view, each) in enumerate(zip(views, parts, strict=True))
    ]
    own = [index for index, view in enumerate(views) if view.collection == WINDOWS] if query.is_task else []
    # What a conversation says already is compared with documents; which of its turns a prompt quotes depends on that
    # conversation alone, whatever else is stored.
    conversation = [by_view[index] for index in own]
    alone = _statistics(query, [views[index] for index in own], texts) if own else together
    for place, index in enumerate(own):
        by_view[index] = _strongest_parts(_ViewQuery(views[index], place, *parts[index], alone))
    return _ParsedQuery(list(texts), by_view, conversation)


def _statistics(query: Query, views: Sequence[View], texts: Mapping[str, int]) -> _Statistics:
    return _Statistics(Lexicon(views, list(texts)), entity_weights(query.text, query.asked_at, views))


def _parse_for(query: Query, view: View, texts: dict[str, int]) -> tuple[list[int], str | None]:
    """Return the parts of a query for a view, by their index in ``texts``, and the speaker that it names."""
    parts, speaker = parse_query(query.text, view.present_speakers() if view.is_conversation else ())
    longest = sorted(parts, key=len, reverse=True)[:_MAX_CONSIDERED_PARTS]
    return [texts.setdefault(part, len(texts)) for part in parts if part in longest], speaker


async def _scored(of_view: _ViewQuery, query: Query, vectors: Floats | None) -> Scores:
    if of_view.view.asks_database:
        return await _score(of_view, query, vectors)
    return await SEARCH_THREADS.run_whole(_score, of_view, query, vectors)


async def _score(of_view: _ViewQuery, query: Query, vectors: Floats | None) -> Scores:
    view, statistics = of_view.view, of_view.statistics
    scores = await score_candidates(of_view.place, view, statistics.lexicon, vectors, of_view.parts)
    await SEARCH_THREADS.run(_complete, scores, query, of_view.speaker, statistics.entities)
    return scores


def _complete(scores: Scores, query: Query, speaker: str | None, entities: Mapping[str, float]) -> None:
    add_speaker(scores, speaker)
    add_entities(scores, entities)
    add_prior(scores)
    add_recency_and_importance(scores, query.weights, query.asked_at)
    penalise_duplicates(scores)


def _strongest_parts(view_query: _ViewQuery) -> _ViewQuery:
    """Keep the parts of a long query with the highest lexical scores."""
    if len(view_query.parts) <= _MAX_PARTS:
        return view_query
    lexicon, place = view_query.statistics.lexicon, view_query.place

    def strength(part: int) -> float:
        _, found = lexicon.strongest(place, lexicon.weights(part), 1)
        return -float(found.max(initial=0.0)) * lexicon.total_idf(part)

    return view_query._replace(parts=sorted(sorted(view_query.parts, key=strength)[:_MAX_PARTS]))


async def _embed_parts(texts: Sequence[str], parts: set[int], embed: Embed) -> Floats | None:
    """Return an embedding for each text, zeros for parts that no view uses."""
    used = sorted(parts)
    found = await embed([texts[part] for part in used]) if used else None
    if found is None:
        return None
    vectors = np.zeros((len(texts), found.shape[1]), np.float32)
    vectors[used] = found
    return vectors
