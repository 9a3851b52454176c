"""Efficiency of prompts that Weftline assembled, for the default threshold of alerts.

An agent asks question after question about a conversation (LoCoMo, bfcl_memory) or about documents (QMSum), and reports
the answer of the set to each prompt; every other short answer restates its question. ``assembled`` are prompts within a
budget: what an alert must not call inefficient. ``everything`` are prompts with the whole conversation or document.

As an alert does, the useful share of the last calls is taken together. Conversations and documents are divided into two
halves: ``threshold`` is the largest step at which few windows of assembled prompts of the development half are below,
and both halves show what it and the default of the product do.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from evals.assembly_sets import lines_of, sample, turns_retrieved
from evals.efficiency_cases import first_answer, restated
from evals.efficiency_fit import is_development
from evals.product import CachedEmbedder, open_product
from evals.results import Row
from weftline.prompts.efficiency import text_parts
from weftline.state.agent_context.settings import DEFAULT_CALLS, DEFAULT_EFFICIENCY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from evals.product import Product

_MODEL = "gpt-4o"
# Questions of a conversation, and documents.
_QUESTIONS, _DOCUMENTS = 24, 7
_BUDGETS = (4_000,)
_EVERYTHING = "everything"
_BETWEEN_CALLS = timedelta(seconds=20)
_HALVES = ("development", "held_out")
_QUANTILES = (0.05, 0.5, 0.95)
_DIGITS = 4
# Set before anything was measured: windows of assembled prompts that may be called inefficient, and windows of prompts
# with everything that must be.
_MAX_FALSE, _MIN_FOUND = 0.05, 0.8
_STEP = 0.005


class Asked(NamedTuple):
    """A question and its answer."""

    task: str
    answer: str


class Source(NamedTuple):
    """A conversation or document as texts, and the questions about it."""

    set_name: str
    name: str
    texts: tuple[str, ...]
    questions: list[Asked]
    is_document: bool = False


class MeasuredCall(NamedTuple):
    """Tokens of a call. ``kind``: the budget of its prompt, or everything."""

    set_name: str
    kind: str
    half: str
    useful: int
    sent: int


def efficiency_alerts(folder: Path | None) -> Iterator[Row]:
    if folder is None:
        return
    calls = asyncio.run(_measure([*_conversations(folder), *_documents(folder)]))
    windows = {
        kind_and_half: list(_windows([call for call in calls if (call.kind, call.half) == kind_and_half]))
        for kind_and_half in dict.fromkeys((call.kind, call.half) for call in calls)
    }
    for (kind, half), shares in windows.items():
        yield from _quantiles(f"{kind}.{half}", shares)
    fitted = _threshold(windows)
    yield _row("threshold", fitted, f"largest step with at most {_MAX_FALSE} of windows below")
    for half in _HALVES:
        good = [share for budget in _BUDGETS for share in windows[str(budget), half]]
        yield from _judged(half, good, windows[_EVERYTHING, half], DEFAULT_EFFICIENCY)
        yield from _judged(f"{half}.fitted", good, windows[_EVERYTHING, half], fitted)


def _conversations(folder: Path) -> Iterator[Source]:
    for name in ("locomo", "bfcl_memory"):
        turns = turns_retrieved(folder, name).conversations
        for conversation, said in turns.items():
            lines = [
                line
                for line in lines_of(folder, f"conv_retrieval/{name}_queries")
                if line["conv"] == conversation and line["category"] != "adversarial" and line["answer"]
            ]
            texts = tuple(f"{turn.speaker}: {turn.text}" for turn in said)
            yield Source(name, conversation, texts, _asked(sample(lines, _QUESTIONS)))


def _documents(folder: Path) -> Iterator[Source]:
    lines = lines_of(folder, "chunking/qmsum_docs")
    for line in sample(lines, _DOCUMENTS):  # type: ignore[type-var]
        own = [each for each in lines_of(folder, "chunking/qmsum_queries") if each["doc_id"] == line["doc_id"]]
        questions = [Asked(each["query"], each["answer"]) for each in own]
        yield Source("qmsum", line["doc_id"], (line["text"],), questions, is_document=True)


def _asked(lines: Sequence[dict[str, str]]) -> list[Asked]:
    answers = [first_answer(line["answer"]) for line in lines]
    return [
        Asked(line["query"], restated(line["query"], answer) if number % 2 else answer)
        for number, (line, answer) in enumerate(zip(lines, answers, strict=True))
    ]


async def _measure(sources: Sequence[Source]) -> list[MeasuredCall]:
    calls: list[MeasuredCall] = []
    async with open_product(CachedEmbedder()) as product:
        for number, source in enumerate(sources):
            for budget in (*_BUDGETS, None):
                calls += await _of_source(product, source, f"s{number}-{budget}", budget)
    return calls


async def _of_source(product: Product, source: Source, session_id: str, budget: int | None) -> list[MeasuredCall]:
    """Ask all questions about a source, in one session."""
    domains = await _add(product, source, session_id, has_budget=budget is not None)
    half = "development" if is_development(source.name) else "held_out"
    calls = []
    for question in source.questions:
        # Calls of the same moment have no order.
        product.clock.at += _BETWEEN_CALLS
        prompt = await product.call(
            "context.assemble",
            session_id=session_id,
            task_description=question.task,
            model=_MODEL,
            token_budget=budget,
            domains=domains,
        )
        reported = await product.call(
            "context.emit_metrics",
            session_id=session_id,
            receipt_id=prompt["receipt_id"],
            usage={"prompt_tokens": prompt["tokens"], "completion_tokens": 50},
            answer=question.answer,
        )
        used = reported["efficiency"]
        sent = used["sent_tokens"] - used["overhead_tokens"]
        calls.append(MeasuredCall(source.set_name, str(budget or _EVERYTHING), half, used["useful_tokens"], sent))
    return calls


async def _add(product: Product, source: Source, session_id: str, *, has_budget: bool) -> list[str]:
    """Add a source as events of the window, a document as a domain if passages of it are to be found."""
    await product.call("session.create", session_id=session_id, purpose="An evaluation.")
    if source.is_document and has_budget:
        await product.add_documents(session_id, source.texts)
        await product.index()
        return [session_id]
    texts = [part for text in source.texts for part in text_parts(text)] if source.is_document else source.texts
    events = [{"event_id": f"e{number}", "content": text} for number, text in enumerate(texts)]
    await product.ingest(session_id, events)
    await product.index()
    return []


def _windows(calls: Sequence[MeasuredCall]) -> Iterator[float]:
    """Yield the useful share of each run of calls of one set, as many as an alert looks at."""
    for _, group in groupby(calls, key=lambda call: call.set_name):
        own = [*group]
        for start in range(len(own) - DEFAULT_CALLS + 1):
            window = own[start : start + DEFAULT_CALLS]
            yield sum(call.useful for call in window) / sum(call.sent for call in window)


def _judged(name: str, assembled: Sequence[float], everything: Sequence[float], least: float) -> Iterator[Row]:
    """Yield how many windows a threshold calls inefficient."""
    unit = f"of windows below {least:g}"
    false, found = (float(np.mean(np.array(shares) < least)) for shares in (assembled, everything))
    yield _row(f"{name}.assembled_low", false, unit, f"<= {_MAX_FALSE}", met=false <= _MAX_FALSE)
    yield _row(f"{name}.everything_low", found, unit, f">= {_MIN_FOUND}", met=found >= _MIN_FOUND)


def _threshold(windows: dict[tuple[str, str], list[float]]) -> float:
    good = np.array([share for budget in _BUDGETS for share in windows[str(budget), "development"]])
    steps = np.arange(_STEP, 1, _STEP)
    return float(max([step for step in steps if np.mean(good < step) <= _MAX_FALSE], default=0.0))


def _quantiles(name: str, shares: Sequence[float]) -> Iterator[Row]:
    for quantile, value in zip(_QUANTILES, np.quantile(shares, _QUANTILES).tolist(), strict=True):
        yield _row(f"{name}.p{quantile * 100:02.0f}", value, f"of tokens, {len(shares)} windows")


def _row(name: str, value: float, unit: str, target: str | None = None, *, met: bool | None = None) -> Row:
    return Row(f"efficiency_alerts.{name}", round(value, _DIGITS), unit, None, target, met)
