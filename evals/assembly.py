"""Quality of assembled prompts: how much of the gold evidence is in them, at token budgets.

Conversations are ingested as events of an agent's window, documents added to a knowledge domain, and each question is
assembled by the product. ``whole`` is the share of questions whose evidence is completely in the prompt, as text.
Compared, in the same run: the last turns or lines that fit, and the results of plain search, best first, that fit.
The full context has all evidence: the naive baseline of the receipts, and the whole document of the question.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import fmean
from typing import TYPE_CHECKING, Any

from evals.assembly_sets import SETS, sample, sessions_of
from evals.product import CachedEmbedder, open_product
from evals.results import Row
from weftline.providers.tokenizers import TokenizerRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from evals.assembly_sets import AssemblySet, GoldQuestion
    from evals.product import Product

_BUDGETS = (1_000, 2_000, 4_000, 8_000)
_QUESTIONS = 100
_MODEL = "gpt-5.6"
_DIGITS = 3
_BARS = "▁▂▃▄▅▆▇█"
# Share of the tokens of the full context that a prompt may have, and of the evidence that it must have.
_TARGETS = {"locomo": (0.1, 0.9)}
_TARGET = (0.4, 0.95)
# What a message costs besides its text.
_MESSAGE_TOKENS = 4
_MARKS = re.compile(r"</?weftline:data[^>]*>\n?")


@dataclass
class Score:
    """Evidence in the prompts of one method at one budget."""

    shares: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def add(self, question: GoldQuestion, prompt: str, tokens: int) -> None:
        text = _normalised(prompt)
        self.shares.append(fmean(_normalised(each) in text for each in question.evidence))
        self.tokens.append(tokens)

    @property
    def whole(self) -> float:
        return fmean(share == 1 for share in self.shares)

    @property
    def share(self) -> float:
        return fmean(self.shares)


@dataclass
class SetScores:
    """Scores of one set: by method and budget, and at the share of the full context that its target names.

    ``marks`` are the tokens of each prompt that mark text of others as data.
    """

    name: str
    methods: dict[str, dict[int, Score]]
    at_target: Score = field(default_factory=Score)
    full: list[int] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)


def assembly(folder: Path | None) -> Iterator[Row]:
    if folder is None:
        return
    found = [asyncio.run(_measure(SETS[name](folder))) for name in SETS]
    print(_table(found))
    for each in found:
        yield from _rows(each)


async def _measure(each: AssemblySet) -> SetScores:
    count = TokenizerRegistry().named("o200k_base")
    methods = {name: {budget: Score() for budget in _BUDGETS} for name in ("weftline", "top_k", "truncated")}
    scores = SetScores(each.name, methods)
    async with open_product(CachedEmbedder()) as product:
        await _add(product, each)
        for question in sample(each.questions, _QUESTIONS):
            await _ask(product, each, question, scores, count)
    return scores


async def _add(product: Product, each: AssemblySet) -> None:
    for name in (*each.conversations, *each.documents):
        await product.call("session.create", session_id=name, purpose="An evaluation.")
    for name, turns in each.conversations.items():
        for session in sessions_of(turns):
            product.clock.at = session[0].at
            events = [
                {"event_id": turn.turn_id.replace("/", "."), "content": turn.text, "name": turn.speaker}
                for turn in session
            ]
            await product.ingest(name, events)
    for name, text in each.documents.items():
        await product.add_documents(name.lower(), [text])
    await product.index()
    product.clock.at += timedelta(days=1)


async def _ask(
    product: Product, each: AssemblySet, question: GoldQuestion, scores: SetScores, count: Callable[[str], int]
) -> None:
    results = await _search(product, each, question)
    parts = _parts(each, question)
    task = count(question.task) + _MESSAGE_TOKENS
    for budget in _BUDGETS:
        answer = await _assemble(product, each, question, budget)
        scores.methods["weftline"][budget].add(question, _prompt(answer), answer["tokens"])
        scores.marks.append(_mark_tokens(answer, count))
        for name, texts in (("top_k", results), ("truncated", reversed(parts))):
            prompt = "\n".join(_fitting(texts, budget - task, count))
            scores.methods[name][budget].add(question, prompt, count(prompt) + task)
    whole = answer["savings"]["naive_baseline_tokens"]
    if each.documents:
        whole += count(each.documents[question.source])
    scores.full.append(whole)
    answer = await _assemble(product, each, question, int(whole * _target_of(each.name)[0]))
    scores.at_target.add(question, _prompt(answer), answer["tokens"])


async def _assemble(product: Product, each: AssemblySet, question: GoldQuestion, budget: int) -> Any:  # noqa: ANN401 - JSON
    return await product.call(
        "context.assemble",
        session_id=question.source,
        task_description=question.task,
        token_budget=budget,
        model=_MODEL,
        domains=_domains(each, question),
        fresh=True,
    )


async def _search(product: Product, each: AssemblySet, question: GoldQuestion) -> list[str]:
    """Return the results of plain search, best first, as a caller would write them into a prompt."""
    scope = {"domains": domains} if (domains := _domains(each, question)) else {"sources": ["event"]}
    answer = await product.call(
        "search.query", query=question.task, session_id=question.source, top_k=100, low_confidence=True, **scope
    )
    return [f"{found.get('speaker') or ''}: {found['text']}" for found in answer["results"]]


def _domains(each: AssemblySet, question: GoldQuestion) -> list[str]:
    return [question.source.lower()] if each.documents else []


def _parts(each: AssemblySet, question: GoldQuestion) -> list[str]:
    """Return the whole context in parts: turns, or lines of the document."""
    if each.documents:
        return each.documents[question.source].splitlines()
    return [f"{turn.speaker}: {turn.text}" for turn in each.conversations[question.source]]


def _fitting(texts: Iterable[str], room: int, count: Callable[[str], int]) -> Iterator[str]:
    """Yield texts until one does not fit."""
    for text in texts:
        room -= count(text) + 1
        if room < 0:
            return
        yield text


def _prompt(answer: Any) -> str:  # noqa: ANN401 - JSON
    """Return the text of a prompt without its task."""
    return "\n".join(message["content"] for message in answer["body"]["messages"][:-1])


def _mark_tokens(answer: Any, count: Callable[[str], int]) -> int:  # noqa: ANN401 - JSON
    """Return the tokens that the tags of data elements take in a prompt."""
    texts = [message["content"] for message in answer["body"]["messages"]]
    return sum(count(text) - count(_MARKS.sub("", text)) for text in texts)


def _normalised(text: str) -> str:
    return " ".join(text.split())


def _target_of(name: str) -> tuple[float, float]:
    return _TARGETS.get(name, _TARGET)


def _rows(scores: SetScores) -> Iterator[Row]:
    for budget in _BUDGETS:
        ours, plain = scores.methods["weftline"][budget], scores.methods["top_k"][budget]
        yield _row(f"{scores.name}.whole_in_{budget}", ours.whole, "questions; baseline: top-k", plain.whole)
        yield _row(f"{scores.name}.share_in_{budget}", ours.share, "of evidence; baseline: top-k", plain.share)
        last = scores.methods["truncated"][budget]
        yield _row(f"{scores.name}.truncated_in_{budget}", last.whole, "questions, last turns only", None)
    tokens, needed = _target_of(scores.name)
    saved = 1 - sum(scores.at_target.tokens) / sum(scores.full)
    share = sum(scores.marks) / sum(sum(each.tokens) for each in scores.methods["weftline"].values())
    yield _row(f"{scores.name}.mark_tokens", fmean(scores.marks), f"a prompt, {share:.2%} of its tokens", None)
    yield _row(f"{scores.name}.saved", saved, "of the full context", None, 1 - tokens)
    yield _row(f"{scores.name}.whole_at_target", scores.at_target.whole, "questions", 1.0, needed)
    yield _row(f"{scores.name}.share_at_target", scores.at_target.share, "of evidence", 1.0, needed)


def _row(name: str, value: float, unit: str, baseline: float | None, needed: float | None = None) -> Row:
    value, baseline = round(value, _DIGITS), None if baseline is None else round(baseline, _DIGITS)
    target = None if needed is None else f">= {round(needed, _DIGITS)}"
    return Row(f"assembly.{name}", value, unit, baseline, target, None if needed is None else value >= needed)


def _table(found: Sequence[SetScores]) -> str:
    """Return whole evidence / mean share by budget, with a curve of the first."""
    lines = [f"{'questions with whole evidence / mean share':<28}" + "".join(f"{budget:>16,}" for budget in _BUDGETS)]
    for scores in found:
        full = round(fmean(scores.full))
        lines.append(f"{scores.name}: {len(scores.full)} questions, full context {full:,} tokens")
        for method, by_budget in scores.methods.items():
            cells = "".join(f"{each.whole:>9.3f} / {each.share:.2f}" for each in by_budget.values())
            lines.append(f"  {method:<12}{_curve([each.whole for each in by_budget.values()]):<16}{cells}")
        at, tokens = scores.at_target, round(fmean(scores.at_target.tokens))
        lines.append(f"  at {tokens:,} tokens: {at.whole:.3f} / {at.share:.3f}")
    return "\n".join(lines) + "\n"


def _curve(values: Sequence[float]) -> str:
    return "".join(_BARS[min(int(value * len(_BARS)), len(_BARS) - 1)] for value in values)
