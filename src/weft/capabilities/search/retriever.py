"""Searching everything a caller may see: rights first, then meaning and words, then what is still there to be read."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import structs

from weft.capabilities.indexing.embeddings.model import EmbedderUnavailable, Embeddings, TextRefused
from weft.capabilities.indexing.embeddings.model_selection import serving_model
from weft.capabilities.knowledge.quotas import max_results
from weft.capabilities.messages.model import ADMINS
from weft.capabilities.search.model import Query, Ranked, Ranking, RankingWeights
from weft.capabilities.search.passages import ChunkPassage, read_numbers, read_siblings
from weft.capabilities.search.scope import resolve_scope
from weft.kernel.clock import Clock, to_micros
from weft.kernel.events import NewEvent
from weft.kernel.identity import PRINCIPAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.capabilities.indexing.embeddings.model import Vectors
    from weft.capabilities.search.index_view import CollectionQuery, View, Views
    from weft.capabilities.search.scope import RequestedScope
    from weft.capabilities.search.stores import SearchStores
    from weft.kernel.identity import Actor
    from weft.kernel.ports import Transactions

# Expired items, and those of a session being deleted, stay in the collection for a short time. So many of what is
# nearest to a question are read to tell what is gone, so often.
_PROBED = 256
_PROBES = 16


# Gives the meaning of texts, a row each; None if that cannot be told now, and words alone must do.
Embed = Callable[["Sequence[str]"], Awaitable["Vectors | None"]]


class Rank(Protocol):
    """How what a caller may see is ranked."""

    async def __call__(self, question: Query, views: Sequence[View], embed: Embed) -> Ranking: ...


class Unanswered(Protocol):
    """Where it is told that nothing relevant was found; whoever searches does not depend on it."""

    async def tell(self, actor: Actor, event: NewEvent) -> None: ...


class SearchRequest(NamedTuple):
    """A question as a caller asks it: of which part of everything."""

    question: Query
    part: RequestedScope


class SearchHit(NamedTuple):
    """Something that was found, and why."""

    ranked: Ranked
    passage: ChunkPassage


class SearchScope(NamedTuple):
    """What is there for a caller to be searched, and by which model. ``most`` is what its plan allows of results.

    ``partial`` tells that a copy of it is being made anew, so that not all of it can be found yet.
    """

    wishes: Sequence[CollectionQuery]
    model: str
    most: int | None
    pending_documents: int
    pending_events: int
    partial: bool = False


class RetrievalResult(NamedTuple):
    """What a search came to. ``model`` is None if it could not ask for meaning."""

    hits: list[SearchHit]
    ranking: Ranking
    outlook: SearchScope
    model: str | None


@dataclass(frozen=True, slots=True)
class Retriever:
    """Searches, each time in what is there for the caller at that timestamp."""

    libraries: Transactions[SearchStores]
    views: Views
    embeddings: Embeddings
    rank: Rank
    clock: Clock
    # Told the tenant, the collection and the text of what is asked: whoever compares models asks it again.
    note: Callable[[str, str, str], None]
    unanswered: Unanswered

    async def find(self, actor: Actor, asked: SearchRequest) -> RetrievalResult:
        """Return what answers a question best, the best first; the most recent if nothing does."""
        outlook, views = await self.look(actor, asked.part)
        question = _within(asked.question, outlook)
        for wish in outlook.wishes:
            self.note(actor.tenant, wish.collection, question.text)
        embed = partial(self._meanings, actor, outlook.model)
        ranking, hits = await self._ranked(actor, question, outlook, views, embed)
        if ranking.fallback is not None and not outlook.partial:
            await self.unanswered.tell(actor, _low_relevance(actor, asked, ranking))
        return RetrievalResult(hits, ranking, outlook, outlook.model if ranking.by_meaning else None)

    async def look(self, actor: Actor, part: RequestedScope) -> tuple[SearchScope, list[View]]:
        """Open all that a caller may see of a part of everything."""
        outlook = await self.libraries.read(actor, partial(self._outlook, part))
        views = await self._opened(actor, outlook)
        return outlook._replace(partial=any(view.behind for view in views)), views

    async def read(self, actor: Actor, ranked: Iterable[Ranked]) -> list[SearchHit]:
        """Return those of the chunks that the caller may read now, in the same order."""
        wanted = list(ranked)
        named = [(each.collection, each.number) for each in wanted]
        passages = await self.libraries.read(actor, partial(read_numbers, named))
        return [
            SearchHit(each, passages[name])
            for each in wanted
            if (name := f"{each.collection}/{each.number}") in passages
        ]

    async def _opened(self, actor: Actor, outlook: SearchScope, gone: Iterable[tuple[str, int]] = ()) -> list[View]:
        """Open what there is to be searched, without what has turned out to be gone."""
        without: defaultdict[str, set[int]] = defaultdict(set)
        for collection, number in gone:
            without[collection].add(number)
        wishes = [wish._replace(without=frozenset(without[wish.collection])) for wish in outlook.wishes]
        opened = (self.views.open(actor.tenant, wish, actor, outlook.model) for wish in wishes)
        return list(await asyncio.gather(*opened))

    def now(self) -> int:
        return to_micros(self.clock.now())

    async def _outlook(self, part: RequestedScope, library: SearchStores) -> SearchScope:
        sight = await resolve_scope(part, library)
        model = serving_model(await library.models.listed(), self.embeddings.models())
        most = max_results(await library.domains.plan())
        return SearchScope(
            sight.wishes, model.name, most, sight.pending_documents, await library.lag.events(library.actor, part)
        )

    async def _meanings(self, actor: Actor, model: str, texts: Sequence[str]) -> Vectors | None:
        try:
            found = await asyncio.gather(*(self.embeddings.of_query(actor, text, model) for text in texts))
        except (EmbedderUnavailable, TextRefused):
            return None
        from numpy import stack  # noqa: PLC0415 - whoever embeds has it loaded

        return stack(found)

    async def _ranked(
        self, actor: Actor, question: Query, outlook: SearchScope, views: Sequence[View], embed: Embed
    ) -> tuple[Ranking, list[SearchHit]]:
        """Rank, and rank anew without what was found and has gone: neither a place nor a figure is left to it."""
        ranking = await self.rank(question, views, embed)
        hits = await self.read(actor, ranking.ranked)
        if len(hits) < len(ranking.ranked):
            ranking = await self.rank(question, await self._still_there(actor, question, outlook, embed), embed)
            hits = await self.read(actor, ranking.ranked)
        return ranking, hits

    async def _still_there(self, actor: Actor, question: Query, outlook: SearchScope, embed: Embed) -> list[View]:
        """Open what there is, without what is near to a question and cannot be read any more."""
        near = structs.replace(question, top_k=_PROBED, most=None, weighing=RankingWeights(min_score=0.0))
        views, gone = await self._opened(actor, outlook), set[tuple[str, int]]()
        for _ in range(_PROBES):
            ranking = await self.rank(near, views, embed)
            hits = await self.read(actor, ranking.ranked)
            fallen = _names(ranking.ranked) - _names(hit.ranked for hit in hits)
            if not fallen:
                break
            gone |= fallen | await self.libraries.read(actor, partial(read_siblings, fallen))
            views = await self._opened(actor, outlook, gone)
        return views


def _within(question: Query, outlook: SearchScope) -> Query:
    allowed = question.top_k if outlook.most is None else min(question.top_k, outlook.most)
    return structs.replace(question, top_k=allowed, most=outlook.most)


def _names(ranked: Iterable[Ranked]) -> set[tuple[str, int]]:
    return {(each.collection, each.number) for each in ranked}


def _low_relevance(actor: Actor, asked: SearchRequest, ranking: Ranking) -> NewEvent:
    """Return what is told to those who see to it that searches find something, without what was asked."""
    part = asked.part
    return NewEvent(
        type="search.low_relevance",
        session_id=None,
        subject=actor.principal_id,
        actor=actor.participant,
        readable_by=(f"{PRINCIPAL}{actor.principal_id}", ADMINS),
        data={
            # Not every admin may know their names.
            "domains": len(part.domains),
            "in_session": part.session_id,
            "sources": sorted(part.wanted),
            "searched": ranking.searched,
            "confidence": ranking.confidence,
            "min_score": asked.question.weighing.min_score,
        },
    )
