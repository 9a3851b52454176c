"""Whether texts are cut so that what answers a question is found, and little else.

Each text is cut alone and its pieces are ranked by plain BM25, so that only the cutting differs. Beside our pieces, in
the same run: windows of 1,000 characters. Pieces end where a sentence or turn does, so they are shorter than allowed;
with 285 tokens their mean length is that of the windows. Pieces of the default size stand beside windows of 1,800
characters, their mean length. Of the ten best pieces, recall is how much of the gold they hold, and precision how much
of them is gold.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from evals.message_search import Bm25
from evals.results import Row
from weft.capabilities.indexing.chunking.chunker import cut
from weft.capabilities.indexing.chunking.media_types import type_of_text
from weft.capabilities.indexing.chunking.model import ChunkingOptions, Reading
from weft.kernel.tokens import approximate_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Span = tuple[int, int]
    Way = Callable[[str], list[Span]]

_COLLECTIONS = ("qmsum", "chunkeval")
_WINDOW = 1_000
_AS_LONG_AS_DEFAULT = 1_800
_DIGITS = 3
_SAME_LENGTH = ChunkingOptions(chunk_tokens=285, overlap_tokens=0)


@dataclass(frozen=True, slots=True)
class Found:
    """How well the ten best pieces match the gold characters, over all questions."""

    recall: float
    precision: float
    overlap: float


def chunking(folder: Path | None) -> Iterator[Row]:
    if folder is None:
        return
    for name in _COLLECTIONS:
        texts = {line["doc_id"]: line["text"] for line in _lines(folder, f"{name}_docs")}
        questions = _lines(folder, f"{name}_queries")
        windows = _measured(_windows(_WINDOW), texts, questions)
        same = _measured(_ours(_SAME_LENGTH), texts, questions)
        yield _row(f"{name}.recall_same_length", same.recall, windows.recall, "gold characters in ten")
        yield _row(f"{name}.precision_same_length", same.precision, windows.precision, "share of ten that is gold")
        yield _row(f"{name}.iou_same_length", same.overlap, windows.overlap, "intersection over union")
        default = _measured(_ours(ChunkingOptions()), texts, questions).recall
        as_long = _measured(_windows(_AS_LONG_AS_DEFAULT), texts, questions).recall
        yield Row(f"chunking.{name}.recall_default", default, "gold characters in ten", as_long, None, None)


def _windows(length: int) -> Way:
    return lambda text: [(at, min(at + length, len(text))) for at in range(0, len(text), length)]


def _ours(cutting: ChunkingOptions) -> Way:
    def way(text: str) -> list[Span]:
        reading = Reading(text=text, media_type=type_of_text(text))
        return [(piece.start, piece.end) for piece in cut(reading, cutting, approximate_tokens)]

    return way


def _measured(way: Way, texts: dict[str, str], questions: list[dict[str, Any]]) -> Found:
    spans = {name: way(text) for name, text in texts.items()}
    ranked = {name: Bm25([texts[name][start:end] for start, end in spans[name]]) for name in texts}
    found = []
    for question in questions:
        document = question["doc_id"]
        best = [spans[document][place] for place in ranked[document].best(question["query"])]
        gold = [(span["start"], span["end"]) for span in question["gold_spans"]]
        found.append(_matched(_characters(best), _characters(gold)))
    return Found(*(fmean(figures) for figures in zip(*found, strict=True)))


def _matched(best: set[int], gold: set[int]) -> tuple[float, float, float]:
    both = len(best & gold)
    return both / len(gold), both / max(len(best), 1), both / len(best | gold)


def _characters(spans: list[Span]) -> set[int]:
    return {at for start, end in spans for at in range(start, end)}


def _row(name: str, value: float, baseline: float, unit: str) -> Row:
    value, baseline = round(value, _DIGITS), round(baseline, _DIGITS)
    return Row(f"chunking.{name}", value, unit, baseline, "windows of 1,000", value >= baseline)


def _lines(folder: Path, name: str) -> list[dict[str, Any]]:
    with (folder / "chunking" / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
