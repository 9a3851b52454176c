"""Operations records.show (a record with its content, references and redaction) and records.schema."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from weftline.exchange.record_log.add import JSON_CONTENT, TOOL, OfSession, RecordId, read_operation, stored_content
from weftline.exchange.record_log.lookup import FoundRecord, RecordFinder, RecordLookup
from weftline.history.item_ids import VersionId, is_number
from weftline.history.model import LATEST
from weftline.indexing.entities import unpack_entities
from weftline.kernel.clock import from_micros
from weftline.kernel.errors import InvalidInput
from weftline.kernel.identity import Actor
from weftline.kernel.operation import Effect, RateClass, Request, Response, SessionUse, operation
from weftline.kernel.ports import Transactions
from weftline.records.engine_metadata import engine_metadata
from weftline.records.model import (
    RECORD_TYPES,
    ContextCompaction,
    ContextItem,
    ContextSourceRef,
    ContextSummary,
    decode_item,
    decode_record,
)
from weftline.records.open_records import shown_form
from weftline.records.record_ids import (
    COMPACTION,
    PullId,
    ReceiptOrigin,
    RecordRef,
    StoredRecordId,
    SummaryId,
    event_seq_of,
    parse_item_id,
    parse_source_id,
    parse_surface_id,
    records_of_event,
)
from weftline.records.refs import Link
from weftline.records.schemas import published_schema, schema_id, schema_url
from weftline.records.vocabulary import SCHEMA_VERSION, RecordType
from weftline.search.passages import ref_to
from weftline.search.retriever import Retriever
from weftline.search.scope import RequestedScope
from weftline.sessions.events.model import EventQuery
from weftline.sessions.model import SessionNotFound
from weftline.sessions.recorder import RecordNotFound, id_of_ref, no_record
from weftline.windows.line_events import redacted_items, redactions_of_items

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.history.lines import LineStore
    from weftline.records.model import Record
    from weftline.records.schemas import Redaction


# Which sources of a compaction or summary have changed since it was made.

_OWN = "Prompts contain these sources instead of the summary. Compact the window again with context.compact."
_RECORDED = "Summarise the current versions and add the result as a new record with records.add."


def refresh_hint(record: Record) -> str:
    """Return what to do about a record whose sources have changed."""
    is_own = SummaryId.parse(record.id) is not None or record.id.startswith(COMPACTION)
    return _OWN if is_own else _RECORDED


async def stale_sources(record: Record, look: RecordLookup) -> list[str]:
    """Return the sources that were changed, removed or redacted since, of those that the caller may read."""
    if not isinstance(record, ContextCompaction | ContextSummary):
        return []
    names = dict.fromkeys(map(id_of_ref, record.source_item_refs))
    sources = [each.ref.id for each in await look.records([*map(parse_item_id, names)]) if each is not None]
    versions = {source: version for source in sources if (version := VersionId.parse(source)) is not None}
    stale = await _replaced(versions, look.finder.lines)
    redactions = await redactions_of_items(sources, look.finder.records)
    stale |= set(redacted_items(sources, redactions))
    return [source for source in sources if source in stale]


async def _replaced(versions: Mapping[str, VersionId], lines: LineStore) -> set[str]:
    """Return the versions that are not the current ones of their keys."""
    by_line: dict[str, set[str]] = defaultdict(set)
    for version in versions.values():
        by_line[version.line_id].add(version.key)
    current: set[str] = set()
    for line_id, keys in by_line.items():
        for each in await lines.latest_of_each(line_id, sorted(keys), LATEST):
            current.add(str(VersionId(line_id, each.change.key, each.change.incarnation, each.change.version)))
    return versions.keys() - current


_WITH_SOURCES = frozenset({ContextCompaction.type, ContextSummary.type})
_MAX_STALE = 20


class ShowRecord(Request):
    """The record to show."""

    record_id: Annotated[RecordId, msgspec.Meta(description="Id of a record, or the ref of a search result.")]
    type: Annotated[
        RecordType | None, msgspec.Meta(description="Its type; needed only if records of several types share the id.")
    ] = None
    with_content: Annotated[
        bool, msgspec.Meta(description="Include an item's content even if it is stored by reference.")
    ] = False
    session_id: OfSession = None


class ReferencingRecord(Response):
    """A record that references the item."""

    type: str
    id: str
    seq: int


class RedactionInfo(Response):
    """A redaction; only admins see the reason."""

    state: str
    method: str
    redacted_by: str
    redacted_at: datetime
    reason: str | None = None


class StaleRecord(Response):
    """Sources of a compaction or summary that were changed, removed or redacted since; ``refresh``: what to do."""

    items: tuple[str, ...]
    count: int
    refresh: str


class RecordShown(Response):
    """One record. ``content`` is an item's content, ``base64`` the same if it is not text.

    ``stale`` is set for a compaction or summary of which sources have changed.

    ``entities`` are what the passage of a search result mentions, such as file:src/app.py.
    ``recorded_by``, ``recorded_at``, ``changed_at`` and ``seq`` are set for stored records only, not for derived ones.
    """

    type: str
    id: str
    record: dict[str, Any]
    digest: str | None = None
    content: Any = msgspec.UNSET
    base64: bytes | None = None
    entities: tuple[str, ...] = ()
    referenced_by: tuple[ReferencingRecord, ...] = ()
    redaction: RedactionInfo | None = None
    stale: StaleRecord | None = None
    recorded_by: str | None = None
    recorded_at: datetime | None = None
    changed_at: datetime | None = None
    seq: int | None = None


@read_operation(
    "records.show",
    heavy=True,
    action="show",
    http="GET /v1/records/show",
    effect=Effect.OWN_TRANSACTIONS,
    errors=(RecordNotFound, SessionNotFound),
)
async def show_record(
    request: ShowRecord, actor: Actor, lookups: Transactions[RecordFinder], retriever: Retriever
) -> RecordShown:
    """Show one record by its id: a stored one, or one derived from the board, messages, sessions or events.

    For an item, the answer includes the records that reference it and its redaction; redacted content is not shown.
    The ref of a search result shows its full source ref, its entities and, as content, its text.
    """
    shown = await lookups.read(actor, partial(_show, request))
    if shown is not None:
        return shown
    scope = RequestedScope(session_id=request.session_id)
    passage = await retriever.open_passage(actor, request.record_id, scope)
    if passage is None or request.type not in {None, ContextSourceRef.type}:
        raise no_record("record", request.record_id)
    ref = msgspec.to_builtins(ref_to(passage))
    entities = tuple(map(str, unpack_entities(passage.chunk.entities)))
    return RecordShown(
        type=ContextSourceRef.type, id=passage.handle, record=ref, content=passage.text, entities=entities
    )


async def _show(request: ShowRecord, finder: RecordFinder) -> RecordShown | None:
    look = await finder.look(request.session_id)
    found = await _find(request, look)
    if found is None:
        return None
    shown = _shown(found, finder.actor)
    if found.ref.type in _WITH_SOURCES:
        return msgspec.structs.replace(shown, stale=await _stale(found, look))
    if found.ref.type != ContextItem.type:
        return shown
    return msgspec.structs.replace(
        shown,
        referenced_by=await _referencing(found, look),
        **(await _content(found, finder) if request.with_content else {}),
    )


async def _stale(found: FoundRecord, look: RecordLookup) -> StaleRecord | None:
    record = decode_record(found.ref.type, found.body)
    stale = await stale_sources(record, look)
    if not stale:
        return None
    return StaleRecord(items=tuple(stale[:_MAX_STALE]), count=len(stale), refresh=refresh_hint(record))


async def _find(request: ShowRecord, look: RecordLookup) -> FoundRecord | None:
    found: list[FoundRecord] = []
    for refs in (await _derived(request.record_id, look), _stored(request.record_id)):
        wanted = [each for each in refs if request.type in {None, each.type}]
        found = found or [each for each in await look.records(wanted) if each is not None]
    if len(found) > 1:
        raise InvalidInput(
            "type: records of several types have this id; pass the type",
            field="type",
            types=[each.ref.type for each in found],
        )
    return found[0] if found else None


async def _derived(record_id: str, look: RecordLookup) -> list[RecordRef]:
    """Return the derived records with this id."""
    receipt = ReceiptOrigin.parse(record_id)
    if receipt is not None:
        return [receipt.ref]
    if record_id.startswith(COMPACTION):
        return await _of_compaction(record_id, look)
    candidates = (parse_item_id(record_id), parse_surface_id(record_id), parse_source_id(record_id))
    derived = [each for each in candidates if not isinstance(each.origin, StoredRecordId)]
    return derived or await _of_events(record_id, look)


async def _of_compaction(record_id: str, look: RecordLookup) -> list[RecordRef]:
    """Return the summary that prompts name by its compaction and its place there, as compaction:ID/NUMBER."""
    name, _, number = record_id.rpartition("/")
    row = await look.finder.records.find(ContextCompaction.type, name)
    if row is None or not is_number(number):
        return []
    refs = engine_metadata(decode_record(row.type, row.body).metadata).get("summary_refs")
    refs = [ref for ref in refs if isinstance(ref, str)] if isinstance(refs, list) else []
    return [RecordRef.stored(ContextSummary.type, ref) for ref in refs[int(number) : int(number) + 1]]


def _stored(record_id: str) -> list[RecordRef]:
    """Return candidates of every type: imported records keep ids that Weftline would otherwise derive."""
    return [RecordRef.stored(kind, record_id) for kind in RECORD_TYPES]


async def _of_events(record_id: str, look: RecordLookup) -> list[RecordRef]:
    """Return the records with this id that belong to an event: the event itself, or the assembly of a pull."""
    finder, pull = look.finder, PullId.parse(record_id)
    if pull is not None:
        at_pull = EventQuery(session_id=pull.session_id, subject=pull.owner, since=pull.at, until=pull.at + 1)
        events = [recorded for recorded in await finder.events.find(at_pull, 0, 10) if look.may_see_event(recorded)]
        named = {each.id: each for recorded in events for each in records_of_event(recorded)}
        return [named[record_id]] if record_id in named else []
    number = event_seq_of(record_id, await look.source())
    if number is None:
        return []
    events = [recorded for recorded in await finder.events.numbered([number]) if look.may_see_event(recorded)]
    of_events = await look.records_of(events, events=True)
    return [each for named in of_events for each in named if each.id == record_id]


def _shown(found: FoundRecord, actor: Actor) -> RecordShown:
    row = found.stored
    return RecordShown(
        type=found.ref.type,
        id=found.ref.id,
        record=shown_form(msgspec.json.decode(found.body)),
        digest=found.digest,
        redaction=None if found.redaction is None else _redaction(found.redaction, actor),
        recorded_by=None if row is None else row.recorded_by,
        recorded_at=None if row is None else from_micros(row.recorded_at),
        changed_at=None if row is None or row.changed_at == row.recorded_at else from_micros(row.changed_at),
        seq=None if row is None else row.seq,
    )


def _redaction(redaction: Redaction, actor: Actor) -> RedactionInfo:
    return RedactionInfo(
        state=redaction.state,
        method=redaction.method,
        redacted_by=redaction.redacted_by,
        redacted_at=from_micros(redaction.redacted_at),
        reason=redaction.reason if actor.is_admin else None,
    )


async def _referencing(found: FoundRecord, look: RecordLookup) -> tuple[ReferencingRecord, ...]:
    """Return the other records that reference an item and that the caller may read."""
    referencing = await look.finder.records.of_item(found.ref.id, look.finder.actor)
    others = [row for row in referencing if (row.type, row.record_id) != (found.ref.type, found.ref.id)]
    shown = [row for row in others if await look.may_read(row)]
    return tuple(ReferencingRecord(type=row.type, id=row.record_id, seq=row.seq) for row in shown)


async def _content(found: FoundRecord, finder: RecordFinder) -> dict[str, Any]:
    """Return an item's content, if it is available."""
    is_redacted = found.redaction is not None and found.redaction.state != "none"
    if found.stored is None or is_redacted:
        return {} if found.text is None else {"content": found.text}
    item = decode_item(found.body)
    content = await stored_content(item, found.stored.session_id, finder.records)
    return {} if content is None else _decoded(content, item)


