"""Resolving a source ref: what its source says now, as its caller may read it, and what became of the passage there."""

from __future__ import annotations

import asyncio
import contextlib
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import UNSET, structs

from weft.capabilities.history.model import LATEST, line_name
from weft.capabilities.record_log.engine_items import digest_of
from weft.capabilities.record_log.lookup import FoundRecord, RecordFinder, RecordLookup
from weft.capabilities.record_log.model import TOOL, OfSession, RecordId
from weft.capabilities.records.markup_port import MarkupReader
from weft.capabilities.records.model import ContextItem, ContextSourceRef
from weft.capabilities.records.record_ids import (
    EngineSourceId,
    MessageItemId,
    RecordRef,
    StoredRecordId,
    VersionId,
    is_engine_item,
    parse_item_id,
)
from weft.capabilities.records.recorder import RecordNotFound
from weft.capabilities.records.resolution import PassageResolution, lost, resolve
from weft.capabilities.records.validation import check_record
from weft.capabilities.records.validation_errors import Misfit
from weft.capabilities.records.vocabulary import SCHEMA_VERSION
from weft.capabilities.search.passages import is_address_of_document, text_at
from weft.capabilities.search.retriever import Retriever
from weft.capabilities.sessions.model import SessionNotFound, line_of
from weft.kernel.errors import InvalidInput, NotFound, Rejected
from weft.kernel.identity import Actor, Permission
from weft.kernel.json_input import encode_given
from weft.kernel.operation import Effect, RateClass, Request, operation
from weft.kernel.transactions import Transactions

if TYPE_CHECKING:
    from weft.capabilities.history.model import Version

T = TypeVar("T")
Content = Annotated[str, msgspec.Meta(max_length=4 * 2**20)]
_WORD = "[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*"
MediaType = Annotated[
    str, msgspec.Meta(max_length=200, pattern=rf'^{_WORD}/{_WORD}( *; *{_WORD}="?[A-Za-z0-9_.:-]+"?)*\Z')
]
_ENTRY = re.compile(r"board://([^/?#]+)/([^/?#]+)(?:\?([^#]*))?\Z")
_MESSAGE = re.compile(r"session://([^/?#]+)#message-([0-9]{1,15})\Z")
_GONE = "The source is not there (any more), or not for you."
# Threads of its own: those that all share are for what is soon done.
_COMPARING = ThreadPoolExecutor(max_workers=2, thread_name_prefix="weft-resolve")
_NO_TEXT = "This is where many items come from, and no text: name one of them, as in board://SESSION/KEY."
_item = msgspec.json.Decoder(ContextItem).decode
_source_ref = msgspec.json.Decoder(ContextSourceRef).decode


class SourceElsewhere(Rejected):
    """The source is none that Weft keeps."""

    code = "SOURCE_ELSEWHERE"
    hint = "Weft fetches nothing from elsewhere: read the source yourself and send what it says now as against."
    related = ("context_records",)


class ResolveSource(Request):
    """Which source ref, and what its source says now if Weft does not know that."""

    source_id: Annotated[
        RecordId | None, msgspec.Meta(description="A source ref that was recorded, or an address as below.")
    ] = None
    source_ref: Annotated[dict[str, Any] | None, msgspec.Meta(description="Or a source ref itself.")] = None
    against: Annotated[
        Content | None,
        msgspec.Meta(
            description="What the source says now. May be left out for what Weft keeps: board://SESSION/KEY (with "
            "?version=N, ?branch=NAME), session://SESSION#message-N, knowledge://DOMAIN/DOCUMENT and ids of items.",
        ),
    ] = None
    media_type: Annotated[
        MediaType | None, msgspec.Meta(description="What that is, such as text/html; told by itself if left out.")
    ] = None
    session_id: OfSession = None


class SourceResolved(PassageResolution, kw_only=True):
    """What became of the passage that a source ref means."""

    source_id: str
    uri: str


class _Said(NamedTuple):
    """What a source says now; if nothing, ``why`` not."""

    text: str | None
    media_type: str | None = None
    why: str = _GONE


class _Asked(NamedTuple):
    """What is to be resolved, and against what."""

    ref: ContextSourceRef
    said: _Said


@operation(
    "records.resolve",
    tool=TOOL,
    action="resolve",
    http="POST /v1/records/resolve",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(RecordNotFound, SourceElsewhere, SessionNotFound),
)
async def resolve_source(
    request: ResolveSource,
    actor: Actor,
    lookups: Transactions[RecordFinder],
    markup: MarkupReader,
    retriever: Retriever,
) -> SourceResolved:
    """Find the passage that a source ref means in what its source says now: exact, moved or lost.

    Exact only if it is where it was and says what it said. Nothing is fetched from outside Weft.
    """
    given = _given(request)
    ref, said = await lookups.read(actor, lambda finder: _asked(request, given, finder))
    if said.text is None and request.against is None:
        # Documents and memories are no records of anything that happened.
        said = said._replace(text=await retriever.libraries.read(actor, lambda library: text_at(ref.uri, library)))
    if said.text is None:
        return _told(ref, lost(said.why))
    # Outside of any transaction: comparing takes as long as the source is long.
    loop = asyncio.get_running_loop()
    return _told(ref, await loop.run_in_executor(_COMPARING, resolve, ref, said.text, said.media_type, markup))


def _told(ref: ContextSourceRef, resolution: PassageResolution) -> SourceResolved:
    return SourceResolved(source_id=ref.source_id, uri=ref.uri, **structs.asdict(resolution))


