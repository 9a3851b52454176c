"""Operation that requests missing context from the user, earlier messages, a tool, a policy or a peer."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import structs

from weftline.access.model import AgentId
from weftline.exchange.missing_context.answers import (
    TASK_MESSAGE_TYPE,
    GapRequest,
    RequestForm,
    answer_key,
    question_key,
    with_notes,
)
from weftline.exchange.missing_context.model import (
    MAX_REQUESTS,
    AlreadyResolved,
    MissingContextLimit,
    MissingContextNotFound,
    question_text,
    task_text,
    write_operation,
)
from weftline.exchange.missing_context.operations import MissingId, OfSession, Prose
from weftline.exchange.missing_context.service import Gaps, restricted_readers, session_of
from weftline.history.model import MAIN
from weftline.kernel.errors import InvalidInput, PermissionDenied
from weftline.kernel.identity import Actor
from weftline.kernel.json_input import encode_json_field, metadata_json
from weftline.kernel.operation import Effect, Request, Response, shared_fields
from weftline.kernel.ports import Transactions
from weftline.records.model import CandidateSource
from weftline.records.refs import Id
from weftline.records.vocabulary import MissingStatus
from weftline.safety.trust.gate import GATE_ERRORS, submitted_value
from weftline.sessions.agent_directory import RecipientNotFound
from weftline.sessions.messages.search.searcher import MessageQuery, Searcher
from weftline.sessions.messages.search.selection_records import MessageSelection, item_of, record_message_selection
from weftline.sessions.messages.transcript import MessageDraft
from weftline.sessions.model import SessionArchived, SessionNotFound
from weftline.state.board.board_writer import WriteOptions
from weftline.state.board.model import StoreFull, ValueTooLarge

if TYPE_CHECKING:
    from weftline.exchange.missing_context.model import Gap
    from weftline.records.model import ContextSelection, MissingContext
    from weftline.sessions.messages.search.searcher import MessageSearchResult
    from weftline.sessions.model import Session
    from weftline.sessions.recorder import Recorder

_USER = "user"
# Parameter that each form requires.
_REQUIRED: dict[RequestForm, str] = {
    "peer_task": "agent_id",
    "tool_invocation": "tool",
    "policy_request": "requested_from",
}
# Results with at least this score are candidates; others are recorded as omitted.
_MIN_CANDIDATE_SCORE, _MIN_SCORE = 60.0, 0.0
_MAX_CANDIDATES, _MAX_RESULTS = 10, 30
_MAX_QUERY_CHARACTERS = 500


class RequestMissing(Request):
    """The gap to request, and the form of the request."""

    missing_id: MissingId
    form: Annotated[
        RequestForm,
        msgspec.Meta(
            description="user_question: writes a key on the board; retrieval: searches the session's messages; "
            "peer_task: sends a message to agent_id; tool_invocation: records a request for tool; "
            "policy_request: records a request to requested_from."
        ),
    ]
    agent_id: Annotated[AgentId | None, msgspec.Meta(description="Peer to ask, for peer_task.")] = None
    tool: Annotated[Id | None, msgspec.Meta(description="Tool to call, for tool_invocation.")] = None
    requested_from: Annotated[
        Id | None, msgspec.Meta(description="Who is asked, if the form does not determine it.")
    ] = None
    detail: Annotated[Prose | None, msgspec.Meta(description="Further details, such as arguments.")] = None
    session_id: OfSession = None


class MissingRequested(Response):
    """The request. ``already_requested``: an identical request exists, and nothing changed.

    Messages found by a retrieval are added to candidate_sources.
    """

    missing_id: str
    status: MissingStatus
    form: RequestForm
    requested_from: str
    requested_at: datetime
    key: str | None = None
    answer_key: str | None = None
    message_id: int | None = None
    selection_id: str | None = None
    candidate_sources: tuple[CandidateSource, ...] = ()
    already_requested: bool = False


def _told(request: RequestMissing) -> dict[str, str | None]:
    """Return the texts of a request that others will read."""
    return {"tool": request.tool, "detail": request.detail, "requested_from": request.requested_from}


@write_operation(
    "missing.request",
    action="request",
    http="POST /v1/missing/{missing_id}/request",
    effect=Effect.OWN_TRANSACTIONS,
    errors=(
        MissingContextNotFound,
        AlreadyResolved,
        MissingContextLimit,
        SessionNotFound,
        SessionArchived,
        RecipientNotFound,
        PermissionDenied,
        ValueTooLarge,
        StoreFull,
        *GATE_ERRORS,
    ),
    content=lambda request: (submitted_value(_told(request)),),
)
async def request_missing(
    request: RequestMissing, actor: Actor, transactions: Transactions[Gaps], searcher: Searcher
) -> MissingRequested:
    """Request missing context from the user, earlier messages, a tool, a policy or a peer.

    Several requests in different forms are possible. Repeating a request changes nothing, except for a retrieval,
    which searches again.
    """
    _check(request)
    found: MessageSelection | None = None
    if request.form == "retrieval":
        # A search opens its own transactions and would hold the write lock for too long.
        gap = await transactions.read(actor, lambda gaps: gaps.find(request.missing_id, request.session_id))
        found = await search_answers(gap, session_of(gap).session_id, actor, searcher)
    return await transactions.write(actor, lambda gaps: _ask(request, gaps, found))


async def _ask(request: RequestMissing, gaps: Gaps, found: MessageSelection | None) -> MissingRequested:
    gap = await gaps.lock_open(request.missing_id, request.session_id)
    told = await gaps.gate.admit_value("missing_context", gap.record.missing_id, _told(request))
    request = structs.replace(request, **told)
    notes, pending = gap.notes, _new_request(request, gap, gaps)
    before = await _find_same(pending, gap, gaps)
    if before is not None:
        return structs.replace(_response(before, gap.record), already_requested=True)
    if len(notes.requests) >= MAX_REQUESTS:
        raise MissingContextLimit(f"This gap already has {MAX_REQUESTS} requests.", limit=MAX_REQUESTS)
    made = await _carry_out(pending, gap, gaps, found)
    sources = gap.record.candidate_sources
    if found is not None:
        sources = merge_candidates(found, gap, session_of(gap).session_id)
    record = with_notes(
        gap.record,
        structs.replace(notes, requests=(*notes.requests, made)),
        status="requested",
        requested_from=made.requested_from,
        candidate_sources=sources,
    )
    await gaps.recorder.change(gap.stored, record, gap.session)
    return _response(made, record)


async def _find_same(pending: GapRequest, gap: Gap, gaps: Gaps) -> GapRequest | None:
    """Return an identical earlier request whose question is still on the board."""
    same = [each for each in gap.notes.requests if _identity(each) == _identity(pending) and each.form != "retrieval"]
    if not same or same[-1].key is None:
        return same[-1] if same else None
    board = await gaps.boards.to_write(session_of(gap).session_id, MAIN)
    return same[-1] if same[-1].key in await board.read([same[-1].key]) else None


def _identity(request: GapRequest) -> tuple[str | None, ...]:
    return request.form, request.requested_from, request.tool, request.detail


async def _carry_out(request: GapRequest, gap: Gap, gaps: Gaps, found: MessageSelection | None) -> GapRequest:
    """Carry out a request; return it with the key, message or selection it created."""
    match request.form:
        case "user_question":
            return await _write_question(request, gap, gaps)
        case "peer_task":
            return await _send_task(request, gap, gaps)
        case "retrieval":
            return await _record_selection(request, gap, gaps, found)
        case "tool_invocation" | "policy_request":
            # Weftline calls no tools and decides no policies: it only records the request.
            return request


async def _write_question(request: GapRequest, gap: Gap, gaps: Gaps) -> GapRequest:
    key = question_key(gap.record.missing_id)
    board = await gaps.boards.to_write(session_of(gap).session_id, MAIN)
    options = WriteOptions(readable_by=restricted_readers(gap), reason="question", is_admitted=True)
    await board.write(key, question_text(gap.record, request), options)
    return structs.replace(request, key=key)


async def _send_task(request: GapRequest, gap: Gap, gaps: Gaps) -> GapRequest:
    session = session_of(gap)
    if restricted_readers(gap) is not None:
        raise InvalidInput("form: a task message is public, and not every participant may see this gap", field="form")
    message = await gaps.transcripts.add(session.session_id, _task(gap.record, request))
    return structs.replace(request, message_id=message.message_id)


def _task(gap: MissingContext, request: GapRequest) -> MessageDraft:
    metadata = {"missing_id": gap.missing_id, "severity": gap.severity, "blocked_actions": list(gap.blocked_actions)}
    return MessageDraft(
        content=task_text(gap, request),
        visibility="public",
        metadata=metadata_json(metadata),
        parent_id=None,
        recipient_id=request.requested_from,
        message_type=TASK_MESSAGE_TYPE,
        category="DIALOG",
        is_admitted=True,
    )


async def _record_selection(request: GapRequest, gap: Gap, gaps: Gaps, found: MessageSelection | None) -> GapRequest:
    assert found is not None  # noqa: S101 - the search ran before this transaction
    selection = await record_search(found, gap, session_of(gap), gaps.recorder, restricted_readers(gap))
    return structs.replace(request, selection_id=selection.selection_id)


def _check(request: RequestMissing) -> None:
    required = _REQUIRED.get(request.form)
    if required is not None and getattr(request, required) is None:
        raise InvalidInput(f"{required}: required for the form {request.form}", field=required)
    for name in ("missing_id", "tool", "requested_from", "detail"):
        encode_json_field(name, getattr(request, name))


def _new_request(request: RequestMissing, gap: Gap, gaps: Gaps) -> GapRequest:
    return GapRequest(
        form=request.form,
        requested_from=_recipient(request, gap),
        requested_by=gaps.actor.participant,
        requested_at=gaps.clock.now(),
        tool=request.tool,
        detail=request.detail,
    )


def _recipient(request: RequestMissing, gap: Gap) -> str:
    match request.form:
        case "peer_task":
            return request.agent_id or ""
        case "retrieval":
            return f"session:{session_of(gap).session_id}"
        case "tool_invocation":
            return request.requested_from or request.tool or ""
        case "user_question" | "policy_request":
            return request.requested_from or _USER


def _response(request: GapRequest, gap: MissingContext) -> MissingRequested:
    return MissingRequested(
        **shared_fields(gap, MissingRequested) | shared_fields(request, MissingRequested),
        answer_key=answer_key(gap.missing_id) if request.key else None,
    )


async def search_answers(gap: Gap, session_id: str, actor: Actor, searcher: Searcher) -> MessageSelection:
    """Search the session's messages for the question of a gap."""
    query = gap.record.question[:_MAX_QUERY_CHARACTERS]
    # Only public messages: the results are visible to everyone who can see the gap.
    wanted = MessageQuery(query, _MIN_SCORE, _MAX_RESULTS, False, ("public",))  # noqa: FBT003 - not their metadata
    return _split_results(query, await searcher.find(actor, session_id, wanted), gap)


