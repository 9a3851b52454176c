"""What a search answer costs an agent: tokens of the JSON over MCP, and what it still contains.

A LoCoMo conversation is added as messages of a session, and an agent of the session searches it, with defaults.
Answerable questions are about the conversation; unanswerable ones were asked about other conversations, adversarial
ones seem to be about this one. ``evidence`` is the share of the gold turns that an answer contains as text.
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from evals.assembly_sets import sample, turns_retrieved
from evals.product import CachedEmbedder, open_product
from evals.results import Row
from weftline.providers.tokenizers import TokenizerRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from evals.assembly_sets import GoldQuestion, Turn
    from evals.product import Product

_SET, _CONVERSATION = "locomo", "conv-26"
_QUESTIONS = 100
_TOKENIZER = "o200k_base"
# Before answers were bounded: measured over MCP with the same defaults.
_BASELINES = {"answerable": 2_123.0, "unanswerable": 11_667.0}
_TARGETS = {"answerable": 1_000, "unanswerable": 300}
_CONTEXT_TOKENS = 2_000
_DIGITS = 3


class Kind(NamedTuple):
    """Questions of one kind."""

    name: str
    questions: Sequence[GoldQuestion]


class Answer(NamedTuple):
    """An answer with its tokens."""

    question: GoldQuestion
    found: dict[str, Any]
    tokens: int

    @property
    def evidence(self) -> float:
        texts = [result["text"] for result in self.found["results"]]
        return fmean(any(gold in text for text in texts) for gold in self.question.evidence)


def search_answers(folder: Path | None) -> Iterator[Row]:
    if folder is not None:
        yield from asyncio.run(_measure(folder))


async def _measure(folder: Path) -> list[Row]:
    count = TokenizerRegistry().named(_TOKENIZER)
    every = turns_retrieved(folder, _SET)
    rows: list[Row] = []
    async with open_product(CachedEmbedder()) as product:
        await _add(product, every.conversations[_CONVERSATION])
        for kind in _kinds(folder, every.questions):
            rows += _rows(kind, [await _ask(product, question, count) for question in kind.questions])
        rows += await _context_rows(product, _kinds(folder, every.questions)[0].questions, count)
    return rows


async def _add(product: Product, turns: Sequence[Turn]) -> None:
    """Add the conversation as messages of a session, each by an agent named like its speaker."""
    speakers = sorted({turn.speaker for turn in turns})
    for speaker in speakers:
        await product.call("agent.create", principal="admin", agent_id=speaker)
    await product.call("session.create", session_id=_CONVERSATION, purpose="An evaluation.", members=speakers)
    for turn in turns:
        product.clock.at = turn.at
        await product.call("message.add", principal=turn.speaker, session_id=_CONVERSATION, content=turn.text)
    await product.index()
    product.clock.at += timedelta(days=1)


def _kinds(folder: Path, questions: Sequence[GoldQuestion]) -> list[Kind]:
    lines = (folder / f"conv_retrieval/{_SET}_queries.jsonl").read_text("utf-8").splitlines()
    known = [json.loads(line) for line in lines]
    adversarial = [each for each in known if (each["conv"], each["category"]) == (_CONVERSATION, "adversarial")]
    asked = [question._replace(evidence=()) for question in questions if question.source != _CONVERSATION]
    return [
        Kind("answerable", sample([each for each in questions if each.source == _CONVERSATION], _QUESTIONS)),
        Kind("unanswerable", sample(asked, _QUESTIONS)),
        Kind("adversarial", [type(questions[0])(_CONVERSATION, each["query"], ()) for each in adversarial]),
    ]


async def _ask(product: Product, question: GoldQuestion, count: Callable[[str], int]) -> Answer:
    found = await product.call("search.query", query=question.task, session_id=_CONVERSATION)
    return Answer(question, found, count(msgspec.json.encode(found).decode()))


def _rows(kind: Kind, answers: Sequence[Answer]) -> Iterator[Row]:
    tokens, target = median(answer.tokens for answer in answers), _TARGETS.get(kind.name)
    met = None if target is None else tokens <= target
    limit = None if target is None else f"<= {target:,}"
    yield Row(f"search_answers.{kind.name}.tokens", tokens, "median", _BASELINES.get(kind.name), limit, met)
    unsure = fmean(answer.found.get("unsure", False) for answer in answers)
    yield Row(f"search_answers.{kind.name}.unsure", round(unsure, _DIGITS), "of questions", None, None, None)
    results = fmean(len(answer.found["results"]) for answer in answers)
    yield Row(f"search_answers.{kind.name}.results", round(results, _DIGITS), "mean", None, None, None)
    if kind.name == "answerable":
        evidence = fmean(answer.evidence for answer in answers)
        yield Row(f"search_answers.{kind.name}.evidence", round(evidence, _DIGITS), "of gold turns", None, None, None)
        text = sum(len(result["text"]) for answer in answers for result in answer.found["results"])
        whole = sum(len(msgspec.json.encode(answer.found)) for answer in answers)
        yield Row(f"search_answers.{kind.name}.text", round(text / whole, _DIGITS), "of bytes", 0.5, None, None)


async def _context_rows(product: Product, questions: Sequence[GoldQuestion], count: Callable[[str], int]) -> list[Row]:
    """Measure get_context: everything that it returns fits the budget."""
    answers = [
        await product.call(
            "search.get_context",
            query=question.task,
            session_id=_CONVERSATION,
            max_tokens=_CONTEXT_TOKENS,
            tokenizer=_TOKENIZER,
        )
        for question in questions
    ]
    most = max(count(msgspec.json.encode(answer).decode()) for answer in answers)
    evidence = fmean(
        fmean(gold in answer["context"] for gold in question.evidence)
        for question, answer in zip(questions, answers, strict=True)
    )
    limit = f"<= {_CONTEXT_TOKENS:,}"
    return [
        Row("search_answers.get_context.tokens", most, "most", None, limit, most <= _CONTEXT_TOKENS),
        Row("search_answers.get_context.evidence", round(evidence, _DIGITS), "of gold turns", None, None, None),
    ]