def _decoded(content: bytes, item: ContextItem) -> dict[str, Any]:
    if isinstance(item.content_ref, Link) and item.content_ref.kind == JSON_CONTENT:
        return {"content": msgspec.json.decode(content)}
    try:
        return {"content": content.decode()}
    except UnicodeDecodeError:
        return {"base64": content}


class GetRecordSchema(Request):
    """A record type."""

    type: Annotated[RecordType, msgspec.Meta(description="Record type.")]


class RecordSchema(Response, kw_only=True):
    """The JSON Schema of a record type."""

    success: Literal[True] = True
    type: str
    schema_version: str
    schema_id: str
    url: str
    schema: dict[str, Any]


@operation(
    "records.schema",
    tool=TOOL,
    action="schema",
    http="GET /v1/records/schema",
    permission=None,
    rate=RateClass.BOARD,
    effect=Effect.OWN_TRANSACTIONS,
    session=SessionUse.NONE,
)
async def get_record_schema(request: GetRecordSchema) -> RecordSchema:
    """Return the JSON Schema of a record type and the path at which this server publishes it."""
    return RecordSchema(
        type=request.type,
        schema_version=SCHEMA_VERSION,
        schema_id=schema_id(request.type),
        url=schema_url(request.type),
        schema=published_schema(request.type),
    )
