"""Small collections for ranking tests, with vectors made from words."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from support.collection_model import NamedCaller
from weftline.indexing.collections import PROSE, IndexedChunk
from weftline.indexing.text_analysis import index_terms
from weftline.search.model import CollectionQuery, Query
from weftline.search.ranking import rank, score_views
from weftline.search_index.snapshot import IndexSnapshot
from weftline.search_index.view import CollectionView
from weftline.testing.embedder import WordEmbedder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.search.model import Floats, Ranking, View
    from weftline.search.selection import ScoredCandidates

NOW = 1_000_000_000_000_000
_EMBEDDER = WordEmbedder(dimensions=256)


@dataclass(frozen=True)
class Row:
    """A text in a collection, with further fields of its chunk."""

    text: str
    fields: dict[str, Any]


def text_row(text: str, **fields: Any) -> Row:
    return Row(text, fields)


def document_collection(*rows: Row | str, collection: str = "domain:d") -> CollectionView:
    """Return a collection of documents, by default of one chunk each."""
    return _collection(collection, [row if isinstance(row, Row) else text_row(row) for row in rows], "document")


def message_collection(*rows: tuple[str, str] | Row) -> CollectionView:
    """Return a collection of the messages of one session, given as speaker and text."""
    messages = [
        row if isinstance(row, Row) else text_row(row[1], speaker=row[0], item=str(place), place="s")
        for place, row in enumerate(rows, start=1)
    ]
    return _collection("sessions", messages, "message")


def ranked(text: str, *views: View, by_meaning: bool = True, **options: Any) -> Ranking:
    """Rank the chunks of these views."""
    return asyncio.run(rank(Query(text=text, asked_at=NOW, **options), views, _embed if by_meaning else _no_vectors))


def scored(text: str, *views: View, **options: Any) -> ScoredCandidates:
    return asyncio.run(score_views(Query(text=text, asked_at=NOW, **options), views, _embed))


def numbers(ranking: Ranking) -> list[int]:
    return [each.number for each in ranking.ranked]


async def _embed(texts: Sequence[str]) -> Floats:
    return await _EMBEDDER.embed(texts, "query")


async def _no_vectors(texts: Sequence[str]) -> None:
    del texts


def document_chunks(*texts: str) -> list[IndexedChunk]:
    """Return documents of one chunk each."""
    return _indexed_chunks([text_row(text) for text in texts], "document")


def view_of(snapshot: IndexSnapshot, collection: str = "domain:d") -> CollectionView:
    return CollectionView(collection, snapshot, CollectionQuery(collection), NamedCaller())


def _collection(collection: str, rows: Sequence[Row], source: str) -> CollectionView:
    indexed = _indexed_chunks(rows, source)
    return view_of(IndexSnapshot().advanced_to(len(indexed), indexed, []), collection)


def _indexed_chunks(rows: Sequence[Row], source: str) -> list[IndexedChunk]:
    vectors = asyncio.run(_EMBEDDER.embed([row.text for row in rows], "passage"))
    return [_indexed_chunk(number, row, source, vectors[number - 1]) for number, row in enumerate(rows, start=1)]


def _indexed_chunk(number: int, row: Row, source: str, vector: Floats) -> IndexedChunk:
    fields: dict[str, Any] = {
        "number": number,
        "source": source,
        "place": "d",
        "scope": "",
        "item": str(number),
        "version": 1,
        "ordinal": 0,
        "kind": PROSE,
        "speaker": "",
        "timestamp": NOW,
        "tokens": 10,
        "importance": 0.5,
        "pinned": False,
        "terms": index_terms(row.text),
        "entities": "",
        "vector": vector.astype(np.float16).tobytes(),
    }
    return IndexedChunk(**(fields | row.fields))
