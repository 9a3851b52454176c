"""Asking the questions of evaluation sets, each once, and remembering what spoke for what."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from evals.known_vectors import KnownVectors
from evals.retrieval_sets import SETS, found_of
from weft.capabilities.search.model import Query
from weft.capabilities.search.ranking import weigh
from weft.capabilities.search.selection import choose

if TYPE_CHECKING:
    from collections.abc import Dataset as Some
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from evals.retrieval_sets import Asked, Corpus, Dataset
    from weft.capabilities.search.index_view import Floats, View
    from weft.capabilities.search.model import Ranking
    from weft.search_index.view import CollectionView

BEST = 10


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one question: all candidates by their places in the corpus, with what speaks for each."""

    asked: Asked
    corpus: Corpus
    ranking: Ranking
    places: NDArray[np.int64]
    signals: dict[str, Floats]

    @property
    def total(self) -> Floats:
        return self.without(())

    @property
    def shown(self) -> list[int]:
        """Return the places of what was shown, the best first."""
        return [ranked.number - 1 for ranked in self.ranking.ranked]

    def without(self, names: Some[str]) -> Floats:
        """Return what speaks for each candidate when some signals do not count."""
        totals: Floats = np.sum([values for name, values in self.signals.items() if name not in names], axis=0)
        return totals

    def best(self, totals: Floats, limit: int = BEST) -> list[int]:
        best: list[int] = self.places[np.lexsort((self.places, -totals))[:limit]].tolist()
        return best

    def recall(self, shown: Sequence[int]) -> float:
        return found_of(self.asked, self.corpus, shown)


class Runs:
    """Evaluation sets, opened and asked when they are first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._vectors = KnownVectors()
        self._sets: dict[str, Dataset] = {}
        self._views: dict[tuple[str, str], CollectionView] = {}
        self._answers: dict[str, list[Answer]] = {}

    def dataset(self, name: str) -> Dataset:
        if name not in self._sets:
            self._sets[name] = SETS[name](self._folder)
        return self._sets[name]

    def answers(self, name: str) -> list[Answer]:
        """Return the answers to all questions of a set, asked as any search is."""
        if name not in self._answers:
            dataset = self.dataset(name)
            wanted = [(each, each.corpus, self.view(name, each.corpus)) for each in dataset.questions]
            self._answers[name] = self.ask(dataset, wanted)
        return self._answers[name]

    def ask(self, dataset: Dataset, wanted: Iterable[tuple[Asked, str, View]]) -> list[Answer]:
        """Ask questions, each of a corpus of the dataset through some view of it."""

        async def asked() -> list[Answer]:
            return [await self._answer(each, dataset.corpora[key], view) for each, key, view in wanted]

        return asyncio.run(asked())

    def view(self, name: str, corpus: str) -> CollectionView:
        if (name, corpus) not in self._views:
            self._views[name, corpus] = self.dataset(name).corpora[corpus].open(self._vectors)
        return self._views[name, corpus]

    async def _answer(self, asked: Asked, corpus: Corpus, view: View) -> Answer:
        question = Query(text=asked.text, asked_at=corpus.asked_at, top_k=BEST)
        weighed = await weigh(question, [view], self._meanings)
        found = weighed.found[0]
        return Answer(asked, corpus, choose(question, [view], weighed), found.columns.number - 1, found.signals)

    async def _meanings(self, texts: Sequence[str]) -> Floats:
        return self._vectors.of(texts)


@cache
def runs_over(folder: Path) -> Runs:
    """Return the runs over a folder, the same for every evaluation."""
    return Runs(folder)