async def record_search(
    choice: MessageSelection, gap: Gap, session: Session, recorder: Recorder, readable_by: tuple[str, ...] | None
) -> ContextSelection:
    """Record the search for a gap: selected and omitted messages."""
    missing_id = gap.record.missing_id
    return await record_message_selection(
        choice,
        session,
        recorder,
        readable_by=readable_by,
        intent=f"resolve {missing_id}",
        rationale=f"The best matches among {choice.searched} public messages.",
        metadata={"weftline": {"missing_id": missing_id}},
    )


def merge_candidates(choice: MessageSelection, gap: Gap, session_id: str) -> tuple[CandidateSource, ...]:
    """Return the candidate sources of a gap, with those that the search added."""
    known = {source.ref for source in gap.record.candidate_sources if source.ref}
    found = (
        CandidateSource(
            kind="message",
            hint=f"message {result.message.id} of {result.message.sender}, score {result.score}",
            uri=f"session://{session_id}#message-{result.message.id}",
            ref=item_of(result, session_id),
        )
        for result in choice.selected
    )
    return (*gap.record.candidate_sources, *(source for source in found if source.ref not in known))


def _split_results(query: str, found: MessageSearchResult, gap: Gap) -> MessageSelection:
    # A message that asks the question is not an answer.
    questions = {request.message_id for request in gap.notes.requests}
    results = [result for result in found.results if result.message.id not in questions]
    taken = [result for result in results if result.score >= _MIN_CANDIDATE_SCORE][:_MAX_CANDIDATES]
    left = [result for result in results if result not in taken]
    return MessageSelection(query, found.searched, taken, left, _MIN_CANDIDATE_SCORE, _MAX_CANDIDATES)
