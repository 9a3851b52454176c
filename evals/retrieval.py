"""Quality of retrieval: recall@10 for all kinds of sources, and an ablation of each signal.

One configuration for all sets: the product's chunking, embeddings, terms and ranking with their defaults. Adversarial
questions of LoCoMo are excluded. The baseline is plain BM25.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from msgspec import structs

from evals.results import Row
from evals.retrieval_runs import BEST, runs_over
from weftline.indexing.collections import Chunk
from weftline.kernel.ports import approximate_tokens
from weftline.prompts.assembly.passages import render_context
from weftline.search.model import RankingWeights
from weftline.search.neighbours import passage_ref
from weftline.search.passages import ChunkPassage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from evals.retrieval_runs import Answer, Runs
    from evals.retrieval_sets import Corpus, EvalQuestion
    from weftline.search.model import View
    from weftline.search_index.view import CollectionView

# Recall of plain BM25, and the target.
_TARGETS: dict[str, tuple[float | None, float | None]] = {
    "locomo": (0.57, 0.80),
    "bfcl_memory": (None, 0.99),
    "scifact": (0.81, 0.88),
    "tau2_banking": (0.23, 0.40),
    "qmsum": (0.48, 0.60),
    "chunkeval": (None, None),
    "metatool": (0.70, 0.90),
    "livemcp": (0.40, 0.55),
    "bfcl_live": (0.88, 0.96),
}
_WINDOW, _WINDOWS_BASELINE = 6, 0.86
_CONTEXT_TOKENS, _CONTEXT_TARGET = 2_000, 0.92
# Like get_context.
_MIN_PASSAGE_TOKENS, _REACH = 20, 2
_DIGITS = 3
_LEXICAL, _SEMANTIC = ("lexical", "lexical_around"), ("semantic", "semantic_around")
# Signals of each part of the ranking, and the sets on which it matters.
_PARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "words": (_LEXICAL, ("locomo", "scifact", "qmsum", "metatool", "bfcl_live")),
    "meaning": (_SEMANTIC, ("locomo", "scifact", "qmsum", "metatool", "bfcl_live")),
    "windows": (("lexical_around", "semantic_around"), ("locomo", "bfcl_memory", "qmsum", "chunkeval")),
    "references": (("speaker",), ("locomo",)),
    "entities": (("entities",), ("locomo", "scifact", "tau2_banking", "qmsum")),
    "importance": (("importance",), ("locomo", "bfcl_memory")),
    "recency": (("recency",), ("locomo",)),
    "repetition": (("repetition",), ("bfcl_live", "tau2_banking")),
}


def retrieval(folder: Path | None) -> Iterator[Row]:
    if folder is None:
        return
    runs = runs_over(folder)
    for name, (baseline, target_value) in _TARGETS.items():
        value = fmean(answer.recall(answer.shown[:BEST]) for answer in runs.answers(name))
        unit = "gold characters in ten" if runs.dataset(name).measure == "characters" else "recall@10"
        yield _row(name, value, unit, baseline, target_value)
    yield _row("locomo.windows", _in_windows(runs), "recall@10 of six turns", _WINDOWS_BASELINE, _WINDOWS_BASELINE)
    yield _row("locomo.context", _in_context(runs), f"gold in {_CONTEXT_TOKENS:,} tokens", None, _CONTEXT_TARGET)
    yield from _ablations(runs)
    yield Row(
        "retrieval.configuration.recency_weight", RankingWeights().recency_weight, "for all sets", None, None, None
    )
    yield Row(
        "retrieval.configuration.importance_weight", RankingWeights().importance_weight, "for all", None, None, None
    )


def _ablations(runs: Runs) -> Iterator[Row]:
    for part, (signals, names) in _PARTS.items():
        for name in names:
            answers = runs.answers(name)
            without = fmean(answer.recall(answer.best(answer.without(signals))) for answer in answers)
            yield _ablation(part, name, answers, without)
    unnamed = runs.ask(runs.dataset("locomo"), _without_names(runs))
    without = fmean(answer.recall(answer.best(answer.total)) for answer in unnamed)
    yield _ablation("names", "locomo", runs.answers("locomo"), without)


def _ablation(part: str, name: str, answers: Sequence[Answer], without: float) -> Row:
    everything = fmean(answer.recall(answer.best(answer.total)) for answer in answers)
    value, baseline = round(everything, _DIGITS), round(without, _DIGITS)
    return Row(f"retrieval.with_{part}.{name}", value, "baseline: without it", baseline, None, None)


def _without_names(runs: Runs) -> Iterator[tuple[EvalQuestion, str, View]]:
    for answer in runs.answers("locomo"):
        view: Any = _WithoutSpeakers(runs.view("locomo", answer.question.corpus))
        yield answer.question, answer.question.corpus, view


class _WithoutSpeakers:
    """A view without speakers, so that names in questions are ordinary terms."""

    def __init__(self, view: CollectionView) -> None:
        self._view = view

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of the view
        return getattr(self._view, name)

    def present_speakers(self) -> frozenset[str]:
        return frozenset()


def _in_windows(runs: Runs) -> float:
    """Return the recall of windows of six turns: the ten windows of the best turns, against those with an answer."""
    found = []
    for answer in runs.answers("locomo"):
        window_of = dict(zip(answer.corpus.names, answer.corpus.windows(_WINDOW), strict=True))
        best = answer.best(answer.total, len(answer.places))
        shown = list(dict.fromkeys(window_of[answer.corpus.names[place]] for place in best))[:BEST]
        right = {window_of[name] for group in answer.question.relevant for name in group if name in window_of}
        found.append(len(right.intersection(shown)) / max(len(right), 1))
    return fmean(found)


def _in_context(runs: Runs) -> float:
    """Return the recall of the text that get_context renders."""
    answers = runs.answers("locomo")
    return fmean(answer.recall(_in_rendered_text(answer)) for answer in answers)


def _in_rendered_text(answer: Answer) -> list[int]:
    """Return the positions of all chunks in the rendered context."""
    best = answer.best(answer.total, _CONTEXT_TOKENS // _MIN_PASSAGE_TOKENS)
    refs = [
        passage_ref(_passage(answer.corpus, near), rank, distance)
        for rank, place in enumerate(best)
        for near, distance in answer.corpus.around(place, _REACH)
    ]
    rendered = render_context(refs, _CONTEXT_TOKENS, approximate_tokens)
    return [passage.chunk.number - 1 for section in rendered.sections for passage in section.passages]


def _passage(corpus: Corpus, place: int) -> ChunkPassage:
    chunk = corpus.chunks[place]
    whole = Chunk(**structs.asdict(chunk), collection=corpus.collection, number=place + 1)
    return ChunkPassage(
        chunk=whole, text=chunk.text, title="", uri="", message_id=int(chunk.item), session_id=chunk.place
    )


def _row(name: str, value: float, unit: str, baseline: float | None, target_value: float | None) -> Row:
    value = round(value, _DIGITS)
    target = None if target_value is None else f">= {target_value}"
    return Row(
        f"retrieval.{name}", value, unit, baseline, target, None if target_value is None else value >= target_value
    )
