"""Search of a session's messages: fuzzy full text, and by sender and time range."""

from __future__ import annotations

import time
from datetime import datetime
from datetime import time as clock_time
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import structs

from weftline.history.item_ids import MessageItemId
from weftline.kernel.clock import TimestampText, parse_timestamp, to_micros
from weftline.kernel.errors import InvalidInput, PermissionDenied
from weftline.kernel.fields import Count, is_name, new_id
from weftline.kernel.identity import ANYONE, PRINCIPAL, Actor, Permission
from weftline.kernel.json_input import encode_json_field
from weftline.kernel.operation import Effect, RateClass, Request, Response, operation
from weftline.kernel.ports import Transactions
from weftline.records.model import ContextAssembly, ContextBudget, ContextSelection, Omission
from weftline.records.record_ids import SurfaceId
from weftline.records.vocabulary import SCHEMA_VERSION
from weftline.sessions.messages.model import TranscriptRange, Visibility
from weftline.sessions.messages.operations import MessageInfo, message_infos, skips_far
from weftline.sessions.messages.search import MessageMatch, MessageQuery, MessageSearchResult, Searcher
from weftline.sessions.messages.transcript import MessagePage, Transcripts
from weftline.sessions.model import SessionArchived, SessionId, SessionNotFound, lock_active_session
from weftline.sessions.recorder import Recorder
from weftline.sessions.sql import SessionStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.sessions.model import Session


# Records searches as selections: of message search with its budget, and of retrieval.

T = TypeVar("T")


class MessageSelection(NamedTuple):
    """Messages that a search selected and rejected, by minimum score and maximum number."""

    query: str
    searched: int
    selected: Sequence[MessageMatch]
    rejected: Sequence[MessageMatch]
    least_score: float
    most_items: int

    @property
    def candidates(self) -> list[MessageMatch]:
        return [*self.selected, *self.rejected]

    @property
    def is_public(self) -> bool:
        return all(result.message.visibility == "public" for result in self.candidates)


class SelectionRecorder(msgspec.Struct, frozen=True):
    """Recorder and stores of one transaction."""

    recorder: Recorder
    sessions: SessionStore

    async def add(self, selection: MessageSelection, session: Session) -> ContextSelection:
        """Record a search: readable by all participants if it saw only public messages, else by the caller."""
        own = (f"{PRINCIPAL}{self.recorder.actor.principal_id}",)
        return await record_message_selection(
            selection,
            session,
            self.recorder,
            readable_by=ANYONE if selection.is_public else own,
            rationale=f"Of {selection.searched} messages, those that match the query best.",
        )


async def record_message_selection(
    selection: MessageSelection,
    session: Session,
    recorder: Recorder,
    *,
    readable_by: tuple[str, ...] | None,
    **more: Any,  # noqa: ANN401 - further fields of a selection
) -> ContextSelection:
    """Record a message search: its budget and its selection."""
    budget = _budget(selection, recorder)
    fields = _selection_fields(selection, session.session_id) | {"budget_ref": budget.budget_id} | more
    return await record_selection(recorder, session, readable_by=readable_by, budget=budget, **fields)


async def record_selection(
    recorder: Recorder,
    session: Session | None,
    *,
    readable_by: tuple[str, ...] | None,
    budget: ContextBudget | None = None,
    assembly: ContextAssembly | None = None,
    **fields: Any,  # noqa: ANN401 - fields of a selection
) -> ContextSelection:
    """Record a selection, with its budget and the assembly of what was selected if there are any.

    Without a session its surface is the agent.
    """
    selection = ContextSelection(
        schema_version=SCHEMA_VERSION,
        selection_id=new_id("selection"),
        surface_id=f"agent:{recorder.actor.principal_id}" if session is None else str(SurfaceId(session.session_id)),
        created_at=recorder.clock.now(),
        actor_ref=recorder.actor.participant,
        **fields,
    )
    await recorder.begin(selection, session, readable_by=readable_by)
    await recorder.add_all([*filter(None, (budget, selection, assembly))], session, readable_by=readable_by)
    return selection


def _budget(selection: MessageSelection, recorder: Recorder) -> ContextBudget:
    return ContextBudget(
        schema_version=SCHEMA_VERSION,
        budget_id=new_id("budget"),
        target=recorder.actor.participant,
        created_at=recorder.clock.now(),
        max_items=selection.most_items,
        actual_items=len(selection.selected),
        overflow_strategy="truncate_tail",
    )


