"""Fuzzy full-text search of a session's messages."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import msgspec
from msgspec import structs

from weftline.kernel.errors import InvalidInput, PermissionDenied
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.json_input import encode_json_field
from weftline.kernel.operation import Effect, RateClass, Request, Response, operation
from weftline.kernel.ports import Transactions
from weftline.sessions.messages.model import Visibility
from weftline.sessions.messages.search.searcher import MessageMatch, MessageQuery, MessageSearchResult, Searcher
from weftline.sessions.messages.search.selection_records import MessageSelection, SelectionRecorder
from weftline.sessions.model import SessionArchived, SessionId, SessionNotFound, lock_active_session

_SCOPES: dict[str, tuple[Visibility, ...]] = {
    "all": (),
    "public": ("public",),
    "private": ("private",),
}
# Recorded candidates that were not selected, whatever their score.
_MAX_REJECTED = 20
_ANY_SCORE = 0.0


class SearchMessages(Request):
    """Query and options of a message search."""

    session_id: SessionId
    query: Annotated[
        str, msgspec.Meta(min_length=1, max_length=500, description="Keywords, which may be misspelt, or a question.")
    ]
    fuzzy_threshold: Annotated[
        float, msgspec.Meta(ge=0, le=100, description="Minimum score of a result, 0 to 100.")
    ] = 60.0
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="Maximum results.")] = 10
    search_metadata: Annotated[bool, msgspec.Meta(description="Also search the messages' metadata.")] = True
    search_scope: Annotated[
        Literal["all", "public", "private"],
        msgspec.Meta(description="All messages you may read, only public ones, or only your private ones."),
    ] = "all"
    record: Annotated[bool, msgspec.Meta(description="Also record selected and rejected messages, as a selection.")] = (
        False
    )


class MessageSearchResponse(Response, kw_only=True, omit_defaults=False):
    """Best matches first. ``searched_count``: number of messages searched, all that you may read.

    ``selection_id``: id of the recorded selection, if ``record`` was set.
    """

    success: Literal[True] = True
    results: list[MessageMatch]
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
    "message.search",
    heavy=True,
    tool="search_context",
    http="GET /v1/sessions/{session_id}/messages/search",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(SessionNotFound, SessionArchived, PermissionDenied),
)
async def search_messages(
    request: SearchMessages, actor: Actor, searcher: Searcher, records: Transactions[SelectionRecorder]
) -> MessageSearchResponse:
    """Search the messages of one session by keywords, which may be misspelt, or with a question.

    A score of 100 means that the message matches the whole query, or matches terms that no other message has. To search
    by meaning, and in documents, boards and memory too, use search.
    """
    _check(request, actor)
    started = time.perf_counter()
    found = await searcher.find(actor, request.session_id, _message_query(request))
    return MessageSearchResponse(
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


def _check(request: SearchMessages, actor: Actor) -> None:
    encode_json_field("query", request.query)
    if not request.query.strip():
        raise InvalidInput("query: is empty", field="query")
    if request.record and Permission.WRITE not in actor.permissions:
        raise PermissionDenied("Recording a search needs the permission 'write'.")


async def _recorded(
    request: SearchMessages,
    actor: Actor,
    found: MessageSearchResult,
    searcher: Searcher,
    records: Transactions[SelectionRecorder],
) -> str:
    """Record what a search selected, and the best of what it rejected."""
    wider = structs.replace(_message_query(request), threshold=_ANY_SCORE, limit=request.limit + _MAX_REJECTED)
    others = await searcher.find(actor, request.session_id, wider)
    selected = {result.message.id for result in found.results}
    rejected = [result for result in others.results if result.message.id not in selected][:_MAX_REJECTED]
    selection = MessageSelection(
        request.query, found.searched, found.results, rejected, request.fuzzy_threshold, request.limit
    )

    async def add(writer: SelectionRecorder) -> str:
        session, _ = await lock_active_session(request.session_id, actor, writer.sessions)
        return (await writer.add(selection, session)).selection_id

    return await records.write(actor, add)


def _message_query(request: SearchMessages) -> MessageQuery:
    return MessageQuery(
        request.query,
        request.fuzzy_threshold,
        request.limit,
        request.search_metadata,
        _SCOPES[request.search_scope],
    )


def _note(found: MessageSearchResult) -> str:
    if found.cache_hit:
        return "Answered from the cache: same query, same messages."
    return f"RapidFuzz and full text, by index; messages searched: {found.searched}."
