"""What participants can do about what they do not know: report it, see it, and say what resolved it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import UNSET

from weft.capabilities.missing_context.answers import Notes, noted
from weft.capabilities.missing_context.model import (
    TOOL,
    AlreadyResolved,
    Gap,
    GapQuery,
    MissingContextLimit,
    MissingContextNotFound,
    position_of,
)
from weft.capabilities.missing_context.service import Gaps
from weft.capabilities.records.model import CandidateSource, MissingContext
from weft.capabilities.records.recorder import RecordExists
from weft.capabilities.records.refs import Id, Ref, Uri
from weft.capabilities.records.vocabulary import SCHEMA_VERSION, MissingStatus, Scope, Severity
from weft.capabilities.sessions.model import SessionArchived, SessionId, SessionNotFound, lock_active_session
from weft.kernel.clock import from_micros
from weft.kernel.correlation import NativeId
from weft.kernel.errors import ContentTooLarge, InvalidInput, PermissionDenied
from weft.kernel.fields import Name
from weft.kernel.identity import Permission
from weft.kernel.ids import new_id
from weft.kernel.json_input import METADATA_BYTES, encode_given
from weft.kernel.operation import Effect, RateClass, Request, Response, operation

_MOST_CHARACTERS = 2_000
_STATES: dict[str, frozenset[str]] = {
    "open": frozenset({"detected", "requested"}),
    "all": frozenset(get_args(MissingStatus)),
    **{state: frozenset({state}) for state in get_args(MissingStatus)},
}
MissingId = Annotated[Id, msgspec.Meta(description="The id of what is missing.")]
OfSession = Annotated[
    SessionId | None, msgspec.Meta(description="The session it belongs to; only needed to be sure of that.")
]
Prose = Annotated[str, msgspec.Meta(min_length=1, max_length=_MOST_CHARACTERS)]


class PossibleSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where something that is missing may be found."""

    kind: Annotated[Id, msgspec.Meta(description="What sort of source, such as document, message, tool or person.")]
    hint: Annotated[Prose | None, msgspec.Meta(description="Where in it to look, in words.")] = None
    uri: Annotated[Uri | None, msgspec.Meta(description="Its address.")] = None
    ref: Annotated[Id | None, msgspec.Meta(description="The id of an item or a record.")] = None


class ReportMissing(Request):
    """What is not known, what for, and how bad that is."""

    session_id: SessionId
    question: Annotated[Prose, msgspec.Meta(description="What you would have to know, as a question.")]
    severity: Annotated[Severity, msgspec.Meta(description="How bad it is that this is not known.")] = "medium"
    scope: Annotated[
        Scope | None, msgspec.Meta(description="What it is missing in; the task of this call or else the session.")
    ] = None
    needed_for: Annotated[Prose | None, msgspec.Meta(description="What it is needed for.")] = None
    candidate_sources: Annotated[
        tuple[PossibleSource, ...], msgspec.Meta(max_length=50, description="Where it may be found.")
    ] = ()
    blocked_actions: Annotated[
        tuple[Id, ...], msgspec.Meta(max_length=50, description="What cannot be done before it is known.")
    ] = ()
    missing_id: Annotated[Name | None, msgspec.Meta(description="An id of your own; generated if left out.")] = None


class MissingReported(Response):
    """The question is open; ``already_open`` if it was before, and nothing is new."""

    missing_id: str
    session_id: str
    status: MissingStatus
    severity: Severity
    scope: Scope
    reported_by: str
    reported_at: datetime
    already_open: bool = False


class ListMissing(Request):
    """Which questions to list."""

    session_id: Annotated[
        SessionId | None, msgspec.Meta(description="Of this session; of all you take part in if left out.")
    ] = None
    status: Annotated[
        Literal["open", "detected", "requested", "resolved", "all"],
        msgspec.Meta(description="open: detected or requested."),
    ] = "open"
    severity: Annotated[Severity, msgspec.Meta(description="At least this severe.")] = "info"
    task_id: Annotated[NativeId | None, msgspec.Meta(description="Only what was reported in this task.")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=200, description="At most this many.")] = 50
    after: Annotated[Id | None, msgspec.Meta(description="next_after of the page before.")] = None


class RequestInfo(Response):
    """One time that it was asked for, and where the question or what was found stands."""

    form: str
    requested_from: str
    requested_by: str
    requested_at: datetime
    key: str | None = None
    message_id: int | None = None
    selection_id: str | None = None
    tool: str | None = None
    detail: str | None = None


class MissingInfo(Response):
    """Something that is missing, or was: what became of it is told by ``status``."""

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
    requests: tuple[RequestInfo, ...] = ()
    resolution_refs: tuple[Ref, ...] = ()
    resolved_by: str | None = None
    resolved_at: datetime | None = None


class MissingListed(Response):
    """What is missing, the most severe and oldest first. There is more as long as there is a next_after."""

    missing: list[MissingInfo]
    next_after: str | None = None


class ResolveMissing(Request):
    """What was found, and where."""

    missing_id: MissingId
    resolution_refs: Annotated[
        tuple[Id, ...],
        msgspec.Meta(max_length=100, description="What answers it: ids of items or records, or URIs."),
    ] = ()
    answer: Annotated[
        Annotated[str, msgspec.Meta(min_length=1)] | None,
        msgspec.Meta(description="The answer in words instead, which is kept on the session's board."),
    ] = None
    session_id: OfSession = None


