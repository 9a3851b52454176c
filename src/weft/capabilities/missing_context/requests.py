"""Asking for what is missing: the user, earlier messages, a tool, whoever grants permission, or a peer."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
from msgspec import structs

from weft.capabilities.access.model import AgentId, AgentNotFound, actor_for
from weft.capabilities.board.board_writer import WriteOptions
from weft.capabilities.board.model import StoreFull, ValueTooLarge
from weft.capabilities.history.model import MAIN
from weft.capabilities.messages.search.searcher import Searcher
from weft.capabilities.messages.transcript import MessageDraft
from weft.capabilities.missing_context.answers import TASK, GapRequest, RequestForm, answer_key, noted, question_key
from weft.capabilities.missing_context.lookup import candidates, look_for, select
from weft.capabilities.missing_context.model import (
    MOST_REQUESTS,
    TOOL,
    AlreadyResolved,
    MissingContextLimit,
    MissingContextNotFound,
    question_text,
    task_text,
)
from weft.capabilities.missing_context.operations import MissingId, OfSession, Prose
from weft.capabilities.missing_context.service import Gaps, closed_to, session_of
from weft.capabilities.records.model import CandidateSource
from weft.capabilities.records.refs import Id
from weft.capabilities.records.vocabulary import MissingStatus
from weft.capabilities.sessions.model import SessionArchived, SessionNotFound
from weft.kernel.errors import InvalidInput, PermissionDenied
from weft.kernel.identity import Actor, Permission
from weft.kernel.json_input import encode_given, metadata_json
from weft.kernel.operation import Effect, RateClass, Request, Response, operation
from weft.kernel.transactions import Transactions

if TYPE_CHECKING:
    from weft.capabilities.access.model import Principal
    from weft.capabilities.messages.search.selection_records import Choice
    from weft.capabilities.missing_context.model import Gap
    from weft.capabilities.records.model import MissingContext
    from weft.capabilities.sessions.model import Session

_USER = "user"
# What each form cannot do without.
_NEEDED: dict[RequestForm, str] = {
    "peer_task": "agent_id",
    "tool_invocation": "tool",
    "policy_request": "requested_from",
}


class RequestMissing(Request):
    """What to ask for, and how."""

    missing_id: MissingId
    form: Annotated[
        RequestForm,
        msgspec.Meta(
            description="user_question: a key on the board; retrieval: a search of the session's messages now; "
            "peer_task: a message to agent_id; tool_invocation: of tool; policy_request: of requested_from."
        ),
    ]
    agent_id: Annotated[AgentId | None, msgspec.Meta(description="The peer to ask, for peer_task.")] = None
    tool: Annotated[Id | None, msgspec.Meta(description="The tool that can tell, for tool_invocation.")] = None
    requested_from: Annotated[
        Id | None, msgspec.Meta(description="Who or what is asked, where the form does not say it.")
    ] = None
    detail: Annotated[Prose | None, msgspec.Meta(description="What else is to be said, such as arguments.")] = None
    session_id: OfSession = None


class MissingRequested(Response):
    """It was asked for; ``already_requested`` if exactly so before, and nothing is new.

    What is found by retrieval is among its candidate_sources.
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


class _Asking(NamedTuple):
    """A request as one transaction carries it out: of which gap, what was found for it, and the note to leave."""

    gaps: Gaps
    gap: Gap
    found: Choice | None
    asked: GapRequest


@operation(
    "missing.request",
    tool=TOOL,
    action="request",
    http="POST /v1/missing/{missing_id}/request",
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(
        MissingContextNotFound,
        AlreadyResolved,
        MissingContextLimit,
        SessionNotFound,
        SessionArchived,
        AgentNotFound,
        PermissionDenied,
        ValueTooLarge,
        StoreFull,
    ),
)
async def request_missing(
    request: RequestMissing, actor: Actor, errands: Transactions[Gaps], searcher: Searcher
) -> MissingRequested:
    """Ask for what is missing: the user, what was said before, a tool, a policy, or a peer.

    It may be asked for in several forms and of several; all of it is kept. Asking once more in the same way changes
    nothing, but for a retrieval, which may find more by then.
    """
    _check(request)
    found: Choice | None = None
    if request.form == "retrieval":
        # A search takes transactions of its own, and more time than a write may.
        gap = await errands.read(actor, lambda gaps: gaps.to_read(request.missing_id, request.session_id))
        found = await look_for(gap, session_of(gap).session_id, actor, searcher)
    return await errands.write(actor, lambda gaps: _ask(request, gaps, found))


async def _ask(request: RequestMissing, gaps: Gaps, found: Choice | None) -> MissingRequested:
    gap = await gaps.to_ask(request.missing_id, request.session_id)
    notes, note = gap.notes, _note(request, gap, gaps)
    before = await _asked_before(note, gap, gaps)
    if before is not None:
        return structs.replace(_requested(before, gap.record), already_requested=True)
    if len(notes.requests) >= MOST_REQUESTS:
        raise MissingContextLimit(f"This was asked for {MOST_REQUESTS} times already.", limit=MOST_REQUESTS)
    asked = await _carried_out(_Asking(gaps, gap, found, note))
    sources = gap.record.candidate_sources
    if found is not None:
        sources = candidates(found, gap, session_of(gap).session_id)
    record = noted(
        gap.record,
        structs.replace(notes, requests=(*notes.requests, asked)),
        status="requested",
        requested_from=asked.requested_from,
        candidate_sources=sources,
    )
    await gaps.recorder.change(gap.kept, record, gap.session)
    return _requested(asked, record)


