"""Operations on missing context: report, list, resolve, and request it from the user, messages, a tool or a policy."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import msgspec
from msgspec import UNSET, structs

from weftline.access.model import AgentId
from weftline.exchange.missing_context import (
    MAX_REQUESTS,
    TASK_MESSAGE_TYPE,
    AlreadyResolved,
    Gap,
    GapCursor,
    GapNotes,
    GapQuery,
    GapRequest,
    Gaps,
    MissingContextLimit,
    MissingContextNotFound,
    RequestForm,
    answer_key,
    cursor_of,
    question_key,
    question_text,
    read_operation,
    restricted_readers,
    session_of,
    task_text,
    texts_of,
    with_notes,
    write_operation,
)
from weftline.history.model import MAIN
from weftline.kernel.clock import from_micros
from weftline.kernel.correlation import NativeId
from weftline.kernel.errors import ContentTooLarge, InvalidInput, PermissionDenied, invalid_cursor
from weftline.kernel.fields import Name, new_id
from weftline.kernel.identity import Actor
from weftline.kernel.json_input import METADATA_BYTES, encode_json_field, metadata_json
from weftline.kernel.operation import Effect, Request, Response, shared_fields
from weftline.kernel.ports import Transactions
from weftline.records.model import CandidateSource, MissingContext
from weftline.records.refs import Id, Ref, Uri
from weftline.records.vocabulary import SCHEMA_VERSION, MissingStatus, Scope, Severity
from weftline.safety.trust.gate import GATE_ERRORS, submitted, submitted_value
from weftline.sessions.agent_directory import RecipientNotFound
from weftline.sessions.messages.search import MessageQuery, Searcher
from weftline.sessions.messages.search_operations import MessageSelection, item_of, record_message_selection
from weftline.sessions.messages.transcript import MessageDraft
from weftline.sessions.model import SessionArchived, SessionId, SessionNotFound, lock_active_session
from weftline.sessions.recorder import RecordExists
from weftline.state.board.board_writer import WriteOptions
from weftline.state.board.model import StoreFull, ValueTooLarge

if TYPE_CHECKING:
    from weftline.records.model import ContextSelection
    from weftline.sessions.messages.search import MessageSearchResult
    from weftline.sessions.model import Session
    from weftline.sessions.recorder import Recorder


# Operations on missing context: report, list and resolve.

_MAX_CHARACTERS = 2_000
_STATES: dict[str, frozenset[str]] = {
    "open": frozenset({"detected", "requested"}),
    "all": frozenset(get_args(MissingStatus)),
    **{state: frozenset({state}) for state in get_args(MissingStatus)},
}
MissingId = Annotated[Id, msgspec.Meta(description="Id of the missing context.")]
OfSession = Annotated[SessionId | None, msgspec.Meta(description="Session it belongs to; optional check.")]
Prose = Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_CHARACTERS)]


class PossibleSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source that may have the missing information."""

    kind: Annotated[Id, msgspec.Meta(description="Kind of source, such as document, message, tool or person.")]
    hint: Annotated[Prose | None, msgspec.Meta(description="Where in the source to look.")] = None
    uri: Annotated[Uri | None, msgspec.Meta(description="URI of the source.")] = None
    ref: Annotated[Id | None, msgspec.Meta(description="Id of an item or record.")] = None


class ReportMissing(Request):
    """A question that cannot be answered from the available context."""

    session_id: SessionId
    question: Annotated[Prose, msgspec.Meta(description="The missing information, as a question.")]
    severity: Annotated[Severity, msgspec.Meta(description="How severe the gap is.")] = "medium"
    scope: Annotated[
        Scope | None, msgspec.Meta(description="Unit of work; default: the task of this call, otherwise the session.")
    ] = None
    needed_for: Annotated[Prose | None, msgspec.Meta(description="What the information is needed for.")] = None
    candidate_sources: Annotated[
        tuple[PossibleSource, ...], msgspec.Meta(max_length=50, description="Sources that may have the answer.")
    ] = ()
    blocked_actions: Annotated[
        tuple[Id, ...],
        msgspec.Meta(max_length=50, description="Actions that are blocked until it is resolved."),
    ] = ()
    missing_id: Annotated[Name | None, msgspec.Meta(description="Id of the new record; default: generated.")] = None


