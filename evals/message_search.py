"""Quality of message search: recall of the messages that answer a question, misspelt words, false alarms.

Each conversation is a session and each turn a message, searched with the defaults of search_context: threshold 60,
limit 10. The baselines, in the same run, are RapidFuzz over whole texts at the same threshold, and BM25 without a
threshold. Adversarial questions are excluded.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rapidfuzz import fuzz, process

from evals.results import Row
from weftline.indexing.text_analysis import FILLER_WORDS, tokens
from weftline.sessions.messages.fuzzy_ranking import MessageIndex, search

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_COLLECTIONS = ("locomo", "bfcl_memory")
_THRESHOLD = 60
_LIMIT = 10
_MIN_TYPOS_FOUND = 0.9
_MIN_LETTERS = 5


@dataclass(frozen=True, slots=True)
class Conversation:
    """The turns of one conversation by position, searchable with each of the compared methods."""

    places: dict[str, int]
    turn_texts: list[str]
    texts: list[str]
    index: MessageIndex
    bm25: Bm25

    def weftline(self, query: str) -> list[int]:
        hits = search([self.index], query, threshold=_THRESHOLD, limit=_LIMIT, with_metadata=True)
        return [hit.message_id for hit in hits]

    def by_whole_text(self, query: str) -> list[int]:
        found = process.extract(query, self.texts, scorer=fuzz.WRatio, score_cutoff=_THRESHOLD, limit=_LIMIT)
        return [place for _, _, place in found]

    def by_bm25(self, query: str) -> list[int]:
        return self.bm25.best(query)


@dataclass(frozen=True, slots=True)
class Question:
    """A question about one conversation, and the positions of its answers."""

    conversation: Conversation
    query: str
    answers: set[int]


class Bm25:
    """Textbook BM25 without stop words."""

    def __init__(self, texts: list[str]) -> None:
        self._counts = [Counter(_content_words(text)) for text in texts]
        self._document_frequencies = Counter(word for counts in self._counts for word in counts)
        self._mean = fmean(counts.total() for counts in self._counts)

    def best(self, query: str) -> list[int]:
        words = set(_content_words(query))
        scores = {place: self._score(words, counts) for place, counts in enumerate(self._counts)}
        return [place for place in sorted(scores, key=lambda place: -scores[place])[:_LIMIT] if scores[place] > 0]

    def _score(self, words: set[str], counts: Counter[str]) -> float:
        length = 1.2 * (0.25 + 0.75 * counts.total() / self._mean)
        return sum(self._weight(word) * counts[word] * 2.2 / (counts[word] + length) for word in words & counts.keys())

    def _weight(self, word: str) -> float:
        frequency = self._document_frequencies[word]
        return math.log(1 + (len(self._counts) - frequency + 0.5) / (frequency + 0.5))


def _content_words(text: str) -> list[str]:
    return [word for word in map(str.casefold, tokens(text)) if word not in FILLER_WORDS]


def message_search(folder: Path | None) -> Iterator[Row]:
    if folder is None:
        return
    for name in _COLLECTIONS:
        conversations = _conversations(_lines(folder, f"{name}_docs"))
        questions = list(_questions(_lines(folder, f"{name}_queries"), conversations))
        yield from _recall(name, questions)
        yield _typos(name, questions)
        yield _false_alarms(name, questions, list(conversations.values()))


def _recall(name: str, questions: list[Question]) -> Iterator[Row]:
    def recall(method: Callable[[Conversation, str], list[int]]) -> float:
        return fmean(
            len(question.answers.intersection(method(question.conversation, question.query))) / len(question.answers)
            for question in questions
        )

    weftline, bm25 = recall(Conversation.weftline), recall(Conversation.by_bm25)
    whole = recall(Conversation.by_whole_text)
    yield _row(f"{name}.recall_vs_bm25", weftline, bm25, "recall@10", "BM25's", met=weftline >= bm25)
    yield _row(f"{name}.recall_vs_rapidfuzz", weftline, whole, "recall@10", "RapidFuzz's", met=weftline >= whole)


def _typos(name: str, questions: list[Question]) -> Row:
    """Search for a message by two of its words, both misspelt."""
    rng = random.Random(7)  # noqa: S311 - the same typos in every run
    typos = [typo for question in questions if (typo := _misspelt(question, rng))]
    weftline = fmean(min(typo.answers) in typo.conversation.weftline(typo.query) for typo in typos)
    bm25 = fmean(min(typo.answers) in typo.conversation.by_bm25(typo.query) for typo in typos)
    target = f">= {_MIN_TYPOS_FOUND}"
    return _row(f"{name}.typos_found", weftline, bm25, "share in the top 10", target, met=weftline >= _MIN_TYPOS_FOUND)


def _misspelt(question: Question, rng: random.Random) -> Question | None:
    place = min(question.answers)
    words = sorted(
        {
            word
            for word in _content_words(question.conversation.turn_texts[place])
            if word.isalpha() and len(word) >= _MIN_LETTERS
        }
    )
    if len(words) < 2:
        return None
    query = " ".join(_with_typo(word, rng) for word in rng.sample(words, 2))
    return Question(question.conversation, query, {place})


def _with_typo(word: str, rng: random.Random) -> str:
    at = rng.randrange(1, len(word) - 1)
    if rng.random() < 0.5:
        return word[:at] + word[at + 1 :]
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def _false_alarms(name: str, questions: list[Question], conversations: list[Conversation]) -> Row:
    """Search the next conversation of the set for the answer to a question that only this one can answer."""

    def alarms(method: Callable[[Conversation, str], list[int]]) -> float:
        others = dict(zip(map(id, conversations), conversations[1:] + conversations[:1], strict=True))
        return fmean(bool(method(others[id(question.conversation)], question.query)) for question in questions)

    weftline, whole = alarms(Conversation.weftline), alarms(Conversation.by_whole_text)
    return _row(
        f"{name}.false_alarms", weftline, whole, "share with any result", "below RapidFuzz's", met=weftline < whole
    )


def _row(name: str, value: float, baseline: float, unit: str, target: str, *, met: bool) -> Row:
    return Row(f"message_search.{name}", round(value, 4), unit, round(baseline, 4), target, met)


def _lines(folder: Path, name: str) -> list[dict[str, Any]]:
    with (folder / "conv_retrieval" / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _conversations(turns: list[dict[str, Any]]) -> dict[str, Conversation]:
    grouped: dict[str, list[dict[str, Any]]] = {}
    for turn in turns:
        grouped.setdefault(turn["conv"], []).append(turn)
    return {name: _conversation(members) for name, members in grouped.items()}


def _conversation(turns: list[dict[str, Any]]) -> Conversation:
    turn_texts = [turn["text"] for turn in turns]
    # Message search includes the sender.
    texts = [f"{turn['speaker']} {turn['text']}" for turn in turns]
    index = MessageIndex()
    for place, text in enumerate(texts):
        index.add(place, text, "")
    return Conversation({turn["id"]: place for place, turn in enumerate(turns)}, turn_texts, texts, index, Bm25(texts))


def _questions(queries: list[dict[str, Any]], conversations: dict[str, Conversation]) -> Iterator[Question]:
    for query in queries:
        conversation = conversations[query["conv"]]
        answers = {conversation.places[turn] for turn in query["gold_ids"] if turn in conversation.places}
        if answers and query["category"] != "adversarial":
            yield Question(conversation, query["query"], answers)
