"""Finding messages by what they say."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import msgspec

from weft.capabilities.messages.model import Visibility
from weft.capabilities.search.searching import Found, Searcher, SearchResult, Wanted
from weft.capabilities.sessions.model import SessionId, SessionNotFound
from weft.kernel.errors import InvalidInput
from weft.kernel.given_json import encode_given
from weft.kernel.identity import Actor, Permission
from weft.kernel.operation import Effect, RateClass, Request, Response, operation

_SCOPES: dict[str, tuple[Visibility, ...]] = {
    "all": (),
    "public": ("public",),
    "private": ("private",),
}


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


class SearchResults(Response, kw_only=True, omit_defaults=False):
    """The best matches first; ``searched_count`` is how many messages were searched: all that you may see."""

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


@operation(
    "search.context",
    tool="search_context",
    http="GET /v1/sessions/{session_id}/search",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(SessionNotFound,),
)
async def search_context(request: SearchContext, actor: Actor, searcher: Searcher) -> SearchResults:
    """Search a session's messages, however old: by words that may be misspelt, or with a question.

    A score of 100 means that everything asked for is there, or that what is there tells this message from all others.
    """
    encode_given("query", request.query)
    if not request.query.strip():
        raise InvalidInput("query: nothing to search for", field="query")
    started = time.perf_counter()
    wanted = Wanted(
        request.query,
        request.fuzzy_threshold,
        request.limit,
        request.search_metadata,
        _SCOPES[request.search_scope],
    )
    found = await searcher.find(actor, request.session_id, wanted)
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
    )


def _note(found: Found) -> str:
    if found.cache_hit:
        return "The same search of the same messages was answered before."
    return f"RapidFuzz and full text, by index; messages searched: {found.searched}."
