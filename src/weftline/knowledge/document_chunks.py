"""Splits the text of a document into chunks for the search index."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.indexing.chunking.chunker import split_into_chunks
from weftline.indexing.collections.model import ChunkOwner, NewChunk, embedded_text
from weftline.indexing.entities import extract_entities, pack_entities
from weftline.kernel.tokens import approximate_tokens
from weftline.knowledge.document_content import compressed_text, storable_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weftline.indexing.chunking.model import ParsedDocument, TextSpan
    from weftline.knowledge.model import Document, Domain

    Terms = Callable[[str, str], str]

_SEPARATOR = " > "
_MAX_TITLE = 200


class ChunkLayout(NamedTuple):
    """The text of a document and the spans of its chunks.

    ``layout_hash`` is a hash of text and spans. ``kept`` is the compressed text, None if it equals the content.
    ``size`` is the length of the text in bytes.
    """

    text: str
    title: str
    media_type: str
    pieces: Sequence[TextSpan]
    layout_hash: str
    kept: bytes | None
    size: int


def plan_chunks(document: Document, domain: Domain, reading: ParsedDocument, content: bytes) -> ChunkLayout:
    """Compute the chunks of a document. Run it in a thread: the text may be megabytes."""
    text = storable_text(reading.text)
    pieces = split_into_chunks(structs.replace(reading, text=text), domain.chunking, approximate_tokens)
    title = document.title or storable_text(" ".join(reading.title.split()))[:_MAX_TITLE]
    kept, size = compressed_text(text, content), len(text.encode())
    return ChunkLayout(text, title, reading.media_type, pieces, _fingerprint(text, pieces), kept, size)


def build_chunks(
    document: Document, domain: Domain, layout: ChunkLayout, span: range, terms_of: Terms
) -> list[NewChunk]:
    """Build the chunks of a document whose ordinals are in a range."""
    return [_chunk(document, domain, layout, ordinal, terms_of) for ordinal in span]


def _chunk(document: Document, domain: Domain, layout: ChunkLayout, ordinal: int, terms_of: Terms) -> NewChunk:
    piece = layout.pieces[ordinal]
    text = layout.text[piece.start : piece.end]
    heading, speaker = _heading(layout.title, storable_text(piece.heading)), storable_text(piece.speaker)
    timestamp = document.timestamp if piece.timestamp is None else piece.timestamp
    # Only a part with its own time, such as a turn, has a day that "today" can mean.
    entities = extract_entities(text, speaker=speaker, timestamp=piece.timestamp, is_code=piece.kind == "code")
    return NewChunk(
        source="document",
        place=document.domain,
        item=document.document_id,
        version=document.version,
        ordinal=ordinal,
        start=piece.start,
        end=piece.end,
        kind=piece.kind,
        heading=heading,
        speaker=speaker,
        timestamp=timestamp,
        tokens=piece.tokens,
        importance=domain.importance if document.importance is None else document.importance,
        pinned=document.pinned,
        metadata=document.metadata,
        terms=terms_of(text, heading),
        entities=pack_entities(entities),
        text=text,
        digest=ChunkOwner("document", document.domain, document.document_id).digest_of(embedded_text(heading, text)),
    )


def _heading(title: str, path: str) -> str:
    """Prepend the title to the heading path, unless the path begins with it."""
    if not title or path == title or path.startswith(title + _SEPARATOR):
        return path
    return f"{title}{_SEPARATOR}{path}" if path else title


def _fingerprint(text: str, pieces: Sequence[TextSpan]) -> str:
    places = ",".join(f"{piece.start}-{piece.end}" for piece in pieces)
    return hashlib.sha256(f"{places}\n{text}".encode()).hexdigest()
