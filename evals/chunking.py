"""Quality of chunking: recall and precision of gold characters in the ten best chunks.

Each text is chunked alone and its chunks are ranked by plain BM25, so that only the chunking differs. The baseline, in
the same run, is windows of 1,000 characters. Chunks end with a sentence or turn, so they are shorter than allowed; with
285 tokens their mean length equals that of the windows. Chunks of the default size are compared with windows of 1,800
characters, their mean length. Recall is the share of gold characters in the ten best chunks, precision the share of
their characters that is gold.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from evals.message_search import Bm25
from evals.results import Row
from weftline.indexing.chunking.chunker import split_into_chunks
from weftline.indexing.chunking.model import ChunkingOptions, ParsedDocument
from weftline.indexing.chunking.reader import detect_type
from weftline.kernel.ports import approximate_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Span = tuple[int, int]
    Splitter = Callable[[str], list[Span]]

_COLLECTIONS = ("qmsum", "chunkeval")
_WINDOW = 1_000
_DEFAULT_MEAN_LENGTH = 1_800
_DIGITS = 3
_SAME_LENGTH = ChunkingOptions(chunk_tokens=285, overlap_tokens=0)


@dataclass(frozen=True, slots=True)
class ChunkingScore:
    """Scores of the ten best chunks against the gold characters, averaged over all questions."""

    recall: float
    precision: float
    overlap: float


def chunking(folder: Path | None) -> Iterator[Row]:
    if folder is None:
        return
    for name in _COLLECTIONS:
        texts = {line["doc_id"]: line["text"] for line in _lines(folder, f"{name}_docs")}
        questions = _lines(folder, f"{name}_queries")
        windows = _measure(_windows(_WINDOW), texts, questions)
        same = _measure(_weftline(_SAME_LENGTH), texts, questions)
        yield _row(f"{name}.recall_same_length", same.recall, windows.recall, "gold characters in ten")
        yield _row(f"{name}.precision_same_length", same.precision, windows.precision, "share of ten that is gold")
        yield _row(f"{name}.iou_same_length", same.overlap, windows.overlap, "intersection over union")
        default = _measure(_weftline(ChunkingOptions()), texts, questions).recall
        as_long = _measure(_windows(_DEFAULT_MEAN_LENGTH), texts, questions).recall
        yield Row(f"chunking.{name}.recall_default", default, "gold characters in ten", as_long, None, None)


def _windows(length: int) -> Splitter:
    return lambda text: [(at, min(at + length, len(text))) for at in range(0, len(text), length)]


def _weftline(options: ChunkingOptions) -> Splitter:
    def split(text: str) -> list[Span]:
        reading = ParsedDocument(text=text, media_type=detect_type(text))
        return [(chunk.start, chunk.end) for chunk in split_into_chunks(reading, options, approximate_tokens)]

    return split


def _measure(split: Splitter, texts: dict[str, str], questions: list[dict[str, Any]]) -> ChunkingScore:
    spans = {name: split(text) for name, text in texts.items()}
    ranked = {name: Bm25([texts[name][start:end] for start, end in spans[name]]) for name in texts}
    scores = []
    for question in questions:
        document = question["doc_id"]
        best = [spans[document][place] for place in ranked[document].best(question["query"])]
        gold = [(span["start"], span["end"]) for span in question["gold_spans"]]
        scores.append(_score(_characters(best), _characters(gold)))
    return ChunkingScore(*(fmean(figures) for figures in zip(*scores, strict=True)))


def _score(best: set[int], gold: set[int]) -> tuple[float, float, float]:
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