def _selection_fields(selection: MessageSelection, session_id: str) -> dict[str, Any]:
    named = [(item_of(result, session_id), result) for result in selection.candidates]
    selected = tuple(item_of(result, session_id) for result in selection.selected)
    return {
        "query": selection.query,
        "candidate_item_refs": tuple(name for name, _ in named),
        "selected_item_refs": selected,
        "omitted_item_refs": tuple(
            _omission(name, result, selection) for name, result in named if name not in selected
        ),
        "ranking_signals": {
            "score": {name: result.score for name, result in named},
            "matched_by": {name: result.matched_by for name, result in named},
        },
        "selection_policy": {"least_score": selection.least_score, "most_items": selection.most_items},
    }


def _omission(name: str, result: MessageMatch, selection: MessageSelection) -> Omission:
    good_enough = result.score >= selection.least_score
    return Omission(item_ref=name, reason="budget" if good_enough else "low_relevance", detail=f"score {result.score}")


def item_of(result: MessageMatch, session_id: str) -> str:
    """Return the item id of a result's message."""
    return str(MessageItemId(session_id, result.message.id))


# Fuzzy full-text search of a session's messages.

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


# Message search by sender and by time range.


class SearchBySender(Request):
    """Sender and page of a message search."""

    session_id: SessionId
    sender: Annotated[str, msgspec.Meta(min_length=1, max_length=100, description="agent_id of the sender.")]
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="Maximum messages.")] = 20
    offset: Annotated[Count, msgspec.Meta(description="Number of newest messages to skip.")] = 0


class MessagesBySender(Response, kw_only=True, omit_defaults=False):
    """A sender's messages, newest first."""

    success: Literal[True] = True
    messages: list[MessageInfo]
    sender: str
    count: int
    has_more: bool


class SearchByTimerange(Request):
    """Time range of a message search, both ends inclusive."""

    session_id: SessionId
    start_time: TimestampText
    end_time: TimestampText
    limit: Annotated[int, msgspec.Meta(ge=1, le=200, description="Maximum messages.")] = 50
    offset: Annotated[Count, msgspec.Meta(description="Number of oldest messages to skip.")] = 0


class TimeRange(Response, kw_only=True, omit_defaults=False):
    """The time range searched, in UTC."""

    start: datetime
    end: datetime


class MessagesByTime(Response, kw_only=True, omit_defaults=False):
    """Messages of a time range, oldest first."""

    success: Literal[True] = True
    messages: list[MessageInfo]
    timerange: TimeRange
    count: int
    has_more: bool


@operation(
    "message.search_by_sender",
    tool="search_by_sender",
    http="GET /v1/sessions/{session_id}/messages/search/by-sender",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.READ,
    heavy=skips_far,
    errors=(SessionNotFound,),
)
async def search_by_sender(request: SearchBySender, transcripts: Transcripts) -> MessagesBySender:
    """List the messages of one sender in a session that you may read, newest first."""
    encode_json_field("sender", request.sender)
    transcript = await transcripts.to_read(request.session_id)
    part = TranscriptRange(sender=request.sender, offset=request.offset, limit=request.limit, newest_first=True)
    page = await transcript.page(part) if is_name(request.sender) else MessagePage([], has_more=False)
    shown = message_infos(page.messages)
    return MessagesBySender(messages=shown, sender=request.sender, count=len(shown), has_more=page.has_more)


@operation(
    "message.search_by_timerange",
    tool="search_by_timerange",
    http="GET /v1/sessions/{session_id}/messages/search/by-timerange",
    permission=Permission.READ,
    rate=RateClass.SEARCH,
    effect=Effect.READ,
    heavy=skips_far,
    errors=(SessionNotFound,),
)
async def search_by_timerange(request: SearchByTimerange, transcripts: Transcripts) -> MessagesByTime:
    """List the messages of a time range in a session that you may read, oldest first."""
    start = parse_timestamp("start_time", request.start_time, of_day=clock_time.min)
    end = parse_timestamp("end_time", request.end_time, of_day=clock_time.max)
    if start > end:
        raise InvalidInput("start_time: later than end_time", field="start_time")
    transcript = await transcripts.to_read(request.session_id)
    first, last = await transcripts.messages.between(request.session_id, to_micros(start), to_micros(end))
    page = await transcript.page(
        TranscriptRange(after=first - 1, until=last, offset=request.offset, limit=request.limit)
    )
    shown = message_infos(page.messages)
    return MessagesByTime(
        messages=shown, timerange=TimeRange(start=start, end=end), count=len(shown), has_more=page.has_more
    )
