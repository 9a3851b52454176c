"""In-memory search index of tools, ranked like any other collection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.indexing.collections import IndexedChunk, domain_collection
from weftline.indexing.text_analysis import index_terms
from weftline.kernel.ports import approximate_tokens
from weftline.search.model import CollectionQuery
from weftline.search_index.snapshot import IndexSnapshot
from weftline.search_index.view import CollectionView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.app.tools.catalogue import ToolDocument

_COLLECTION = domain_collection("weftline_tools")


class ToolIndex:
    """Tools as documents; without vectors they are searched by keywords only."""

    def __init__(self, documents: Sequence[ToolDocument], vectors: Sequence[bytes] | None) -> None:
        self.has_vectors = vectors is not None
        self._names = [document.name for document in documents]
        chunks = [
            _chunk(number, document, None if vectors is None else vectors[number - 1])
            for number, document in enumerate(documents, start=1)
        ]
        self._snapshot = IndexSnapshot().advanced_to(len(chunks), chunks, [])

    def view(self, names: frozenset[str]) -> CollectionView:
        """Return a view of the named tools; all statistics cover these only."""
        return CollectionView(_COLLECTION, self._snapshot, CollectionQuery(_COLLECTION, items=names), _EveryTool())

    def name_of(self, number: int) -> str:
        return self._names[number - 1]


class _EveryTool:
    """Matches all patterns: which tools a caller may use is decided by their names."""

    def matches(self, patterns: Sequence[str]) -> bool:
        del patterns
        return True


def _chunk(number: int, document: ToolDocument, vector: bytes | None) -> IndexedChunk:
    return IndexedChunk(
        number=number,
        source="document",
        place="",
        scope="",
        item=document.name,
        version=1,
        ordinal=0,
        kind="",
        speaker="",
        timestamp=0,
        tokens=approximate_tokens(document.text),
        importance=0.5,
        pinned=False,
        terms=index_terms(f"{document.text} {document.synonyms}", document.heading),
        entities="",
        vector=vector,
    )