async def _asked_before(note: GapRequest, gap: Gap, gaps: Gaps) -> GapRequest | None:
    """Return the request that says the same and still stands."""
    same = [each for each in gap.notes.requests if _what(each) == _what(note) and each.form != "retrieval"]
    if not same or same[-1].key is None:
        return same[-1] if same else None
    board = await gaps.boards.to_write(session_of(gap).session_id, MAIN)
    return same[-1] if same[-1].key in await board.read([same[-1].key]) else None


def _what(asked: GapRequest) -> tuple[str | None, ...]:
    return asked.form, asked.requested_from, asked.tool, asked.detail


async def _carried_out(asking: _Asking) -> GapRequest:
    """Do what a form of request consists of; return the note of it, with where that is found."""
    match asking.asked.form:
        case "user_question":
            return await _put_on_board(asking)
        case "peer_task":
            return await _sent_to_peer(asking)
        case "retrieval":
            return await _selected(asking)
        case "tool_invocation" | "policy_request":
            # Weft calls no tools and decides no policies: whoever does finds the request on record.
            return asking.asked


async def _put_on_board(asking: _Asking) -> GapRequest:
    gaps, gap, _, asked = asking
    key = question_key(gap.record.missing_id)
    board = await gaps.boards.to_write(session_of(gap).session_id, MAIN)
    await board.write(
        key, question_text(gap.record, asked), WriteOptions(readable_by=closed_to(gap), reason="question")
    )
    return structs.replace(asked, key=key)


async def _sent_to_peer(asking: _Asking) -> GapRequest:
    gaps, gap, _, asked = asking
    session = session_of(gap)
    if closed_to(gap) is not None:
        raise InvalidInput(
            "form: not everyone may know of this gap, and a message to a peer is seen by all", field="form"
        )
    principal = await gaps.access.principal(asked.requested_from)
    if principal is None or not _takes_part(principal, session, gaps.actor):
        raise AgentNotFound(
            f"No agent '{asked.requested_from}' takes part in this session.",
            hint="Ask somebody who does: the senders of its messages, or whoever started you.",
            related=("get_messages",),
        )
    message = await gaps.transcripts.add(session.session_id, _task(gap.record, asked))
    return structs.replace(asked, message_id=message.message_id)


def _takes_part(principal: Principal, session: Session, asking: Actor) -> bool:
    peer = actor_for(asking.tenant, principal, permissions=principal.permissions, epoch=asking.epoch)
    return principal.disabled_at is None and session.admits(peer)


def _task(gap: MissingContext, asked: GapRequest) -> MessageDraft:
    about = {"missing_id": gap.missing_id, "severity": gap.severity, "blocked_actions": list(gap.blocked_actions)}
    return MessageDraft(
        content=task_text(gap, asked),
        visibility="public",
        metadata=metadata_json(about),
        parent_id=None,
        recipient_id=asked.requested_from,
        message_type=TASK,
        category="DIALOG",
    )


async def _selected(asking: _Asking) -> GapRequest:
    gaps, gap, found, asked = asking
    assert found is not None  # noqa: S101 - a search comes before the transaction that keeps what it found
    selection = await select(found, gap, session_of(gap), gaps.recorder, closed_to(gap))
    return structs.replace(asked, selection_id=selection.selection_id)


def _check(request: RequestMissing) -> None:
    needed = _NEEDED.get(request.form)
    if needed is not None and getattr(request, needed) is None:
        raise InvalidInput(f"{needed}: required for the form {request.form}", field=needed)
    for name in ("missing_id", "tool", "requested_from", "detail"):
        encode_given(name, getattr(request, name))


def _note(request: RequestMissing, gap: Gap, gaps: Gaps) -> GapRequest:
    return GapRequest(
        form=request.form,
        requested_from=_asked_of(request, gap),
        requested_by=gaps.actor.participant,
        requested_at=gaps.clock.now(),
        tool=request.tool,
        detail=request.detail,
    )


def _asked_of(request: RequestMissing, gap: Gap) -> str:
    match request.form:
        case "peer_task":
            return request.agent_id or ""
        case "retrieval":
            return f"session:{session_of(gap).session_id}"
        case "tool_invocation":
            return request.requested_from or request.tool or ""
        case "user_question" | "policy_request":
            return request.requested_from or _USER


def _requested(asked: GapRequest, gap: MissingContext) -> MissingRequested:
    return MissingRequested(
        missing_id=gap.missing_id,
        status=gap.status,
        form=asked.form,
        requested_from=asked.requested_from,
        requested_at=asked.requested_at,
        key=asked.key,
        answer_key=answer_key(gap.missing_id) if asked.key else None,
        message_id=asked.message_id,
        selection_id=asked.selection_id,
        candidate_sources=gap.candidate_sources,
    )
