"""Operations that add records made by an agent's own framework, and move an envelope through its lifecycle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, structs

from weftline.access.model import Pattern
from weftline.exchange.record_log.engine_items import INLINE_BYTES
from weftline.exchange.record_log.lookup import RecordFinder, RecordLookup
from weftline.history.item_ids import DocumentName, ItemRef, LineKey, MessageItemId
from weftline.history.line_kinds import line_kinds
from weftline.history.model import LATEST
from weftline.kernel.errors import ContentTooLarge, InvalidInput, NotFound, PermissionDenied, close_names
from weftline.kernel.identity import PRINCIPAL, Permission
from weftline.kernel.json_input import encode_json_field
from weftline.kernel.operation import Effect, RateClass, Request, Response, Success, operation
from weftline.knowledge.domains import Domains
from weftline.knowledge.model import can_see
from weftline.knowledge.sql import DocumentStore
from weftline.records.engine_metadata import claimed_paths
from weftline.records.model import ContextCompaction, ContextEnvelope, ContextItem, ContextSummary, Record
from weftline.records.open_records import is_open, read_open_record, without_given
from weftline.records.record_ids import RecordRef, is_reserved, parse_item_id
from weftline.records.refs import Link, Ref, content_digest
from weftline.records.validation import InvalidRecord, check_record
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
from weftline.sessions.recorder import Recorder, RecordExists, RecordNotFound, id_of_ref, no_record
from weftline.sessions.sql import SessionStore

if TYPE_CHECKING:
    from weftline.records.schemas import StoredRecord
    from weftline.records.sql import RecordStore


# Shared parts of the record operations: the tool name, common fields, and content that is stored next to an item.

TOOL = "context_records"
read_operation = partial(operation, tool=TOOL, permission=Permission.READ, rate=RateClass.BOARD, effect=Effect.READ)
write_operation = partial(operation, tool=TOOL, permission=Permission.WRITE, rate=RateClass.BOARD, effect=Effect.WRITE)
RecordId = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=500,
        pattern=r"^[^\x00-\x1f\x7f]+\Z",
        description="The record's id, as records.list returns it.",
        extra_json_schema={"examples": ["board:session_a1b2c3d4e5f60718/goal/1.3"]},
    ),
]
OfSession = Annotated[
    SessionId | None, msgspec.Meta(description="Optional check: the record must belong to this session.")
]
# Kinds of content_ref under which an item refers to content that Weftline stores for it: text, or any other JSON.
TEXT_CONTENT, JSON_CONTENT = "content", "content_json"


async def stored_content(item: ContextItem, session_id: str | None, records: RecordStore) -> bytes | None:
    """Return the content stored for an item if it has the digest that the item names.

    Content is looked up by the item, never by its digest: a digest alone must not give access to it.
    """
    ref = item.content_ref
    if not isinstance(ref, Link) or not isinstance(ref.digest, str):
        return None
    content = await records.content(session_id, item.item_id)
    matches = content is not None and ref.digest == content_digest(content)
    return content if matches else None


# Source items of added compactions and summaries: each must exist and be readable for the caller.
#
# A source is named as the item that it is, in one version: a redaction finds the summaries of an item by its id. Items
# of other systems are named by a URI, or as ``tool:NAME`` or ``url:ADDRESS``; Weftline cannot check them.

# Source items that one call may name.
MAX_SOURCES = 10_000
_MAX_NAMED = 20
_SCHEME = "://"
# Schemes of Weftline besides the kinds of lines, which have one each.
_OWN_SCHEMES = frozenset({"knowledge", "session", "agent"})
_URN, _OWN_URN = "urn:", "urn:weftline:"


class SourceItemNotFound(NotFound):
    """A compaction or summary names a source item that does not exist, or that you may not read."""

    code = "SOURCE_ITEM_NOT_FOUND"
    hint = (
        "Name each source by its item id with version, such as board:SESSION/KEY/1.3, window:SESSION:AGENT/EVENT/1.1 "
        "or message:SESSION/NUMBER; `records.list` lists them. Add your own items in the same call. Name an item of "
        "another system by its URI."
    )
    related = ("context_records",)


class _Source(NamedTuple):
    """A source item, by the field that names it."""

    field: str
    name: str


class SourceItems(msgspec.Struct, frozen=True):
    """Checks the source items of records for one caller."""

    finder: RecordFinder
    domains: Domains
    documents: DocumentStore

    async def check(self, records: Mapping[str, Record]) -> None:
        """Raise SourceItemNotFound unless all sources of these records exist; the keys are their fields."""
        sources = [source for field, record in records.items() for source in _sources_in(field, record)]
        names = list(dict.fromkeys(source.name for source in sources))
        if not names:
            return
        if len(names) > MAX_SOURCES:
            raise InvalidInput(
                f"{sources[0].field}: {len(names)} source items in one call; the maximum is {MAX_SOURCES}.",
                field=sources[0].field,
            )
        look = await self.finder.look(None)
        missing = set(names) - await self._existing(names, look)
        if missing:
            raise await self._error([source for source in sources if source.name in missing], look, records)

    async def _existing(self, names: Sequence[str], look: RecordLookup) -> set[str]:
        documents = {name for name in names if DocumentName.parse(_without_version(name)) is not None}
        found = {name for name in documents if await self._sees(name)}
        refs = [ref for name in names if name not in documents for ref in _records_named(name)]
        return found | {each.ref.id for each in await look.records(refs) if each is not None}

    async def _sees(self, reference: str) -> bool:
        """Tell whether a document exists in a domain that the caller may see."""
        name = DocumentName.parse(_without_version(reference))
        domain = None if name is None else await self.domains.domains.find(name.domain)
        if name is None or domain is None or not can_see(domain, self.domains.actor):
            return False
        return await self.documents.find(*name) is not None

    async def _error(
        self, missing: Sequence[_Source], look: RecordLookup, records: Mapping[str, Record]
    ) -> SourceItemNotFound:
        first, *others = missing
        known = await self._suggestions(first.name, look, [record.id for record in records.values()])
        more = f" There are {len(others)} more." if others else ""
        meant = f" Did you mean {known[0]}?" if known else ""
        return SourceItemNotFound(
            f"{first.field}: there is no item '{first.name[:100]}' that you may read.{meant}{more}",
            resource_type="item",
            resource_id=first.name[:100],
            field=first.field,
            items=[source.name[:100] for source in missing[:_MAX_NAMED]],
            missing=len(missing),
            suggestions=known,
        )

    async def _suggestions(self, name: str, look: RecordLookup, added: Sequence[str]) -> list[str]:
        """Return the current version of the key that a name means, or similar ids of the same call."""
        ref = ItemRef.parse(name)
        key = None if ref is None or MessageItemId.parse(ref.item) is not None else LineKey.parse(ref.item)
        if key is None:
            return close_names(name, added)
        current = await self.finder.lines.latest(key.line_id, key.key, LATEST)
        if current is None:
            return []
        item_id = f"{key}/{current.change.incarnation}.{current.change.version}"
        return [] if await look.record(parse_item_id(item_id)) is None else [item_id]


def _sources_in(field: str, record: Record) -> Iterable[_Source]:
    if not isinstance(record, ContextCompaction | ContextSummary):
        return
    for place, ref in enumerate(record.source_item_refs):
        if not _is_foreign(ref):
            yield _Source(f"{field}.source_item_refs[{place}]", id_of_ref(ref))


def _is_foreign(ref: Ref) -> bool:
    """Tell whether a reference names an item of another system."""
    name = id_of_ref(ref)
    if _has_foreign_form(name):
        return True
    # An id of Weftline stays one, whatever URI is given with it.
    return isinstance(ref, Link) and isinstance(ref.uri, str) and _has_foreign_form(ref.uri) and not is_reserved(name)


def _has_foreign_form(name: str) -> bool:
    item = ItemRef.parse(name)
    if item is not None:
        return item.is_external
    scheme, separator, _ = name.partition(_SCHEME)
    if separator:
        return scheme not in _OWN_SCHEMES and scheme not in line_kinds()
    return name.startswith(_URN) and not name.startswith(_OWN_URN)


def _records_named(name: str) -> tuple[RecordRef, ...]:
    """Return what a source may be: an item, or the summary of an earlier compaction."""
    return parse_item_id(name), RecordRef.stored(ContextSummary.type, name)


def _without_version(reference: str) -> str:
    return reference.partition("?")[0]


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
