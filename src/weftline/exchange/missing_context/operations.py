"""Operations on missing context: report, list and resolve."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import UNSET

from weftline.exchange.missing_context.answers import GapNotes, GapRequest, with_notes
from weftline.exchange.missing_context.model import (
    AlreadyResolved,
    Gap,
    GapCursor,
    GapQuery,
    MissingContextLimit,
    MissingContextNotFound,
    cursor_of,
    read_operation,
    write_operation,
)
from weftline.exchange.missing_context.service import Gaps, texts_of
from weftline.kernel.clock import from_micros
from weftline.kernel.correlation import NativeId
from weftline.kernel.errors import ContentTooLarge, InvalidInput, PermissionDenied, invalid_cursor
from weftline.kernel.fields import Name, new_id
from weftline.kernel.json_input import METADATA_BYTES, encode_json_field
from weftline.kernel.operation import Request, Response, shared_fields
from weftline.records.model import CandidateSource, MissingContext
from weftline.records.refs import Id, Ref, Uri
from weftline.records.vocabulary import SCHEMA_VERSION, MissingStatus, Scope, Severity
from weftline.safety.trust.gate import GATE_ERRORS, submitted, submitted_value
from weftline.sessions.model import SessionArchived, SessionId, SessionNotFound, lock_active_session
from weftline.sessions.recorder import RecordExists

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
