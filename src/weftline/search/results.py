"""Search results as returned to callers."""

from __future__ import annotations

from datetime import datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from weftline.indexing.collections.model import Source
from weftline.indexing.entities import unpack_entities
from weftline.kernel.clock import from_micros
from weftline.kernel.operation import Response
from weftline.records.model import ContextSourceRef
from weftline.safety.trust.model import Trust
from weftline.search.passages import ref_to

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.search.passages import ChunkPassage
    from weftline.search.references import Reference
    from weftline.search.retriever import SearchHit, SearchScope


# More digits would cost tokens and mean nothing.
SCORE_DIGITS = 3
# Kinds of sources that always belong to a session.
_OF_SESSIONS = frozenset({"message", "board", "event"})


class PassageSource(Response, kw_only=True):
    """Source of a passage: a document, a message or board key of a session, a key of memory, or a window event.

    ``memory_type``: an entry of persistent memory; ``owner`` is its team or user, unless it is your own.
    """

    source: Source
    domain: str | None = None
    document_id: str | None = None
    session_id: str | None = None
    message_id: int | None = None
    agent_id: str | None = None
    event_id: str | None = None
    key: str | None = None
    memory_type: str | None = None
    workflow_id: str | None = None
    owner: str | None = None
    title: str = ""
    heading: str = ""
    speaker: str = ""
    timestamp: datetime


class PassageInfo(PassageSource, kw_only=True):
    """A search result. ``score`` is from 0 to 1; ``ref`` is a handle that context_records, show or resolve, opens.

    Results of the session that the search names have no ``session_id``. ``trust`` is shown where it is not the usual
    one of the source: a suspicious text may contain an attack.
    With ``explain``: ``signals`` make up the score, ``entities`` are mentioned, such as file:src/app.py, ``source_ref``
    is the full reference to the exact passage.
    """

    ref: str
    score: float
    text: str
    trust: Trust | UnsetType = UNSET
    signals: dict[str, float] | UnsetType = UNSET
    entities: tuple[str, ...] = ()
    source_ref: ContextSourceRef | UnsetType = UNSET


class ResolvedReference(Response, kw_only=True):
    """A phrase of the query, what it was taken to mean, and the item that says so."""

    phrase: str
    entity: str
    source: str


class PendingItems(Response):
    """Items in scope that are not indexed yet: documents, and events of sessions, memories and windows.

    ``by_words``: something that you wrote is found by its words only so far, not yet by its meaning. ``partial``: an
    index is being rebuilt, so not everything was searched and confidence is lower.
    """

    documents: int = 0
    events: int = 0
    by_words: bool = False
    partial: bool = False


class SearchFacts(Response, kw_only=True):
    """What a search covered. ``pending`` is set if items are not indexed yet, the others with ``explain``.

    ``searched``: number of chunks in scope. ``model``: embedding model; not set if only keywords were matched.
    """

    pending: PendingItems | None = None
    searched: int | UnsetType = UNSET
    model: str | UnsetType = UNSET
    took_ms: float | UnsetType = UNSET


def passage_info(hit: SearchHit, session_id: str | None, *, explain: bool) -> PassageInfo:
    """Return a result of a search in a session, if one was named."""
    source = source_fields(hit.passage)
    if not explain and hit.passage.chunk.source in _OF_SESSIONS and source["session_id"] == session_id:
        # The caller named it.
        source["session_id"] = None
    return PassageInfo(
        ref=hit.passage.handle,
        score=round(hit.ranked.score, SCORE_DIGITS),
        text=hit.passage.text,
        trust=hit.passage.trust or UNSET,
        signals=hit.ranked.signals if explain else UNSET,
        entities=tuple(map(str, unpack_entities(hit.passage.chunk.entities))) if explain else (),
        source_ref=ref_to(hit.passage) if explain else UNSET,
        **source,
    )


def resolved_references(references: Iterable[Reference]) -> tuple[ResolvedReference, ...]:
    return tuple(
        ResolvedReference(phrase=each.phrase, entity=f"{each.kind}:{each.value}", source=each.source)
        for each in references
    )


def search_facts(
    scope: SearchScope, searched: int, model: str | None, started: float, *, explain: bool
) -> dict[str, Any]:
    """Return the fields of SearchFacts. ``started`` is a time of ``time.perf_counter``."""
    pending = pending_items(scope)
    facts = {"searched": searched, "model": model or UNSET, "took_ms": round((perf_counter() - started) * 1000, 3)}
    return {"pending": pending if pending != PendingItems() else None, **(facts if explain else {})}


def source_fields(passage: ChunkPassage) -> dict[str, Any]:
    """Return the fields that identify the source of a passage."""
    chunk = passage.chunk
    is_document = chunk.source == "document"
    return {
        "source": chunk.source,
        "domain": chunk.place if is_document else None,
        "document_id": chunk.item if is_document else None,
        "session_id": passage.session_id,
        "message_id": passage.message_id,
        "agent_id": passage.agent_id,
        "event_id": passage.event_id,
        "key": passage.key,
        "memory_type": passage.memory_type,
        "workflow_id": passage.workflow_id,
        "owner": passage.owner,
        "title": passage.title if is_document and passage.title != chunk.item else "",
        "heading": chunk.heading if is_document else "",
        "speaker": chunk.speaker,
        "timestamp": from_micros(chunk.timestamp).replace(microsecond=0),
    }


def pending_items(scope: SearchScope) -> PendingItems:
    return PendingItems(
        documents=scope.pending_documents,
        events=scope.pending_events,
        by_words=bool(scope.own_by_words),
        partial=scope.partial,
    )