def _given(request: ResolveSource) -> ContextSourceRef | None:
    """Return the source ref that a request brings with it."""
    if (request.source_id is None) == (request.source_ref is None):
        raise InvalidInput("source_ref: give either source_id or source_ref", field="source_ref")
    if request.source_ref is None:
        return None
    try:
        record = check_record(encode_given("source_ref", request.source_ref), ContextSourceRef.type)
    except Misfit as error:
        path = f"source_ref{error.path.removeprefix('$')}"
        raise InvalidInput(f"{path}: {error.reason}", field=path) from None
    assert isinstance(record, ContextSourceRef)  # noqa: S101 - of the type that was asked for
    return record


async def _asked(request: ResolveSource, given: ContextSourceRef | None, finder: RecordFinder) -> _Asked:
    look = await finder.look(request.session_id)
    if given is None and _is_address(request.source_id or ""):
        return await _addressed(request, look)
    ref = given or await _recorded(request.source_id or "", look)
    if request.against is not None:
        return _Asked(ref, _Said(request.against, request.media_type))
    said = await _said_now(ref.uri, look)
    return _Asked(ref, said._replace(media_type=request.media_type or said.media_type))


async def _addressed(request: ResolveSource, look: RecordLookup) -> _Asked:
    """Return what is at an address of Weft itself: it means whatever stands there, so it is exact unless it is gone."""
    uri = request.source_id or ""
    said = await _said_now(uri, look)
    ref = ContextSourceRef(
        schema_version=SCHEMA_VERSION,
        source_id=uri,
        uri=uri,
        source_kind="weft_item",
        digest=UNSET if said.text is None else digest_of(said.text),
    )
    if request.against is None or said.text is None:
        return _Asked(ref, said)
    return _Asked(ref, _Said(request.against, request.media_type))


def _is_address(source_id: str) -> bool:
    """Tell whether an id says itself where its source is: Weft gives such ids to nothing else."""
    is_uri = _ENTRY.match(source_id) or _MESSAGE.match(source_id) or EngineSourceId.parse(source_id)
    return is_uri is not None or is_engine_item(source_id)


async def _recorded(source_id: str, look: RecordLookup) -> ContextSourceRef:
    kind = ContextSourceRef.type
    found = await look.record(RecordRef(kind, source_id, StoredRecordId(kind, source_id)))
    if found is None:
        shown = source_id[:100]
        raise RecordNotFound(f"There is no source ref '{shown}'.", resource_type="record", resource_id=shown)
    return _source_ref(found.body)


async def _said_now(uri: str, look: RecordLookup) -> _Said:
    """Return what a source that Weft keeps says now, as the caller may read it."""
    if EngineSourceId.parse(uri) is not None:
        return _Said(None, why=_NO_TEXT)
    if is_address_of_document(uri):
        return _Said(None)
    entry, message = _ENTRY.match(uri), _MESSAGE.match(uri)
    if entry is not None:
        name = await _entry(entry[1], entry[2], _query(entry[3] or ""), look)
        return _Said(None) if name is None else _of_item(await look.record(parse_item_id(str(name))))
    item_id = uri if message is None else str(MessageItemId(message[1], int(message[2])))
    named = parse_item_id(item_id)
    if isinstance(named.origin, StoredRecordId):
        raise SourceElsewhere(f"Weft does not keep what '{uri[:200]}' says.", uri=uri[:200])
    return _of_item(await look.record(named))


async def _entry(session_id: str, key: str, query: dict[str, str], look: RecordLookup) -> VersionId | None:
    """Return the version of a board's key that an address means: the one that stands, or an earlier one of its life."""
    timelines, lines = look.finder.timelines, look.finder.lines
    line_id = line_name(line_of(session_id), query.get("branch"))
    with contextlib.suppress(NotFound):
        await timelines.to_read(line_id)
        if "version" not in query:
            found = await lines.latest(line_id, key, LATEST)
            standing = found is not None and (found.change.meta.expires_at or LATEST) > timelines.now
            return await _named(line_id, found, look) if found is not None and standing else None
        life = await lines.last_life(line_id, key)
        changes = await lines.numbered(line_id, key, life, int(query["version"]))
        return await _named(line_id, changes[0], look) if changes else None
    return None


async def _named(line_id: str, version: Version, look: RecordLookup) -> VersionId:
    """Return what a version is called on the line that it was made on, which may be what a branch came from."""
    past = await look.finder.lines.past(line_id, version.seq)
    change = version.change
    return VersionId(past[0].line_id if past else line_id, change.key, change.life, change.version)


def _of_item(found: FoundRecord | None) -> _Said:
    if found is None:
        return _Said(None)
    if found.redaction is not None and found.text is None:
        return _Said(None, why=f"What it says was redacted ({found.redaction.state}).")
    if found.text is None:
        return _Said(None, why="What it said is not kept here (any more); send it as against if you have it.")
    media_type = _item(found.body).mime_type
    return _Said(found.text, media_type if isinstance(media_type, str) else None)


def _query(text: str) -> dict[str, str]:
    query = dict(parse_qsl(text, keep_blank_values=True))
    version = query.get("version", "1")
    if query.keys() - {"version", "branch"} or not (version.isascii() and version.isdigit() and len(version) < 16):  # noqa: PLR2004 - as many digits as a number keeps
        raise InvalidInput("uri: an entry takes version=NUMBER and branch=NAME", field="source_ref.uri")
    return query
