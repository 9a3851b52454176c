"""The order in which items fill the token budget of a context."""

from __future__ import annotations

from typing import Any

from weft.capabilities.assembly.context_passages import packing_order
from weft.capabilities.indexing.collections.model import Chunk
from weft.capabilities.search.model import Ranked
from weft.capabilities.search.passages import ChunkPassage
from weft.capabilities.search.retriever import SearchHit


def hit(number: int, evidence: float, *, pinned: bool = False, score: float = 0.5, **fields: Any) -> SearchHit:
    chunk = Chunk(
        **{
            "collection": "domain:d",
            "number": number,
            "source": "document",
            "place": "d",
            "item": "a",
            "ordinal": number,
            "start": 0,
            "end": 1,
            "terms": "",
            "digest": b"",
            "tokens": 20,
            "timestamp": 0,
            "text": "x",
            **fields,
        }
    )
    ranked = Ranked(collection="domain:d", number=number, score=score, signals={}, evidence=evidence, pinned=pinned)
    return SearchHit(ranked, ChunkPassage(chunk=chunk, text="x" * chunk.tokens, title="", uri=""))


def packed_order(*hits: SearchHit) -> list[int]:
    return [hit.ranked.number for hit in sorted(hits, key=packing_order)]


def test_higher_scores_come_before_shorter_items() -> None:
    assert packed_order(hit(1, 0.6, tokens=10), hit(2, 0.9, tokens=200)) == [2, 1]


def test_equal_scores_prefer_the_shorter_item() -> None:
    assert packed_order(hit(1, 0.9, tokens=200), hit(2, 0.9, tokens=20)) == [2, 1]
