"""Search results as returned to callers."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from weft.capabilities.indexing.collections.model import Source
from weft.capabilities.records.model import ContextSourceRef
from weft.capabilities.search.passages import ref_to
from weft.kernel.clock import from_micros
from weft.kernel.operation import Response

if TYPE_CHECKING:
    from weft.capabilities.search.passages import ChunkPassage
    from weft.capabilities.search.retriever import SearchHit, SearchScope


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
    """A search result.

    ``signals`` make up the score. ``ref`` is a source ref that context_records resolves to the exact passage.
    """

    chunk_id: str
    score: float
    text: str
    ref: ContextSourceRef
    signals: dict[str, Any] | UnsetType = UNSET


class PendingItems(Response, omit_defaults=False):
    """Items in scope that are not indexed yet: documents, and events of sessions, memories and windows.

    ``partial``: an index is being rebuilt, so not everything was searched and confidence is lower.
    """

    documents: int = 0
    events: int = 0
    partial: bool = False


def passage_info(hit: SearchHit, *, explain: bool) -> PassageInfo:
    return PassageInfo(
        chunk_id=hit.passage.chunk_id,
        score=hit.ranked.score,
        text=hit.passage.text,
        ref=ref_to(hit.passage),
        signals=hit.ranked.signals if explain else UNSET,
        **source_fields(hit.passage),
    )


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
        "title": passage.title,
        "heading": chunk.heading if is_document else "",
        "speaker": chunk.speaker,
        "timestamp": from_micros(chunk.timestamp),
    }


def pending_items(scope: SearchScope) -> PendingItems:
    return PendingItems(documents=scope.pending_documents, events=scope.pending_events, partial=scope.partial)
