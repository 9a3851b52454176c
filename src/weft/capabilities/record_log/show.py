"""Showing one record: what it says, what an item says, which records name it and what was redacted of it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from weft.capabilities.events.model import EventQuery
from weft.capabilities.record_log.lookup import FoundRecord, RecordFinder, RecordLookup
from weft.capabilities.record_log.model import JSON_CONTENT, TOOL, OfSession, RecordId, stored_content
from weft.capabilities.records.model import RECORD_TYPES, ContextItem
from weft.capabilities.records.record_ids import (
    PullId,
    RecordRef,
    StoredRecordId,
    event_seq_of,
    parse_item_id,
    parse_source_id,
    parse_surface_id,
    records_of_event,
)
from weft.capabilities.records.recorder import RecordNotFound
from weft.capabilities.records.refs import Link
from weft.capabilities.records.vocabulary import RecordType
from weft.capabilities.sessions.model import SessionNotFound
from weft.kernel.clock import from_micros
from weft.kernel.errors import InvalidInput
from weft.kernel.identity import Actor, Permission
from weft.kernel.operation import Effect, RateClass, Request, Response, operation

if TYPE_CHECKING:
    from weft.capabilities.records.store import Redaction

_item = msgspec.json.Decoder(ContextItem).decode


class ShowRecord(Request):
    """Which record, and how much of it."""

    record_id: RecordId
    type: Annotated[
        RecordType | None, msgspec.Meta(description="Its type; needed only if records of several types have this id.")
    ] = None
    with_content: Annotated[
        bool, msgspec.Meta(description="Also what an item says that is kept by reference, if you may read it.")
    ] = False
    session_id: OfSession = None


class ReferencingRecord(Response):
    """A record that names the item."""

    type: str
    id: str
    seq: int


class RedactionInfo(Response):
    """What was redacted, how and by whom; why is for admins to know."""

    state: str
    method: str
    redacted_by: str
    redacted_at: datetime
    reason: str | None = None


class RecordShown(Response):
    """One record. ``content`` is what an item says, ``base64`` the same if that is no text.

    Who recorded it, and when, is told of records that are kept as such; all others follow from what they are about.
    """

    type: str
    id: str
    record: dict[str, Any]
    digest: str | None = None
    content: Any = msgspec.UNSET
    base64: bytes | None = None
    named_by: tuple[ReferencingRecord, ...] = ()
    redaction: RedactionInfo | None = None
    recorded_by: str | None = None
    recorded_at: datetime | None = None
    changed_at: datetime | None = None
    seq: int | None = None


@operation(
    "records.show",
    tool=TOOL,
    action="show",
    http="GET /v1/records/show",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.READ,
    errors=(RecordNotFound, SessionNotFound),
)
async def show_record(request: ShowRecord, finder: RecordFinder) -> RecordShown:
    """Look at one record by its id, whether it is kept as such or follows from what the engine keeps.

    Of an item it also says which records name it, and what was redacted of it; what was redacted is not shown.
    """
    look = await finder.look(request.session_id)
    found = await _find(request, look)
    shown = _shown(found, finder.actor)
    if found.named.type != ContextItem.type:
        return shown
    return msgspec.structs.replace(
        shown,
        named_by=await _naming(found, look),
        **(await _content(found, finder) if request.with_content else {}),
    )


async def _find(request: ShowRecord, look: RecordLookup) -> FoundRecord:
    found: list[FoundRecord] = []
    for named in (await _derived(request.record_id, look), _kept(request.record_id)):
        wanted = [each for each in named if request.type in {None, each.type}]
        found = found or [each for each in await look.records(wanted) if each is not None]
    if len(found) > 1:
        raise InvalidInput(
            "type: records of several types have this id; say which one you mean",
            field="type",
            types=[each.named.type for each in found],
        )
    if not found:
        shown = request.record_id[:100]
        raise RecordNotFound(f"There is no record '{shown}'.", resource_type="record", resource_id=shown)
    return found[0]


async def _derived(record_id: str, look: RecordLookup) -> list[RecordRef]:
    """Return what an id means that the engine itself has given."""
    candidates = (parse_item_id(record_id), parse_surface_id(record_id), parse_source_id(record_id))
    derived = [each for each in candidates if not isinstance(each.origin, StoredRecordId)]
    return derived or await _told(record_id, look)


def _kept(record_id: str) -> list[RecordRef]:
    """Return records of every type that can have an id; what was imported keeps the one that it had."""
    return [RecordRef(kind, record_id, StoredRecordId(kind, record_id)) for kind in RECORD_TYPES]


async def _told(record_id: str, look: RecordLookup) -> list[RecordRef]:
    """Return what an event of the log is called by this id: itself, or what a pull put together and showed."""
    finder, pull = look.finder, PullId.parse(record_id)
    if pull is not None:
        moment = EventQuery(session_id=pull.session_id, subject=pull.owner, since=pull.at, until=pull.at + 1)
        events = [recorded for recorded in await finder.events.find(moment, 0, 10) if look.may_be_told(recorded)]
        named = {each.id: each for recorded in events for each in records_of_event(recorded)}
        return [named[record_id]] if record_id in named else []
    number = event_seq_of(record_id, await look.source())
    if number is None:
        return []
    events = [recorded for recorded in await finder.events.numbered([number]) if look.may_be_told(recorded)]
    of_events = await look.named_in(events, events=True)
    return [each for named in of_events for each in named if each.id == record_id]


def _shown(found: FoundRecord, actor: Actor) -> RecordShown:
    kept = found.kept
    return RecordShown(
        type=found.named.type,
        id=found.named.id,
        record=msgspec.json.decode(found.body),
        digest=found.digest,
        redaction=None if found.redaction is None else _redaction(found.redaction, actor),
        recorded_by=None if kept is None else kept.recorded_by,
        recorded_at=None if kept is None else from_micros(kept.recorded_at),
        changed_at=None if kept is None or kept.changed_at == kept.recorded_at else from_micros(kept.changed_at),
        seq=None if kept is None else kept.seq,
    )


def _redaction(redaction: Redaction, actor: Actor) -> RedactionInfo:
    return RedactionInfo(
        state=redaction.state,
        method=redaction.method,
        redacted_by=redaction.redacted_by,
        redacted_at=from_micros(redaction.redacted_at),
        reason=redaction.reason if actor.is_admin else None,
    )


async def _naming(found: FoundRecord, look: RecordLookup) -> tuple[ReferencingRecord, ...]:
    """Return the records that name an item, but for itself, as far as the caller may see them."""
    naming = await look.finder.records.of_item(found.named.id)
    others = [kept for kept in naming if (kept.type, kept.record_id) != (found.named.type, found.named.id)]
    shown = [kept for kept in others if await look.may_read(kept)]
    return tuple(ReferencingRecord(type=kept.type, id=kept.record_id, seq=kept.seq) for kept in shown)


async def _content(found: FoundRecord, finder: RecordFinder) -> dict[str, Any]:
    """Return what an item says, if that is here: of what the engine keeps, or of what was recorded with it."""
    is_redacted = found.redaction is not None and found.redaction.state != "none"
    if found.kept is None or is_redacted:
        return {} if found.text is None else {"content": found.text}
    item = _item(found.body)
    content = await stored_content(item, found.kept.session_id, finder.records)
    return {} if content is None else _said(content, item)


def _said(content: bytes, item: ContextItem) -> dict[str, Any]:
    if isinstance(item.content_ref, Link) and item.content_ref.kind == JSON_CONTENT:
        return {"content": msgspec.json.decode(content)}
    try:
        return {"content": content.decode()}
    except UnicodeDecodeError:
        return {"base64": content}