class MissingResolved(Response):
    """It is known now, and by what; ``already_resolved`` if it was by the same before."""

    missing_id: str
    status: MissingStatus
    resolution_refs: tuple[Ref, ...]
    resolved_by: str | None = None
    resolved_at: datetime | None = None
    already_resolved: bool = False


@operation(
    "missing.report",
    tool=TOOL,
    action="report",
    http="POST /v1/missing",
    status=201,
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    errors=(SessionNotFound, SessionArchived, RecordExists, MissingContextLimit, ContentTooLarge),
)
async def report_missing(request: ReportMissing, gaps: Gaps) -> MissingReported:
    """Say what you do not know and would have to, before it costs others time or leads you to guess.

    A question that is open in the session already, in the same words, is not opened twice: you are given that one.
    """
    _check(request)
    session, _ = await lock_active_session(request.session_id, gaps.actor, gaps.sessions)
    gap, was_open = await gaps.report(_gap(request, gaps), session)
    return MissingReported(
        missing_id=gap.record.missing_id,
        session_id=session.session_id,
        status=gap.record.status,
        severity=gap.record.severity,
        scope=gap.record.scope,
        reported_by=gap.kept.recorded_by,
        reported_at=gap.record.created_at,
        already_open=was_open,
    )


def _looks_far(request: ListMissing) -> bool:
    return request.session_id is None or "resolved" in _STATES[request.status]


@operation(
    "missing.list",
    tool=TOOL,
    action="list",
    http="GET /v1/missing",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    heavy=_looks_far,
    errors=(SessionNotFound, MissingContextNotFound, PermissionDenied),
)
async def list_missing(request: ListMissing, gaps: Gaps) -> MissingListed:
    """See what is known to be missing, the most severe and oldest first: you may know it, or wait for it."""
    if request.session_id is None and gaps.actor.is_subagent:
        raise PermissionDenied(
            "A sub-agent sees what is missing in the session it works in, not in all there are.",
            hint="Pass the session_id you were given.",
        )
    behind = None if request.after is None else position_of(await gaps.to_read(request.after, request.session_id))
    wanted = GapQuery(
        session_id=request.session_id,
        states=_STATES[request.status],
        severity=request.severity,
        task_id=request.task_id,
        behind=behind,
    )
    found = await gaps.listed(wanted, request.limit + 1)
    shown = [missing_info(gap) for gap in found[: request.limit]]
    return MissingListed(missing=shown, next_after=shown[-1].missing_id if len(found) > request.limit else None)


@operation(
    "missing.resolve",
    tool=TOOL,
    action="resolve",
    http="POST /v1/missing/{missing_id}/resolve",
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    errors=(MissingContextNotFound, AlreadyResolved, SessionNotFound, SessionArchived),
)
async def resolve_missing(request: ResolveMissing, gaps: Gaps) -> MissingResolved:
    """Say that something is missing no more, and what answers it: anyone who takes part may.

    An ``answer`` in words is written on the board. Writing the key ``answer_…`` yourself resolves it too, and so does
    the answer of a peer to the task that it was sent.
    """
    if (request.answer is None) == (not request.resolution_refs):
        raise InvalidInput("resolution_refs: say either what answers it or an answer in words", field="resolution_refs")
    encode_given("resolution_refs", request.resolution_refs)
    gap = await gaps.to_change(request.missing_id, request.session_id)
    if request.answer is None:
        gap, was_resolved = await gaps.resolve(gap, request.resolution_refs)
    else:
        gap, was_resolved = await gaps.answer(gap, request.answer)
    return MissingResolved(
        missing_id=gap.record.missing_id,
        status=gap.record.status,
        resolution_refs=gap.record.resolution_refs,
        resolved_by=gap.notes.resolved_by,
        resolved_at=gap.notes.resolved_at,
        already_resolved=was_resolved,
    )


def missing_info(gap: Gap) -> MissingInfo:
    record, notes = gap.record, gap.notes
    return MissingInfo(
        missing_id=record.missing_id,
        severity=record.severity,
        status=record.status,
        question=record.question,
        scope=record.scope,
        reported_by=gap.kept.recorded_by,
        reported_at=from_micros(gap.kept.recorded_at),
        session_id=gap.kept.session_id,
        task_id=notes.task_id,
        needed_for=None if record.needed_for is UNSET else record.needed_for,
        blocked_actions=record.blocked_actions,
        candidate_sources=record.candidate_sources,
        requests=tuple(RequestInfo(**msgspec.structs.asdict(asked)) for asked in notes.requests),
        resolution_refs=record.resolution_refs,
        resolved_by=notes.resolved_by,
        resolved_at=notes.resolved_at,
    )


def _check(request: ReportMissing) -> None:
    if not request.question.strip():
        raise InvalidInput("question: nothing is asked", field="question")
    for name in ("question", "needed_for", "candidate_sources", "blocked_actions"):
        encoded = encode_given(name, msgspec.to_builtins(getattr(request, name)))
        if len(encoded) > METADATA_BYTES:
            raise ContentTooLarge(f"{name}: at most {METADATA_BYTES} bytes of JSON", field=name)


def _candidate(source: PossibleSource) -> CandidateSource:
    return CandidateSource(
        kind=source.kind, hint=source.hint or UNSET, uri=source.uri or UNSET, ref=source.ref or UNSET
    )


def _gap(request: ReportMissing, gaps: Gaps) -> MissingContext:
    task_id = gaps.actor.during.task_id
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
    return gap if task_id is None else noted(gap, Notes(task_id=task_id))
