"""Ranking what a caller may see by how much it has to do with a question.

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
from weft.capabilities.search.scoring import add_speaker, add_weighing, evidence_in
from weft.capabilities.search.selection import ScoredCandidates, choose
from weft.kernel.thread_pools import SEARCH_THREADS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.search.index_view import Floats, View
    from weft.capabilities.search.model import Query, Ranking
    from weft.capabilities.search.retriever import Embed
    from weft.capabilities.search.scoring import Scores

# Of a question of many parts these are looked for, those that say most in words that are there.
_MOST_PARTS = 16
# Of still more, the longest are looked at for this.
_MOST_LOOKED_AT = 64


class _Asked(NamedTuple):
    """What is looked for in one view: parts of the question by their places, and whose words are meant."""

    view: View
    parts: list[int]
    speaker: str | None


async def rank(question: Query, views: Sequence[View], embed: Embed) -> Ranking:
    """Return what has most to do with a question. ``embed`` gives the meaning of texts, or None if it cannot now."""
    weighed = await weigh(question, views, embed)
    return await SEARCH_THREADS.run(choose, question, views, weighed)


async def weigh(question: Query, views: Sequence[View], embed: Embed) -> ScoredCandidates:
    """Return everything worth a close look, and what speaks for each of it."""
    texts, asked, lexicon = await SEARCH_THREADS.run(_understood, question.text, views)
    vectors = await _meanings(texts, {part for each in asked for part in each.parts}, embed)
    found = await asyncio.gather(
        *(_evidence(place, each, question, lexicon, vectors) for place, each in enumerate(asked) if each.view.size)
    )
    return ScoredCandidates(found, vectors is not None)


def _understood(text: str, views: Sequence[View]) -> tuple[list[str], list[_Asked], Lexicon]:
    """Return all texts that are looked for, which of them in which view, and where their words are."""
    texts: dict[str, int] = {}
    asked = []
    for view in views:
        parts, speaker = parse_query(text, view.present_speakers() if view.is_conversation else ())
        told = sorted(parts, key=len, reverse=True)[:_MOST_LOOKED_AT]
        asked.append(_Asked(view, [texts.setdefault(part, len(texts)) for part in parts if part in told], speaker))
    lexicon = Lexicon(views, list(texts))
    return list(texts), [_telling(place, each, lexicon) for place, each in enumerate(asked)], lexicon


async def _evidence(place: int, asked: _Asked, question: Query, lexicon: Lexicon, vectors: Floats | None) -> Scores:
    evidence = await evidence_in(place, asked.view, lexicon, vectors, asked.parts)
    await SEARCH_THREADS.run(_complete, evidence, asked.speaker, question)
    return evidence


def _complete(evidence: Scores, speaker: str | None, question: Query) -> None:
    add_speaker(evidence, speaker)
    add_weighing(evidence, question.weighing, question.asked_at)
    penalise_duplicates(evidence)


def _telling(place: int, asked: _Asked, lexicon: Lexicon) -> _Asked:
    """Leave out parts of a very long question: those that find least by their words."""
    if len(asked.parts) <= _MOST_PARTS:
        return asked

    def echo(part: int) -> float:
        _, said = lexicon.strongest(place, lexicon.weights(part), 1)
        return -float(said.max(initial=0.0)) * lexicon.tells(part)

    return asked._replace(parts=sorted(sorted(asked.parts, key=echo)[:_MOST_PARTS]))


async def _meanings(texts: Sequence[str], parts: set[int], embed: Embed) -> Floats | None:
    """Return a row for each text, zeros for those that no view is asked for."""
    wanted = sorted(parts)
    found = await embed([texts[part] for part in wanted]) if wanted else None
    if found is None:
        return None
    vectors = np.zeros((len(texts), found.shape[1]), np.float32)
    vectors[wanted] = found
    return vectors
