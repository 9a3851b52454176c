"""The order in which items fill the token budget of a context."""

from __future__ import annotations

from typing import Any

import pytest

from weft.capabilities.assembly.context_passages import split_pins
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


def packed_order(*hits: SearchHit, budget: int = 100) -> list[int]:
    pins, others = split_pins(hits, 0.7, budget, len)
    return [each.ranked.number for each in (*pins, *others)]


@pytest.mark.req("CE-F12", part="pinned chunks come with every result")
def test_pinned_items_come_first() -> None:
    assert packed_order(hit(1, 1.2), hit(2, 0.0, pinned=True)) == [2, 1]


@pytest.mark.req("CE-F12", part="pinned chunks come with every result")
def test_pinned_items_stay_within_their_budget() -> None:
    pins = [hit(number, 0.1 * number, pinned=True) for number in range(9)]
    assert packed_order(*pins, hit(9, 0.0), budget=60) == [8, 7, 6, 9]


@pytest.mark.req("CE-F12", part="pinned chunks come with every result")
def test_relevant_pinned_items_are_ranked_like_others() -> None:
    pins = [hit(1, 0.5, pinned=True), hit(2, 1.5, pinned=True, score=0.9)]
    assert packed_order(*pins, hit(3, 1.0), budget=0) == [2, 3]


def test_higher_scores_come_before_shorter_items() -> None:
    assert packed_order(hit(1, 0.6, tokens=10), hit(2, 0.9, tokens=200)) == [2, 1]


def test_equal_scores_prefer_the_shorter_item() -> None:
    assert packed_order(hit(1, 0.9, tokens=200), hit(2, 0.9, tokens=20)) == [2, 1]
