"""Operations that add records made by an agent's own framework, and move an envelope through its lifecycle."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, structs

from weftline.access.patterns import Pattern
from weftline.exchange.record_log.engine_items import INLINE_BYTES
from weftline.exchange.record_log.model import JSON_CONTENT, TEXT_CONTENT, OfSession, RecordId, write_operation
from weftline.exchange.record_log.source_items import SourceItemNotFound, SourceItems
from weftline.kernel.errors import ContentTooLarge, InvalidInput, PermissionDenied
from weftline.kernel.identity import PRINCIPAL
from weftline.kernel.json_input import encode_json_field
from weftline.kernel.operation import Request, Response, Success
from weftline.records.engine_metadata import claimed_paths
from weftline.records.model import ContextEnvelope, ContextItem, Record
from weftline.records.open_records import is_open, read_open_record, without_given
from weftline.records.record_ids import is_reserved
from weftline.records.refs import Link, content_digest
from weftline.records.validation import check_record
from weftline.records.validation_errors import InvalidRecord
from weftline.records.vocabulary import IllegalTransition, Lifecycle, check_transition
from weftline.safety.trust.gate import GATE_ERRORS, ContentGate, submitted_value
from weftline.sessions.model import (
    Session,
    SessionArchived,
    SessionId,
    SessionNotFound,
    find_session,
    lock_active_session,
)
from weftline.sessions.recorder import Recorder, RecordExists, RecordNotFound, no_record
from weftline.sessions.store import SessionStore

if TYPE_CHECKING:
    from weftline.records.store import StoredRecord

MAX_RECORD_BYTES = 262_144
Readers = Annotated[tuple[Pattern, ...], msgspec.Meta(min_length=1, max_length=100)]
_encode = msgspec.json.Encoder().encode
_envelope = msgspec.json.Decoder(ContextEnvelope).decode


class AddRecords(Request):
    """Records to add, their session and their readers."""

    records: Annotated[
        tuple[dict[str, Any], ...],
        msgspec.Meta(
            min_length=1,
            max_length=100,
            description="Agent Context records, identified by their id fields. All are added, or none.",
        ),
    ]
    session_id: Annotated[
        SessionId | None,
        msgspec.Meta(description="The session they belong to. Without it they are visible to you alone."),
    ] = None
    readable_by: Annotated[
        Readers | None, msgspec.Meta(description="Who may read them, in addition to you. Default: all members.")
    ] = None


class AddedRecord(Response):
    """An added record and its event. ``known``: an identical record existed already."""

    type: str
    id: str
    seq: int
    known: bool = False


class RecordsAdded(Success, kw_only=True):
    """The added records."""

    records: list[AddedRecord]


class SetLifecycle(Request):
    """An envelope and its new lifecycle state."""

    record_id: RecordId
    lifecycle: Annotated[Lifecycle, msgspec.Meta(description="The new state.")]
    session_id: OfSession = None


class LifecycleSet(Success, kw_only=True):
    """The envelope's previous and new state."""

    record_id: str
    previous: Lifecycle
    lifecycle: Lifecycle
    seq: int


@write_operation(
    "records.add",
    action="add",
    http="POST /v1/records",
    status=201,
    errors=(SessionNotFound, SessionArchived, RecordExists, SourceItemNotFound, ContentTooLarge, *GATE_ERRORS),
    content=lambda request: [
        submitted_value(raw) for place, raw in enumerate(request.records) if _validated(raw, f"records[{place}]")
    ],
)
async def add_records(
    request: AddRecords, recorder: Recorder, sessions: SessionStore, gate: ContentGate, sources: SourceItems
) -> RecordsAdded:
    """Record what your own framework did with context: envelopes, selections, budgets, assemblies, compactions.

    Idempotent: adding an identical record changes nothing. A context_event is published under its class to event
    subscribers. The source items of a compaction or summary must exist: stored ones, or items of the same call. Records
    of other producers are read as openly as the standard is, kept and returned as they were given.
    """
    new = [await _admitted(raw, f"records[{index}]", gate) for index, raw in enumerate(request.records)]
    session = None
    if request.session_id is not None:
        session, _ = await lock_active_session(request.session_id, recorder.actor, sessions)
    before = await recorder.outbox.last_seq()
    stored = [await _store(each, recorder, session, request.readable_by) for each in new]
    # After storing, so that items of the same call are found.
    added = {
        f"records[{place}]": new[place][0]
        for place, row in enumerate(stored)
        # The items of another producer are where that is.
        if row.seq > before and not is_open(new[place][0])
    }
    await sources.check(added)
    return RecordsAdded(
        records=[
            AddedRecord(type=each.type, id=each.record_id, seq=each.seq, known=each.seq <= before) for each in stored
        ]
    )


