"""Recording what happens outside Weft: what an agent's own framework selects, assembles, shows and compacts."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, structs

from weft.capabilities.record_log.engine_items import INLINE_BYTES
from weft.capabilities.record_log.item_content import JSON_KEPT, TEXT_KEPT
from weft.capabilities.record_log.list_records import TOOL, OfSession, RecordId
from weft.capabilities.records.model import ContextEnvelope, ContextItem, MissingContext, Record
from weft.capabilities.records.record_ids import is_reserved
from weft.capabilities.records.recorder import Recorder, RecordExists, RecordNotFound
from weft.capabilities.records.refs import Link
from weft.capabilities.records.validation import check_record
from weft.capabilities.records.validation_errors import Misfit
from weft.capabilities.records.vocabulary import IllegalTransition, Lifecycle, check_transition
from weft.capabilities.sessions.model import (
    Pattern,
    Session,
    SessionArchived,
    SessionId,
    SessionNotFound,
    find_session,
    lock_active_session,
)
from weft.capabilities.sessions.store import SessionStore
from weft.kernel.errors import ContentTooLarge, InvalidInput, PermissionDenied
from weft.kernel.identity import PRINCIPAL, Permission
from weft.kernel.json_input import encode_given
from weft.kernel.operation import Effect, RateClass, Request, Response, operation

if TYPE_CHECKING:
    from weft.capabilities.records.store import StoredRecord

MOST_BYTES = 262_144
Readers = Annotated[tuple[Pattern, ...], msgspec.Meta(min_length=1, max_length=100)]
_encode = msgspec.json.Encoder().encode
_envelope = msgspec.json.Decoder(ContextEnvelope).decode


class AddRecords(Request):
    """What to record, where, and for whom."""

    records: Annotated[
        tuple[dict[str, Any], ...],
        msgspec.Meta(
            min_length=1,
            max_length=100,
            description="Agent Context records, each told apart by its id field. All of them are recorded, or none.",
        ),
    ]
    session_id: Annotated[
        SessionId | None, msgspec.Meta(description="The session they belong to; for yourself alone if left out.")
    ] = None
    readable_by: Annotated[
        Readers | None, msgspec.Meta(description="Who may read them, beside you; all who take part if left out.")
    ] = None


class AddedRecord(Response):
    """A record, and the event that tells of it. ``known`` if exactly this was recorded before."""

    type: str
    id: str
    seq: int
    known: bool = False


class RecordsAdded(Response, kw_only=True, omit_defaults=False):
    """What was recorded."""

    success: Literal[True] = True
    records: list[AddedRecord]


class AdvanceRecord(Request):
    """Which envelope, and where in its life it is now."""

    record_id: RecordId
    lifecycle: Annotated[Lifecycle, msgspec.Meta(description="The state it has come to.")]
    session_id: OfSession = None


class RecordAdvanced(Response, kw_only=True, omit_defaults=False):
    """The envelope is in another state."""

    success: Literal[True] = True
    record_id: str
    previous: Lifecycle
    lifecycle: Lifecycle
    seq: int


class _Given(NamedTuple):
    """A record as it is to be kept, and what it names by digest."""

    record: Record
    content: bytes | None = None


@operation(
    "records.add",
    tool=TOOL,
    action="add",
    http="POST /v1/records",
    status=201,
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    errors=(SessionNotFound, SessionArchived, RecordExists, ContentTooLarge),
)
async def add_records(request: AddRecords, recorder: Recorder, sessions: SessionStore) -> RecordsAdded:
    """Record what your own framework did with context: envelopes, selections, budgets, assemblies, compactions.

    Recording the same once more changes nothing. A context_event is published under its class to all who follow events.
    """
    given = [_given(raw, f"records[{place}]") for place, raw in enumerate(request.records)]
    session = None
    if request.session_id is not None:
        session, _ = await lock_active_session(request.session_id, recorder.actor, sessions)
    before = await recorder.outbox.last_seq()
    kept = [await _keep(each, recorder, session, request.readable_by) for each in given]
    return RecordsAdded(
        records=[
            AddedRecord(type=each.type, id=each.record_id, seq=each.seq, known=each.seq <= before) for each in kept
        ]
    )


@operation(
    "records.advance",
    tool=TOOL,
    action="advance",
    http="POST /v1/records/lifecycle",
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    errors=(RecordNotFound, IllegalTransition, PermissionDenied, SessionNotFound, SessionArchived),
)
async def advance_record(request: AdvanceRecord, recorder: Recorder, sessions: SessionStore) -> RecordAdvanced:
    """Say that an envelope has come to another state of its life. For whoever recorded it, and for admins.

    States only go forward: draft, available, selected, assembled, injected, and from there or before to compacted,
    redacted, expired, archived.
    """
    if request.session_id is not None:
        await find_session(request.session_id, recorder.actor, sessions)
    kept, session = await _open(request, recorder, sessions)
    if not (recorder.actor.is_admin or kept.is_by(recorder.actor)):
        raise PermissionDenied("An envelope's state is for whoever recorded it to say, and for admins.")
    envelope = _envelope(kept.body)
    check_transition(envelope.lifecycle, request.lifecycle)
    changed = await recorder.change(kept, structs.replace(envelope, lifecycle=request.lifecycle), session)
    return RecordAdvanced(
        record_id=request.record_id,
        previous=envelope.lifecycle,
        lifecycle=request.lifecycle,
        seq=changed.seq,
    )


async def _keep(
    given: _Given, recorder: Recorder, session: Session | None, readers: tuple[str, ...] | None
) -> StoredRecord:
    if readers is not None and not recorder.actor.matches(readers):
        # Whoever records something can always read it.
        readers = (*readers, f"{PRINCIPAL}{recorder.actor.principal_id}")
    kept = await recorder.add(given.record, session, readable_by=readers)
    if given.content is not None:
        await recorder.records.put_content(kept.session_id, kept.record_id, given.content)
    return kept


async def _open(
    request: AdvanceRecord, recorder: Recorder, sessions: SessionStore
) -> tuple[StoredRecord, Session | None]:
    """Return an envelope that the caller may read, before anyone else can change it."""
    record_id = request.record_id
    found = await recorder.records.find(ContextEnvelope.type, record_id)
    if found is None or not recorder.actor.matches(found.readable_by):
        raise _no_envelope(record_id)
    if request.session_id is not None and found.session_id not in (None, request.session_id):
        raise _no_envelope(record_id)
    session = None
    if found.session_id is not None:
        try:
            session, _ = await lock_active_session(found.session_id, recorder.actor, sessions)
        except SessionNotFound as error:
            raise _no_envelope(record_id) from error
    locked = await recorder.records.find_locked(ContextEnvelope.type, record_id)
    if locked is None:
        raise _no_envelope(record_id)
    return locked, session


def _no_envelope(record_id: str) -> RecordNotFound:
    shown = record_id[:100]
    return RecordNotFound(f"There is no envelope '{shown}'.", resource_type="record", resource_id=shown)


def _given(raw: dict[str, Any], place: str) -> _Given:
    """Return a record that somebody brings, if it may be recorded as it is."""
    encoded = encode_given(place, raw)
    if len(encoded) > MOST_BYTES:
        raise ContentTooLarge(
            f"{place}: {len(encoded)} bytes; a record has at most {MOST_BYTES}.", field=place, limit_bytes=MOST_BYTES
        )
    try:
        record = check_record(encoded)
    except Misfit as found:
        raise _invalid(f"{place}{found.path.removeprefix('$')}", found.reason) from found
    if isinstance(record, MissingContext):
        hint = "Report it with the action report of missing_context: what is missing is asked for and resolved there."
        raise _invalid(place, "missing context is not recorded here", hint=hint, related=("missing_context",))
    if is_reserved(record.id):
        hint = (
            "Leave ids that begin with board:, message:, session: and the like to Weft, and give yours one of its own."
        )
        raise _invalid(f"{place}.{record.id_field}", "ids of this form are given by Weft itself", hint=hint)
    return _by_reference(record, place) if isinstance(record, ContextItem) else _Given(record)


def _by_reference(item: ContextItem, place: str) -> _Given:
    """Return an item that names what it says if that is large; what is kept so is found by no other name."""
    ref = item.content_ref
    if isinstance(ref, Link) and ref.kind in {TEXT_KEPT, JSON_KEPT}:
        hint = "Give the content itself, and Weft keeps it; or name it by a kind of your own, such as file."
        raise _invalid(f"{place}.content_ref.kind", "stands for what Weft itself keeps", hint=hint)
    if item.content_mode not in {"inline", "summary"} or item.content is UNSET:
        return _Given(item)
    is_text = isinstance(item.content, str)
    content = item.content.encode() if is_text else _encode(item.content)
    if len(content) <= INLINE_BYTES:
        return _Given(item)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    named = structs.replace(
        item,
        content_mode="ref" if item.content_mode == "inline" else item.content_mode,
        content=UNSET,
        content_ref=Link(kind=TEXT_KEPT if is_text else JSON_KEPT, id=item.item_id, digest=digest),
        byte_size=len(content) if item.byte_size is UNSET else item.byte_size,
    )
    return _Given(named, content)


def _invalid(place: str, reason: str, **more: Any) -> InvalidInput:  # noqa: ANN401 - what errors take
    return InvalidInput(f"{place}: {reason}", field=place, **more)
