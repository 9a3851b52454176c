"""Questions for the relevance of passages: asked of the content that answers them, of other content, and of both.

Each case keeps the candidates of every collection with their totals, so that rules of selection are compared on the
same ranking.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from evals.assembly_sets import lines_of
from evals.retrieval_sets import SETS, Corpus, Dataset, EvalQuestion, is_relevant, recall_of
from evals.vector_cache import VectorCache
from weftline.indexing.collections import SESSIONS
from weftline.kernel.clock import to_micros
from weftline.search.calibration import ranking_features
from weftline.search.model import Query
from weftline.search.ranking import score_views
from weftline.search.session_cursor import IndexItem
from weftline.search.session_item_text import ItemText, chunks_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from weftline.search.calibration import RankingFeatures
    from weftline.search.model import Floats
    from weftline.search_index.view import CollectionView

Kind = Literal["own", "mixed", "elsewhere", "similar"]
# Other content that the questions of a set are asked of, in turn.
OTHERS = {
    "locomo": ("tau2_banking", "chunkeval", "bfcl_live"),
    "bfcl_memory": ("scifact", "chunkeval", "metatool"),
    "ami": ("tau2_banking", "scifact", "livemcp"),
    "tau2_banking": ("locomo", "ami", "scifact"),
    "scifact": ("bfcl_memory", "tau2_banking", "qmsum"),
    "qmsum": ("tau2_banking", "locomo", "metatool"),
    "chunkeval": ("locomo", "bfcl_memory", "tau2_banking"),
}
_QUESTIONS = 100
# Meetings of one group answer many of each other's questions; another group's name begins otherwise.
_GROUPED, _GROUP_LENGTH = frozenset({"ami", "qmsum"}), 2
# Of the 70 meetings of AMI one in this many: each has 800 turns to embed.
_MEETING_STEP = 6
_START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Candidates:
    """Candidates of one collection: positions, totals, tokens and which are gold. ``own``: it answers the question."""

    corpus: Corpus
    own: bool
    size: int
    places: NDArray[np.int64]
    totals: Floats
    tokens: NDArray[np.int32]
    gold: NDArray[np.bool_]
    features: RankingFeatures


class RelevanceCase(NamedTuple):
    """A question of a set, asked of one or two collections."""

    name: str
    kind: Kind
    question: EvalQuestion
    terms: int
    features: RankingFeatures
    collections: Sequence[Candidates]

    def recall(self, chosen: Sequence[NDArray[np.bool_]]) -> float:
        """Return the share of the evidence that chosen candidates contain."""
        known = zip(self.collections, chosen, strict=True)
        return next(recall_of(self.question, c.corpus, c.places[rows].tolist()) for c, rows in known if c.own)


@cache
def relevance_cases(folder: Path) -> list[RelevanceCase]:
    """Return the cases of all sets, the same in every run."""
    return asyncio.run(_Cases(folder).all())


class _Cases:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._vectors = VectorCache()
        self._sets: dict[str, Dataset] = {}
        self._views: dict[tuple[str, str], CollectionView] = {}

    async def all(self) -> list[RelevanceCase]:
        return [case for name in OTHERS async for case in self._of(name)]

    async def _of(self, name: str) -> AsyncIterator[RelevanceCase]:
        questions = self._dataset(name).questions
        for place, question in enumerate(questions[:: max(1, len(questions) // _QUESTIONS)]):
            other = OTHERS[name][place % len(OTHERS[name])]
            own, elsewhere = (name, question.corpus), (other, next(iter(self._dataset(other).corpora)))
            yield await self._case(name, "own", question, [own])
            yield await self._case(name, "mixed", question, [own, elsewhere])
            yield await self._case(name, "elsewhere", question, [elsewhere])
            similar = self._similar(name, question.corpus)
            if similar is not None and place % 2 == 0:
                yield await self._case(name, "similar", question, [(name, similar)])

    def _similar(self, name: str, corpus: str) -> str | None:
        """Return another conversation, meeting of another group or document of a set; None if it has no other."""
        keys = list(self._dataset(name).corpora)
        following = keys[keys.index(corpus) + 1 :] + keys[: keys.index(corpus)]
        if name in _GROUPED:
            following = [key for key in following if key[:_GROUP_LENGTH] != corpus[:_GROUP_LENGTH]] or following
        return following[0] if following else None

    async def _case(
        self, name: str, kind: Kind, question: EvalQuestion, asked: Sequence[tuple[str, str]]
    ) -> RelevanceCase:
        corpora = [self._dataset(of).corpora[key] for of, key in asked]
        views = [self._view(of, key) for of, key in asked]
        at = max(corpus.asked_at for corpus in corpora)
        found = await score_views(Query(text=question.text, asked_at=at, purpose="prompt"), views, self._embed)
        collections = []
        for scores in found.by_view:
            place = next(place for place, view in enumerate(views) if view is scores.view)
            corpus, own = corpora[place], kind in {"own", "mixed"} and place == 0
            places = scores.columns.number - 1
            gold = np.array([own and is_relevant(question, corpus, each) for each in places.tolist()], np.bool_)
            features = ranking_features([scores], by_meaning=True)
            if features is not None:
                known = (places, scores.total, scores.columns.tokens, gold, features)
                collections.append(Candidates(corpus, own, scores.view.size, *known))
        features = ranking_features(found.by_view, by_meaning=True)
        assert features is not None  # noqa: S101 - every collection has rows
        return RelevanceCase(name, kind, question, found.terms, features, collections)

    def _dataset(self, name: str) -> Dataset:
        if name not in self._sets:
            self._sets[name] = _meetings(self._folder) if name == "ami" else SETS[name](self._folder)
        return self._sets[name]

    def _view(self, name: str, key: str) -> CollectionView:
        if (name, key) not in self._views:
            self._views[name, key] = self._dataset(name).corpora[key].open(self._vectors)
        return self._views[name, key]

    async def _embed(self, texts: Sequence[str]) -> Floats:
        return self._vectors.of(texts)


def _meetings(folder: Path) -> Dataset:
    """Return meetings as sessions; the questions are what annotators wrote about them, with the turns they cite."""
    corpora: dict[str, Corpus] = defaultdict(lambda: Corpus(SESSIONS))
    for line in lines_of(folder, "compaction/ami_conversations")[::_MEETING_STEP]:
        for number, turn in enumerate(line["messages"], start=1):
            at = to_micros(_START + timedelta(seconds=turn["time_s"]))
            said = ItemText(text=turn["text"], version=1, timestamp=at, speaker=turn["speaker"])
            item = IndexItem(source="message", place=line["conv"], item=str(number))
            corpora[line["conv"]].add(turn["id"], chunks_of(item, said))
    questions = [
        EvalQuestion(each["conv"], each["fact"], tuple(frozenset({turn}) for turn in sorted(set(each["evidence_ids"]))))
        for each in lines_of(folder, "compaction/ami_facts")
        if each["conv"] in corpora and each["evidence_ids"]
        if set(each["evidence_ids"]) <= set(corpora[each["conv"]].names)
    ]
    return Dataset("ami", dict(corpora), questions)
