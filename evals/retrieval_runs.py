"""Runs the questions of evaluation sets, each once, and keeps the signals of every candidate."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from evals.retrieval_sets import SETS, recall_of
from evals.vector_cache import VectorCache
from weftline.search.calibration import ranking_features
from weftline.search.model import Query
from weftline.search.ranking import score_views
from weftline.search.selection import select_results

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from evals.retrieval_sets import Corpus, Dataset, EvalQuestion
    from weftline.search.calibration import RankingFeatures
    from weftline.search.model import Floats, Ranking, View
    from weftline.search_index.view import CollectionView

BEST = 10


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one question: all candidates by position in the corpus, with their signals."""

    question: EvalQuestion
    corpus: Corpus
    ranking: Ranking
    places: NDArray[np.int64]
    signals: dict[str, Floats]
    features: RankingFeatures | None

    @property
    def total(self) -> Floats:
        return self.without(())

    @property
    def shown(self) -> list[int]:
        """Return the positions of the results, best first."""
        return [ranked.number - 1 for ranked in self.ranking.ranked]

    def without(self, names: Container[str]) -> Floats:
        """Return the score of each candidate without some signals."""
        totals: Floats = np.sum([values for name, values in self.signals.items() if name not in names], axis=0)
        return totals

    def best(self, totals: Floats, limit: int = BEST) -> list[int]:
        best: list[int] = self.places[np.lexsort((self.places, -totals))[:limit]].tolist()
        return best

    def recall(self, shown: Sequence[int]) -> float:
        return recall_of(self.question, self.corpus, shown)


class Runs:
    """Evaluation sets, loaded and run on first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._vectors = VectorCache()
        self._sets: dict[str, Dataset] = {}
        self._views: dict[tuple[str, str], CollectionView] = {}
        self._answers: dict[str, list[Answer]] = {}

    def dataset(self, name: str) -> Dataset:
        if name not in self._sets:
            self._sets[name] = SETS[name](self._folder)
        return self._sets[name]

    def answers(self, name: str) -> list[Answer]:
        """Return the answers to all questions of a set."""
        if name not in self._answers:
            dataset = self.dataset(name)
            questions = [(each, each.corpus, self.view(name, each.corpus)) for each in dataset.questions]
            self._answers[name] = self.ask(dataset, questions)
        return self._answers[name]

    def ask(self, dataset: Dataset, questions: Iterable[tuple[EvalQuestion, str, View]]) -> list[Answer]:
        """Run questions, each on a view of a corpus of the dataset."""

        async def run() -> list[Answer]:
            return [await self._answer(each, dataset.corpora[key], view) for each, key, view in questions]

        return asyncio.run(run())

    def view(self, name: str, corpus: str) -> CollectionView:
        if (name, corpus) not in self._views:
            self._views[name, corpus] = self.dataset(name).corpora[corpus].open(self._vectors)
        return self._views[name, corpus]

    async def _answer(self, question: EvalQuestion, corpus: Corpus, view: View) -> Answer:
        query = Query(text=question.text, asked_at=corpus.asked_at, top_k=BEST, low_confidence=True)
        scored = await score_views(query, [view], self._embed)
        found = scored.by_view[0]
        return Answer(
            question,
            corpus,
            select_results(query, [view], scored),
            found.columns.number - 1,
            found.signals,
            ranking_features(scored.by_view, by_meaning=True),
        )

    async def _embed(self, texts: Sequence[str]) -> Floats:
        return self._vectors.of(texts)


@cache
def runs_over(folder: Path) -> Runs:
    """Return the runs over a folder, shared by all evaluations."""
    return Runs(folder)