class MissingReported(Response):
    """The open gap. ``already_open``: the same question was already open, and nothing changed."""

    missing_id: str
    session_id: str
    status: MissingStatus
    severity: Severity
    scope: Scope
    reported_by: str
    reported_at: datetime
    already_open: bool = False


class ListMissing(Request):
    """Filter and page of a list of missing context."""

    session_id: Annotated[
        SessionId | None, msgspec.Meta(description="Session to list; default: all sessions you participate in.")
    ] = None
    status: Annotated[
        Literal["open", "detected", "requested", "resolved", "all"],
        msgspec.Meta(description="Status filter; open: detected or requested."),
    ] = "open"
    severity: Annotated[Severity, msgspec.Meta(description="Minimum severity.")] = "info"
    task_id: Annotated[NativeId | None, msgspec.Meta(description="Only gaps reported in this task.")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=200, description="Maximum number of results.")] = 50
    after: Annotated[Id | None, msgspec.Meta(description="next_after of the previous page.")] = None


class MissingInfo(Response):
    """A gap with its status, requests and resolution."""

    missing_id: str
    severity: Severity
    status: MissingStatus
    question: str
    scope: Scope
    reported_by: str
    reported_at: datetime
    session_id: str | None = None
    task_id: str | None = None
    needed_for: str | None = None
    blocked_actions: tuple[str, ...] = ()
    candidate_sources: tuple[CandidateSource, ...] = ()
    requests: tuple[GapRequest, ...] = ()
    resolution_refs: tuple[Ref, ...] = ()
    resolved_by: str | None = None
    resolved_at: datetime | None = None


class MissingListed(Response):
    """Gaps, most severe and oldest first. If next_after is set, there are more."""

    missing: list[MissingInfo]
    next_after: str | None = None


class ResolveMissing(Request):
    """The resolution of a gap."""

    missing_id: MissingId
    resolution_refs: Annotated[
        tuple[Id, ...],
        msgspec.Meta(max_length=100, description="References to the answer: ids of items or records, or URIs."),
    ] = ()
    answer: Annotated[
        Annotated[str, msgspec.Meta(min_length=1)] | None,
        msgspec.Meta(description="The answer as text instead; it is written to the session's board."),
    ] = None
    session_id: OfSession = None


class MissingResolved(Response):
    """The resolved gap. ``already_resolved``: it was already resolved with the same answer."""

    missing_id: str
    status: MissingStatus
    resolution_refs: tuple[Ref, ...]
    resolved_by: str | None = None
    resolved_at: datetime | None = None
    already_resolved: bool = False


@write_operation(
    "missing.report",
    action="report",
    http="POST /v1/missing",
    status=201,
    errors=(SessionNotFound, SessionArchived, RecordExists, MissingContextLimit, ContentTooLarge, *GATE_ERRORS),
    content=lambda request: (submitted_value(_texts(request)),),
)
async def report_missing(request: ReportMissing, gaps: Gaps) -> MissingReported:
    """Report information that is missing, instead of guessing.

    If the same question is already open in the session, that one is returned.
    """
    _check(request)
    session, _ = await lock_active_session(request.session_id, gaps.actor, gaps.sessions)
    gap, was_open = await gaps.report(_gap(request, gaps), session)
    return MissingReported(
        **shared_fields(gap.record, MissingReported),
        session_id=session.session_id,
        reported_by=gap.stored.recorded_by,
        reported_at=gap.record.created_at,
        already_open=was_open,
    )


def _texts(request: ReportMissing) -> dict[str, Any]:
    needed_for = UNSET if request.needed_for is None else request.needed_for
    sources = tuple(map(_candidate, request.candidate_sources))
    return texts_of(request.question, needed_for, sources, request.blocked_actions)


def _scans_many(request: ListMissing) -> bool:
    return request.session_id is None or "resolved" in _STATES[request.status]