@write_operation(
    "records.set_lifecycle",
    action="set_lifecycle",
    http="POST /v1/records/lifecycle",
    errors=(RecordNotFound, IllegalTransition, PermissionDenied, SessionNotFound, SessionArchived),
)
async def set_lifecycle(request: SetLifecycle, recorder: Recorder, sessions: SessionStore) -> LifecycleSet:
    """Set the lifecycle state of an envelope. For the principal that recorded it, and for admins.

    States only move forward: draft, available, selected, assembled, injected; any of these may become compacted,
    redacted, expired or archived.
    """
    if request.session_id is not None:
        await find_session(request.session_id, recorder.actor, sessions)
    stored, session = await _lock_envelope(request, recorder, sessions)
    if not (recorder.actor.is_admin or stored.is_by(recorder.actor)):
        raise PermissionDenied("Only the principal that recorded an envelope, or an admin, may set its lifecycle.")
    envelope = _envelope(stored.body)
    check_transition(envelope.lifecycle, request.lifecycle)
    changed = await recorder.change(stored, structs.replace(envelope, lifecycle=request.lifecycle), session)
    return LifecycleSet(
        record_id=request.record_id,
        previous=envelope.lifecycle,
        lifecycle=request.lifecycle,
        seq=changed.seq,
    )


async def _store(
    new: tuple[Record, bytes | None], recorder: Recorder, session: Session | None, readers: tuple[str, ...] | None
) -> StoredRecord:
    if readers is not None and not recorder.actor.matches(readers):
        # The author can always read a record.
        readers = (*readers, f"{PRINCIPAL}{recorder.actor.principal_id}")
    record, content = new
    stored = await recorder.add(record, session, readable_by=readers)
    if content is not None:
        await recorder.records.put_content(stored.session_id, stored.record_id, content)
    return stored


async def _lock_envelope(
    request: SetLifecycle, recorder: Recorder, sessions: SessionStore
) -> tuple[StoredRecord, Session | None]:
    """Lock an envelope that the caller may read."""
    record_id = request.record_id
    found = await recorder.records.find(ContextEnvelope.type, record_id)
    if found is None or not recorder.actor.matches(found.readable_by):
        raise no_record("envelope", record_id)
    if request.session_id is not None and found.session_id not in (None, request.session_id):
        raise no_record("envelope", record_id)
    session = None
    if found.session_id is not None:
        try:
            session, _ = await lock_active_session(found.session_id, recorder.actor, sessions)
        except SessionNotFound as error:
            raise no_record("envelope", record_id) from error
    locked = await recorder.records.find_locked(ContextEnvelope.type, record_id)
    if locked is None:
        raise no_record("envelope", record_id)
    return locked, session


async def _admitted(raw: dict[str, Any], path: str, gate: ContentGate) -> tuple[Record, bytes | None]:
    """Validate a record and pass it through the gate."""
    given = _validated(raw, path)
    admitted = await gate.admit_value("record", given[0].id, raw)
    return given if admitted is raw else _validated(admitted, path)


def _validated(raw: dict[str, Any], path: str) -> tuple[Record, bytes | None]:
    """Parse and validate a record of the request; return it with its content if that is stored separately."""
    encoded = encode_json_field(path, raw)
    if len(encoded) > MAX_RECORD_BYTES:
        raise ContentTooLarge(
            f"{path}: {len(encoded)} bytes; the maximum is {MAX_RECORD_BYTES}.",
            field=path,
            limit_bytes=MAX_RECORD_BYTES,
        )
    record = _parsed(encoded, path)
    if is_reserved(record.id):
        hint = "Choose an id without a prefix that Weftline uses, such as board:, message: or session:."
        raise _invalid(f"{path}.{record.id_field}", "ids of this form are reserved for Weftline", hint=hint)
    for claimed in claimed_paths(without_given(record) if record.metadata != raw.get("metadata", {}) else record):
        hint = "Put fields of your own under another name, such as metadata.my_framework."
        raise _invalid(f"{path}{claimed}", "reserved for what Weftline itself writes about a record", hint=hint)
    return _externalised(record, path) if isinstance(record, ContextItem) and not is_open(record) else (record, None)


def _parsed(encoded: bytes, path: str) -> Record:
    """Parse a record of Weftline's form, or one of another producer that the standard allows."""
    try:
        return check_record(encoded)
    except InvalidRecord as found:
        with suppress(InvalidRecord):
            return read_open_record(msgspec.json.decode(encoded, type=dict[str, Any]))
        raise _invalid(f"{path}{found.path.removeprefix('$')}", found.reason) from found


def _externalised(item: ContextItem, path: str) -> tuple[Record, bytes | None]:
    """Move large content out of an item, to be stored separately and referenced by digest."""
    ref = item.content_ref
    if isinstance(ref, Link) and ref.kind in {TEXT_CONTENT, JSON_CONTENT}:
        hint = "Send the content inline, and Weftline stores it; or use a kind of your own, such as file."
        raise _invalid(f"{path}.content_ref.kind", "reserved for content that Weftline stores", hint=hint)
    if item.content_mode not in {"inline", "summary"} or item.content is UNSET:
        return item, None
    is_text = isinstance(item.content, str)
    content = item.content.encode() if is_text else _encode(item.content)
    if len(content) <= INLINE_BYTES:
        return item, None
    named = structs.replace(
        item,
        content_mode="ref" if item.content_mode == "inline" else item.content_mode,
        content=UNSET,
        content_ref=Link(
            kind=TEXT_CONTENT if is_text else JSON_CONTENT, id=item.item_id, digest=content_digest(content)
        ),
        byte_size=len(content) if item.byte_size is UNSET else item.byte_size,
    )
    return named, content


def _invalid(path: str, reason: str, **more: Any) -> InvalidInput:  # noqa: ANN401 - what errors take
    return InvalidInput(f"{path}: {reason}", field=path, **more)
