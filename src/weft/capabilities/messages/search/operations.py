"""Finding messages by what they say."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import msgspec
from msgspec import structs

from weft.capabilities.messages.model import Visibility
from weft.capabilities.messages.search.searcher import MessageQuery, MessageSearchResult, Searcher, SearchResult
from weft.capabilities.messages.search.selection_records import Choice, ChoiceRecords
from weft.capabilities.sessions.model import SessionArchived, SessionId, SessionNotFound, lock_active_session
from weft.kernel.errors import InvalidInput, PermissionDenied
from weft.kernel.identity import Actor, Permission
from weft.kernel.json_input import encode_given
from weft.kernel.operation import Effect, RateClass, Request, Response, operation
from weft.kernel.transactions import Transactions

_SCOPES: dict[str, tuple[Visibility, ...]] = {
    "all": (),
    "public": ("public",),
    "private": ("private",),
}
# Of what was not taken, so many are named on record, however bad.
_LEFT_AT_MOST = 20
_ANY_SCORE = 0.0


class SearchContext(Request):
    """What to look for in a session's messages."""

    session_id: SessionId
    query: Annotated[
        str, msgspec.Meta(min_length=1, max_length=500, description="Words, however misspelt, or a question.")
    ]
    fuzzy_threshold: Annotated[
        float, msgspec.Meta(ge=0, le=100, description="The least score of a result, 0 to 100.")
    ] = 60.0
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="At most this many.")] = 10
    search_metadata: Annotated[bool, msgspec.Meta(description="Look in the messages' metadata too.")] = True
    search_scope: Annotated[
        Literal["all", "public", "private"],
        msgspec.Meta(description="All messages for you, only public ones, or only your private ones."),
    ] = "all"
    record: Annotated[
        bool, msgspec.Meta(description="Also put on record what was found and what was left out, as a selection.")
    ] = False


class SearchResults(Response, kw_only=True, omit_defaults=False):
    """The best matches first; ``searched_count`` is how many messages were searched: all that you may see.

    ``selection_id`` is the record of it, if one was asked for.
    """

    success: Literal[True] = True
    results: list[SearchResult]
    query: str
    threshold: float
    search_scope: str
    message_count: int
    search_time_ms: float
    performance_note: str
    cache_hit: bool
    searched_count: int
    selection_id: str | msgspec.UnsetType = msgspec.UNSET


@operation(
    "search.context",
    tool="search_context",
    http="GET /v1/sessions/{session_id}/search",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(SessionNotFound, SessionArchived, PermissionDenied),
)
async def search_context(
    request: SearchContext, actor: Actor, searcher: Searcher, records: Transactions[ChoiceRecords]
) -> SearchResults:
    """Search a session's messages, however old: by words that may be misspelt, or with a question.

    A score of 100 means that everything asked for is there, or that what is there tells this message from all others.
    """
    _check(request, actor)
    started = time.perf_counter()
    found = await searcher.find(actor, request.session_id, _wanted(request))
    return SearchResults(
        results=found.results,
        query=request.query,
        threshold=request.fuzzy_threshold,
        search_scope=request.search_scope,
        message_count=len(found.results),
        search_time_ms=round((time.perf_counter() - started) * 1000, 3),
        performance_note=_note(found),
        cache_hit=found.cache_hit,
        searched_count=found.searched,
        selection_id=await _recorded(request, actor, found, searcher, records) if request.record else msgspec.UNSET,
    )


def _check(request: SearchContext, actor: Actor) -> None:
    encode_given("query", request.query)
    if not request.query.strip():
        raise InvalidInput("query: nothing to search for", field="query")
    if request.record and Permission.WRITE not in actor.permissions:
        raise PermissionDenied("Putting a search on record needs the permission 'write'.")


async def _recorded(
    request: SearchContext,
    actor: Actor,
    found: MessageSearchResult,
    searcher: Searcher,
    records: Transactions[ChoiceRecords],
) -> str:
    """Put on record what a search took, beside the best of what it did not take."""
    wider = structs.replace(_wanted(request), threshold=_ANY_SCORE, limit=request.limit + _LEFT_AT_MOST)
    others = await searcher.find(actor, request.session_id, wider)
    taken = {result.message.id for result in found.results}
    left = [result for result in others.results if result.message.id not in taken][:_LEFT_AT_MOST]
    choice = Choice(request.query, found.searched, found.results, left, request.fuzzy_threshold, request.limit)

    async def add(writer: ChoiceRecords) -> str:
        session, _ = await lock_active_session(request.session_id, actor, writer.sessions)
        return (await writer.add(choice, session)).selection_id

    return await records.write(actor, add)


def _wanted(request: SearchContext) -> MessageQuery:
    return MessageQuery(
        request.query,
        request.fuzzy_threshold,
        request.limit,
        request.search_metadata,
        _SCOPES[request.search_scope],
    )


def _note(found: MessageSearchResult) -> str:
    if found.cache_hit:
        return "The same search of the same messages was answered before."
    return f"RapidFuzz and full text, by index; messages searched: {found.searched}."