@read_operation(
    "missing.list",
    action="list",
    http="GET /v1/missing",
    heavy=_scans_many,
    errors=(SessionNotFound, PermissionDenied),
)
async def list_missing(request: ListMissing, gaps: Gaps) -> MissingListed:
    """List missing context, most severe and oldest first."""
    if request.session_id is None and gaps.actor.is_subagent:
        raise PermissionDenied(
            "A sub-agent can only list the missing context of its session.",
            hint="Pass the session_id you were given.",
        )
    after = None if request.after is None else await _position(request.after, request.session_id, gaps)
    query = GapQuery(
        session_id=request.session_id,
        states=_STATES[request.status],
        severity=request.severity,
        task_id=request.task_id,
        after=after,
    )
    found = await gaps.query(query, request.limit + 1)
    shown = [missing_info(gap) for gap in found[: request.limit]]
    return MissingListed(missing=shown, next_after=shown[-1].missing_id if len(found) > request.limit else None)


async def _position(after: str, session_id: str | None, gaps: Gaps) -> GapCursor:
    try:
        return cursor_of(await gaps.find(after, session_id))
    except MissingContextNotFound as error:
        refused = invalid_cursor("after")
        refused.denial = error.denial
        raise refused from error


@write_operation(
    "missing.resolve",
    action="resolve",
    http="POST /v1/missing/{missing_id}/resolve",
    errors=(MissingContextNotFound, AlreadyResolved, SessionNotFound, SessionArchived, *GATE_ERRORS),
    content=lambda request: (submitted(request.answer or ""), submitted_value(request.resolution_refs)),
)
async def resolve_missing(request: ResolveMissing, gaps: Gaps) -> MissingResolved:
    """Resolve missing context with references or an answer. Any participant may.

    An ``answer`` is written to the board. Writing the key ``answer_…`` also resolves it, and so does the reply of a
    peer to its task message.
    """
    if (request.answer is None) == (not request.resolution_refs):
        raise InvalidInput("resolution_refs: give either resolution_refs or answer", field="resolution_refs")
    encode_json_field("resolution_refs", request.resolution_refs)
    gap = await gaps.lock(request.missing_id, request.session_id)
    if request.answer is None:
        gap, was_resolved = await gaps.resolve(gap, request.resolution_refs)
    else:
        gap, was_resolved = await gaps.answer(gap, request.answer)
    fields = shared_fields(gap.record, MissingResolved) | shared_fields(gap.notes, MissingResolved)
    return MissingResolved(**fields, already_resolved=was_resolved)


def missing_info(gap: Gap) -> MissingInfo:
    needed_for = None if gap.record.needed_for is UNSET else gap.record.needed_for
    fields = shared_fields(gap.record, MissingInfo) | shared_fields(gap.notes, MissingInfo)
    return MissingInfo(
        **fields | {"needed_for": needed_for},
        session_id=gap.stored.session_id,
        reported_by=gap.stored.recorded_by,
        reported_at=from_micros(gap.stored.recorded_at),
    )


def _check(request: ReportMissing) -> None:
    if not request.question.strip():
        raise InvalidInput("question: empty", field="question")
    for name in ("question", "needed_for", "candidate_sources", "blocked_actions"):
        encoded = encode_json_field(name, msgspec.to_builtins(getattr(request, name)))
        if len(encoded) > METADATA_BYTES:
            raise ContentTooLarge(f"{name}: at most {METADATA_BYTES} bytes of JSON", field=name)


def _candidate(source: PossibleSource) -> CandidateSource:
    return CandidateSource(
        kind=source.kind, hint=source.hint or UNSET, uri=source.uri or UNSET, ref=source.ref or UNSET
    )


def _gap(request: ReportMissing, gaps: Gaps) -> MissingContext:
    task_id = gaps.actor.correlation.task_id
    gap = MissingContext(
        schema_version=SCHEMA_VERSION,
        missing_id=request.missing_id or new_id("missing"),
        scope=request.scope or ("session" if task_id is None else "task"),
        question=request.question,
        severity=request.severity,
        status="detected",
        created_at=gaps.clock.now(),
        needed_for=UNSET if request.needed_for is None else request.needed_for,
        candidate_sources=tuple(map(_candidate, request.candidate_sources)),
        blocked_actions=request.blocked_actions,
    )
    return gap if task_id is None else with_notes(gap, GapNotes(task_id=task_id))


# Operation that requests missing context from the user, earlier messages, a tool, a policy or a peer.

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
    _check_request(request)
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


def _check_request(request: RequestMissing) -> None:
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
