"""From a document's text to the chunks that searches find."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weft.capabilities.indexing.chunking.chunker import cut
from weft.capabilities.indexing.collections.model import NewChunk, digest_of, embedded_text
from weft.capabilities.knowledge.document_content import kept_text, storable
from weft.kernel.tokens import approximate_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.capabilities.indexing.chunking.model import Reading, TextSpan
    from weft.capabilities.knowledge.model import Document, Domain

    Terms = Callable[[str, str], str]

_BETWEEN = " > "
_LONGEST_TITLE = 200


class Layout(NamedTuple):
    """A document's text, and where it is to be cut.

    ``cut`` is the same for the same text cut at the same places. ``kept`` is the text as it is kept, None where it is
    the content itself; ``size`` is how many bytes it has.
    """

    text: str
    title: str
    media_type: str
    pieces: Sequence[TextSpan]
    cut: str
    kept: bytes | None
    size: int


def lay_out(document: Document, domain: Domain, reading: Reading, content: bytes) -> Layout:
    """Find out where a document is to be cut. Work for a thread: it may be megabytes."""
    text = storable(reading.text)
    pieces = cut(structs.replace(reading, text=text), domain.chunking, approximate_tokens)
    title = document.title or storable(" ".join(reading.title.split()))[:_LONGEST_TITLE]
    kept, size = kept_text(text, content), len(text.encode())
    return Layout(text, title, reading.media_type, pieces, _fingerprint(text, pieces), kept, size)


def chunks_of(document: Document, domain: Domain, layout: Layout, span: range, terms_of: Terms) -> list[NewChunk]:
    """Return the chunks of a document whose ordinals are in a span."""
    return [_chunk(document, domain, layout, ordinal, terms_of) for ordinal in span]


def _chunk(document: Document, domain: Domain, layout: Layout, ordinal: int, terms_of: Terms) -> NewChunk:
    piece = layout.pieces[ordinal]
    text = layout.text[piece.start : piece.end]
    heading = _heading(layout.title, storable(piece.heading))
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
        speaker=storable(piece.speaker),
        timestamp=document.timestamp if piece.timestamp is None else piece.timestamp,
        tokens=piece.tokens,
        importance=domain.importance if document.importance is None else document.importance,
        pinned=document.pinned,
        metadata=document.metadata,
        terms=terms_of(text, heading),
        text=text,
        digest=digest_of(embedded_text(heading, text)),
    )


def _heading(title: str, path: str) -> str:
    """Return what a chunk stands under: the title first, unless the path of headings begins with it."""
    if not title or path == title or path.startswith(title + _BETWEEN):
        return path
    return f"{title}{_BETWEEN}{path}" if path else title


def _fingerprint(text: str, pieces: Sequence[TextSpan]) -> str:
    places = ",".join(f"{piece.start}-{piece.end}" for piece in pieces)
    return hashlib.sha256(f"{places}\n{text}".encode()).hexdigest()
