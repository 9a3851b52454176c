"""What goes first into a text that must fit."""

from __future__ import annotations

from typing import Any

import pytest

from weft.capabilities.retrieval.gathering import by_worth
from weft.capabilities.retrieval.model import Ranked
from weft.capabilities.retrieval.reading import Passage
from weft.capabilities.retrieval.searching import Hit
from weft.capabilities.shelves.model import Chunk


def hit(number: int, evidence: float, **known: Any) -> Hit:
    chunk = Chunk(
        **{
            "shelf": "domain:d",
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
            "moment": 0,
            "text": "x",
            **known,
        }
    )
    ranked = Ranked(shelf="domain:d", number=number, score=0.5, signals={}, evidence=evidence)
    return Hit(ranked, Passage(chunk=chunk, text="x", title="", uri=""))


def order(*hits: Hit) -> list[int]:
    return [each.ranked.number for each in sorted(hits, key=by_worth)]


@pytest.mark.req("CE-F12")
def test_what_is_pinned_goes_first() -> None:
    assert order(hit(1, 1.2), hit(2, 0.0, pinned=True)) == [2, 1]


def test_what_is_better_goes_before_what_is_shorter() -> None:
    assert order(hit(1, 0.6, tokens=10), hit(2, 0.9, tokens=200)) == [2, 1]


def test_of_what_is_equally_good_the_shorter_goes_first() -> None:
    assert order(hit(1, 0.9, tokens=200), hit(2, 0.9, tokens=20)) == [2, 1]
