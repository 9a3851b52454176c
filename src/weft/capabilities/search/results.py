"""What callers are shown of what was found."""

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
    """Where something is from: a document of a domain, a message or a key of a session, a key of your memory."""

    source: Source
    domain: str | None = None
    document_id: str | None = None
    session_id: str | None = None
    message_id: int | None = None
    key: str | None = None
    title: str = ""
    heading: str = ""
    speaker: str = ""
    timestamp: datetime


class PassageInfo(PassageSource, kw_only=True):
    """A passage that was found: what it says, how relevant it is, and where it stands.

    ``signals`` explain the score. ``ref`` is a source ref that context_records resolves to these very words.
    """

    chunk_id: str
    score: float
    text: str
    ref: ContextSourceRef
    signals: dict[str, Any] | UnsetType = UNSET


class PendingItems(Response, omit_defaults=False):
    """What cannot be found yet of what you may see: documents that are still being indexed, and what events tell of.

    ``partial``: an index is being made anew, so not everything was searched; confidence is lower until it is done.
    """

    documents: int = 0
    events: int = 0
    partial: bool = False


def passage_shown(hit: SearchHit, *, explain: bool) -> PassageInfo:
    return PassageInfo(
        chunk_id=hit.passage.chunk_id,
        score=hit.ranked.score,
        text=hit.passage.text,
        ref=ref_to(hit.passage),
        signals=hit.ranked.signals if explain else UNSET,
        **where(hit.passage),
    )


def where(passage: ChunkPassage) -> dict[str, Any]:
    """Return the fields that say where a passage is from."""
    chunk = passage.chunk
    is_document = chunk.source == "document"
    return {
        "source": chunk.source,
        "domain": chunk.place if is_document else None,
        "document_id": chunk.item if is_document else None,
        "session_id": passage.session_id,
        "message_id": passage.message_id,
        "key": passage.key,
        "title": passage.title,
        "heading": chunk.heading if is_document else "",
        "speaker": chunk.speaker,
        "timestamp": from_micros(chunk.timestamp),
    }


def pending_in(outlook: SearchScope) -> PendingItems:
    return PendingItems(documents=outlook.pending_documents, events=outlook.pending_events, partial=outlook.partial)
