"""Operation records.resolve: finds the passage of a source ref in the current text of its source."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from msgspec import UNSET, structs

from weftline.exchange.record_log.add import OfSession, RecordId, read_operation
from weftline.exchange.record_log.lookup import FoundRecord, RecordFinder, RecordLookup
from weftline.history.item_ids import MessageItemId, VersionId
from weftline.history.line_kinds import line_of
from weftline.history.model import LATEST, line_name
from weftline.kernel.errors import InvalidInput, NotFound, Rejected
from weftline.kernel.identity import Actor
from weftline.kernel.json_input import encode_json_field
from weftline.kernel.operation import Effect, Request
from weftline.kernel.ports import Transactions
from weftline.kernel.thread_pools import ThreadPool
from weftline.records.model import ContextSourceRef, decode_item
from weftline.records.record_ids import EngineSourceId, RecordRef, StoredRecordId, is_engine_item, parse_item_id
from weftline.records.refs import content_digest
from weftline.records.resolution import PassageResolution, lost, resolve
from weftline.records.schemas import MarkupReader
from weftline.records.validation import InvalidRecord, check_record
from weftline.records.vocabulary import SCHEMA_VERSION
from weftline.search.passages import is_document_uri, is_event_uri, is_memory_ref, ref_to, text_at
from weftline.search.retriever import Retriever
from weftline.search.scope import RequestedScope
from weftline.sessions.model import SessionNotFound
from weftline.sessions.recorder import RecordNotFound, no_record

if TYPE_CHECKING:
    from weftline.history.model import Version

Content = Annotated[str, msgspec.Meta(max_length=4 * 2**20)]
_WORD = "[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*"
MediaType = Annotated[
    str, msgspec.Meta(max_length=200, pattern=rf'^{_WORD}/{_WORD}( *; *{_WORD}="?[A-Za-z0-9_.:-]+"?)*\Z')
]
_ENTRY = re.compile(r"board://([^/?#]+)/([^/?#]+)(?:\?([^#]*))?\Z")
_MESSAGE = re.compile(r"session://([^/?#]+)#message-([0-9]{1,15})\Z")
_GONE = "The source does not exist (any more), or you may not read it."
# A separate pool: the shared threads are for short work.
_RESOLVE_THREADS = ThreadPool("resolve", 3, share=2 / 3)
_NO_TEXT = "This source holds many items and has no text: name one of them, as in board://SESSION/KEY."


class SourceElsewhere(Rejected):
    """Weftline does not store this source."""

    code = "SOURCE_ELSEWHERE"
    hint = "Weftline does not fetch external sources: read the source yourself and send its current text as 'against'."
    related = ("context_records",)


class ResolveSource(Request):
    """A source ref, and the current text of its source unless Weftline stores it."""

    source_id: Annotated[
        RecordId | None,
        msgspec.Meta(description="Id of a recorded source ref, ref of a search result, or a URI as under against."),
    ] = None
    source_ref: Annotated[
        dict[str, Any] | None, msgspec.Meta(description="The source ref itself, instead of source_id.")
    ] = None
    against: Annotated[
        Content | None,
        msgspec.Meta(
            description="The current text of the source. Not needed for sources that Weftline stores: "
            "board://SESSION/KEY (with ?version=N, ?branch=NAME), session://SESSION#message-N, "
            "knowledge://DOMAIN/DOCUMENT, item ids.",
        ),
    ] = None
    media_type: Annotated[
        MediaType | None, msgspec.Meta(description="Media type of that text, such as text/html. Default: detected.")
    ] = None
    session_id: OfSession = None


class SourceResolved(PassageResolution, kw_only=True):
    """Where the passage of a source ref is now."""

    source_id: str
    uri: str


class _SourceText(NamedTuple):
    """The current text of a source, or the reason why there is none."""

    text: str | None
    media_type: str | None = None
    missing_reason: str = _GONE


@read_operation(
    "records.resolve",
    heavy=True,
    action="resolve",
    http="POST /v1/records/resolve",
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
    """Find the passage of a source ref in the current text of its source: exact, moved or lost.

    Exact means the same text at the same position. Weftline fetches nothing from outside.
    """
    given = _request_ref(request)
    found = await lookups.read(actor, lambda finder: _named_input(request, given, finder))
    if found is None:
        of_result = await _ref_of_result(request, actor, retriever)
        found = await lookups.read(actor, lambda finder: _input_of(request, of_result, finder))
    ref, source = found
    if source.text is None and request.against is None:
        # Documents, memories and the texts of window events are not records; they are read through search.
        source = source._replace(text=await retriever.stores.read(actor, lambda library: text_at(ref.uri, library)))
    if source.text is None:
        return _resolved(ref, lost(source.missing_reason))
    # Outside of any transaction: the time grows with the length of the source.
    return _resolved(ref, await _RESOLVE_THREADS.run(resolve, ref, source.text, source.media_type, markup))


def _resolved(ref: ContextSourceRef, resolution: PassageResolution) -> SourceResolved:
    return SourceResolved(source_id=ref.source_id, uri=ref.uri, **structs.asdict(resolution))


def _request_ref(request: ResolveSource) -> ContextSourceRef | None:
    """Parse and validate the source ref of the request."""
    if (request.source_id is None) == (request.source_ref is None):
        raise InvalidInput("source_ref: pass either source_id or source_ref", field="source_ref")
    if request.source_ref is None:
        return None
    try:
        record = check_record(encode_json_field("source_ref", request.source_ref), ContextSourceRef.type)
    except InvalidRecord as error:
        path = f"source_ref{error.path.removeprefix('$')}"
        raise InvalidInput(f"{path}: {error.reason}", field=path) from None
    assert isinstance(record, ContextSourceRef)  # noqa: S101 - check_record checks the type
    return record


async def _named_input(
    request: ResolveSource, given: ContextSourceRef | None, finder: RecordFinder
) -> tuple[ContextSourceRef, _SourceText] | None:
    """Return the source ref that is given, recorded or of a URI, with its text; None if no such ref was recorded."""
    look = await finder.look(request.session_id)
    if given is None and _is_weftline_uri(request.source_id or ""):
        return await _uri_input(request, look)
    ref = given or await _recorded_ref(request.source_id or "", look)
    return None if ref is None else await _input_of(request, ref, finder)


async def _input_of(
    request: ResolveSource, ref: ContextSourceRef, finder: RecordFinder
) -> tuple[ContextSourceRef, _SourceText]:
    """Return a source ref with the text to find it in."""
    if request.against is not None:
        return ref, _SourceText(request.against, request.media_type)
    look = await finder.look(request.session_id)
    source = _SourceText(None) if is_memory_ref(ref) else await _current_text(ref.uri, look)
    return ref, source._replace(media_type=request.media_type or source.media_type)


async def _ref_of_result(request: ResolveSource, actor: Actor, retriever: Retriever) -> ContextSourceRef:
    """Return the source ref of a search result, given by its short ref."""
    handle = request.source_id or ""
    passage = await retriever.open_passage(actor, handle, RequestedScope(session_id=request.session_id))
    if passage is None:
        raise no_record("source ref", handle)
    return ref_to(passage)


async def _uri_input(request: ResolveSource, look: RecordLookup) -> tuple[ContextSourceRef, _SourceText]:
    """Resolve a URI of Weftline itself: it has no digest, so its current text counts as exact."""
    uri = request.source_id or ""
    source = await _current_text(uri, look)
    ref = ContextSourceRef(
        schema_version=SCHEMA_VERSION,
        source_id=uri,
        uri=uri,
        source_kind="weftline_item",
        digest=UNSET if source.text is None else content_digest(source.text),
    )
    if request.against is None or source.text is None:
        return ref, source
    return ref, _SourceText(request.against, request.media_type)


def _is_weftline_uri(source_id: str) -> bool:
    """Tell whether an id is a URI or item id of Weftline, which are reserved."""
    is_uri = _ENTRY.match(source_id) or _MESSAGE.match(source_id) or EngineSourceId.parse(source_id)
    return is_uri is not None or is_engine_item(source_id)


async def _recorded_ref(source_id: str, look: RecordLookup) -> ContextSourceRef | None:
    found = await look.record(RecordRef.stored(ContextSourceRef.type, source_id))
    return None if found is None else msgspec.json.decode(found.body, type=ContextSourceRef)


async def _current_text(uri: str, look: RecordLookup) -> _SourceText:
    """Return the current text of a source that Weftline stores and the caller may read."""
    if EngineSourceId.parse(uri) is not None:
        return _SourceText(None, missing_reason=_NO_TEXT)
    if is_document_uri(uri) or is_event_uri(uri):
        return _SourceText(None)
    entry, message = _ENTRY.match(uri), _MESSAGE.match(uri)
    if entry is not None:
        name = await _entry(entry[1], entry[2], _query(entry[3] or ""), look)
        return _SourceText(None) if name is None else _of_item(await look.record(parse_item_id(str(name))))
    item_id = uri if message is None else str(MessageItemId(message[1], int(message[2])))
    named = parse_item_id(item_id)
    if isinstance(named.origin, StoredRecordId):
        raise SourceElsewhere(f"Weftline does not store the source '{uri[:200]}'.", uri=uri[:200])
    return _of_item(await look.record(named))


async def _entry(session_id: str, key: str, query: dict[str, str], look: RecordLookup) -> VersionId | None:
    """Return the version of a board key: the current one, or the numbered one of its current incarnation."""
    history, lines = look.finder.history, look.finder.lines
    line_id = line_name(line_of(session_id), query.get("branch"))
    with contextlib.suppress(NotFound):
        await history.to_read(line_id)
        if "version" not in query:
            found = await lines.latest(line_id, key, LATEST)
            standing = found is not None and (found.change.meta.expires_at or LATEST) > history.now
            return await _named(line_id, found, look) if found is not None and standing else None
        incarnation = (await lines.last_number(line_id, key)).incarnation
        changes = await lines.changes_of_version(line_id, key, incarnation, int(query["version"]))
        return await _named(line_id, changes[0], look) if changes else None
    return None


async def _named(line_id: str, version: Version, look: RecordLookup) -> VersionId:
    """Return the id of a version on the line where it was made: a branch inherits versions of its parent."""
    past = await look.finder.lines.past(line_id, version.seq)
    change = version.change
    return VersionId(past[0].line_id if past else line_id, change.key, change.incarnation, change.version)


def _of_item(found: FoundRecord | None) -> _SourceText:
    if found is None:
        return _SourceText(None)
    if found.redaction is not None and found.text is None:
        return _SourceText(None, missing_reason=f"Its content was redacted ({found.redaction.state}).")
    if found.text is None:
        return _SourceText(
            None, missing_reason="Its content is not stored (any more); if you have it, send it as 'against'."
        )
    media_type = decode_item(found.body).mime_type
    return _SourceText(found.text, media_type if isinstance(media_type, str) else None)


def _query(text: str) -> dict[str, str]:
    query = dict(parse_qsl(text, keep_blank_values=True))
    version = query.get("version", "1")
    if query.keys() - {"version", "branch"} or not (version.isascii() and version.isdigit() and len(version) < 16):  # noqa: PLR2004 - fits a 64-bit integer
        raise InvalidInput("uri: only version=NUMBER and branch=NAME are allowed", field="source_ref.uri")
    return query
