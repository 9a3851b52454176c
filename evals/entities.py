"""Quality of entities and references: precision and recall by type, references that are resolved rightly and wrongly.

The texts and dialogues are our own, in data/: 80 texts of many kinds with their entities, 30 of them held out while the
rules were written; 80 dialogues, 20 of them held out, each with a question and what it refers to, some to nothing.
Their messages together are one session for recall. Public questions, which refer to nothing before them, show how often
a reference is seen where there is none.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from evals.results import Row
from evals.retrieval_runs import runs_over
from evals.retrieval_sets import Corpus
from evals.vector_cache import VectorCache
from weftline.indexing.collections import SESSIONS
from weftline.indexing.entities import extract_entities
from weftline.kernel.clock import to_micros
from weftline.search.model import Query
from weftline.search.ranking import score_views
from weftline.search.references import RecentItem, expanded_query, may_refer, resolve_references
from weftline.search.selection import select_results
from weftline.search.session_cursor import IndexItem
from weftline.search.session_item_text import ItemText, chunks_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evals.retrieval_runs import Answer
    from weftline.search.model import Floats, View

_DATA = Path(__file__).parent / "data"
# A Tuesday.
_SAID_AT = to_micros(datetime(2025, 4, 15, 12, tzinfo=UTC))
_MIN_PRECISION, _MIN_RECALL = 0.95, 0.85
_MIN_RIGHT, _MAX_WRONG = 0.9, 0.02
_MAX_MICROSECONDS = 300
_REPETITIONS = 200
_SECOND_MICROS = 1_000_000
_BEST = 5
_PUBLIC_QUESTIONS = (
    "conv_retrieval/locomo",
    "conv_retrieval/bfcl_memory",
    "doc_retrieval/scifact",
    "tools/metatool",
    "tools/bfcl_live",
    "chunking/qmsum",
)


def entities(folder: Path | None) -> Iterator[Row]:
    texts, dialogues = _lines(_DATA / "entity_texts.jsonl"), _lines(_DATA / "reference_dialogues.jsonl")
    yield from _extraction(texts)
    yield _cost([text for text in texts if not text["entities"] or len(text["entities"]) > 1])
    yield from _references(dialogues)
    yield from _recall(dialogues)
    if folder is not None:
        yield _public(folder, dialogues)
        yield _lift(runs_over(folder).answers("locomo"))


def _extraction(texts: Sequence[dict[str, Any]]) -> Iterator[Row]:
    counts = [_counts(text) for text in texts]
    held_out = [each for text, each in zip(texts, counts, strict=True) if text.get("held_out")]
    for name, chosen in (("all", counts), ("held_out", held_out)):
        yield from _precision_and_recall(name, sum(chosen, Counter()))
    total = sum(counts, Counter[tuple[str, str]]())
    for kind in sorted({kind for _, kind in total} - {""}):
        of_kind = Counter({(outcome, ""): number for (outcome, each), number in total.items() if each == kind})
        yield from _precision_and_recall(kind, of_kind)


def _counts(text: dict[str, Any]) -> Counter[tuple[str, str]]:
    """Count right, wrong and missed entities of a text, by type and in total."""
    found = {entity.key for entity in extract_entities(text["text"], timestamp=_SAID_AT)}
    expected = {_key(entity) for entity in text["entities"]}
    counts: Counter[tuple[str, str]] = Counter()
    for outcome, keys in (("right", found & expected), ("wrong", found - expected), ("missed", expected - found)):
        counts[outcome, ""] += len(keys)
        counts.update((outcome, key.partition(":")[0]) for key in keys)
    return counts


def _key(entity: str) -> str:
    kind, _, value = entity.partition(":")
    return f"{kind}:{value.casefold()}"


def _precision_and_recall(name: str, counts: Counter[tuple[str, str]]) -> Iterator[Row]:
    right = counts["right", ""]
    precision = right / max(right + counts["wrong", ""], 1)
    recall = right / max(right + counts["missed", ""], 1)
    is_total = name in {"all", "held_out"}
    for measure, value, target in (("precision", precision, _MIN_PRECISION), ("recall", recall, _MIN_RECALL)):
        wanted = f">= {target}" if is_total else None
        yield Row(f"entities.{name}.{measure}", value, "share", None, wanted, value >= target if is_total else None)


def _cost(texts: Sequence[dict[str, Any]]) -> Row:
    """Measure the CPU time of extraction for a short message."""
    started = time.process_time()
    for _ in range(_REPETITIONS):
        for text in texts:
            extract_entities(text["text"], speaker="human:ada", timestamp=_SAID_AT)
    microseconds = (time.process_time() - started) / (_REPETITIONS * len(texts)) * 1e6
    return Row("entities.cost", microseconds, "µs a message", None, "< 300", microseconds < _MAX_MICROSECONDS)


def _references(dialogues: Sequence[dict[str, Any]]) -> Iterator[Row]:
    held_out = [each for each in dialogues if each.get("held_out")]
    for name, chosen in (("references", dialogues), ("references_held_out", held_out)):
        resolved = [(each["expects"], _resolved(each)) for each in chosen]
        right = fmean(found == expected for expected, found in resolved if expected)
        wrong = fmean(bool(found) and found != expected for expected, found in resolved)
        yield Row(f"entities.{name}.right", right, "share", None, f">= {_MIN_RIGHT}", right >= _MIN_RIGHT)
        yield Row(f"entities.{name}.wrong", wrong, "share", None, f"<= {_MAX_WRONG}", wrong <= _MAX_WRONG)


def _resolved(dialogue: dict[str, Any]) -> list[str]:
    question = dialogue["question"]
    found = resolve_references(question, _recent(dialogue), "me") if may_refer(question) else []
    return [reference.value for reference in found]


def _recent(dialogue: dict[str, Any]) -> list[RecentItem]:
    items = [
        RecentItem(str(number), message["speaker"], message["text"], _SAID_AT + number * _SECOND_MICROS)
        for number, message in enumerate(dialogue["messages"])
    ]
    return items[::-1]


def _recall(dialogues: Sequence[dict[str, Any]]) -> Iterator[Row]:
    """Search all dialogues as one session, by the question alone and with what its references stand for."""
    corpus, answers = Corpus(SESSIONS), []
    for dialogue in dialogues:
        if dialogue.get("answer") is not None:
            answers.append((dialogue, len(corpus.chunks) + dialogue["answer"]))
        for message in dialogue["messages"]:
            item = IndexItem("message", "s", str(len(corpus.chunks) + 1))
            text = ItemText(text=message["text"], version=1, timestamp=_SAID_AT, speaker=message["speaker"])
            corpus.add(item.item, chunks_of(item, text))
    vectors = VectorCache()
    view = corpus.open(vectors)

    async def run() -> tuple[list[bool], list[bool]]:
        plain, expanded = [], []
        for dialogue, place in answers:
            question = dialogue["question"]
            references = resolve_references(question, _recent(dialogue), "me")
            plain.append(await _finds(question, place, view, vectors))
            expanded.append(await _finds(expanded_query(question, references), place, view, vectors))
        return plain, expanded

    plain, expanded = asyncio.run(run())
    value, baseline = fmean(expanded), fmean(plain)
    yield Row("entities.references.recall", value, "recall@5", baseline, "above without", value > baseline)


async def _finds(question: str, place: int, view: View, vectors: VectorCache) -> bool:
    async def embed(texts: Sequence[str]) -> Floats:
        return vectors.of(texts)

    query = Query(text=question, asked_at=_SAID_AT, top_k=_BEST)
    ranking = select_results(query, [view], await score_views(query, [view], embed))
    return place + 1 in [ranked.number for ranked in ranking.ranked[:_BEST]]


def _public(folder: Path, dialogues: Sequence[dict[str, Any]]) -> Row:
    """Ask public questions, which stand alone, after dialogues in turn: whatever is resolved is wrong."""
    questions = [line["query"] for name in _PUBLIC_QUESTIONS for line in _lines(folder / f"{name}_queries.jsonl")]
    wrong = fmean(
        bool(_resolved({**dialogues[number % len(dialogues)], "question": question}))
        for number, question in enumerate(questions)
    )
    return Row("entities.references.wrong_public", wrong, "share", None, "<= 0.001", wrong <= 0.001)


def _lift(answers: Sequence[Answer]) -> Row:
    """Compare recall on LoCoMo with and without the bonus for the entities of a question."""
    value = fmean(answer.recall(answer.best(answer.total)) for answer in answers)
    baseline = fmean(answer.recall(answer.best(answer.without(("entities",)))) for answer in answers)
    return Row("entities.locomo", value, "recall@10", baseline, ">= without", value >= baseline)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
