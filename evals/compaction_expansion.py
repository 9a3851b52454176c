"""Expansion on demand: what a prompt of a compacted window has, with the passages that assembly brings back.

Each conversation is ingested as an agent's window and compacted to 40 % of its tokens by the default strategy, without
a model. Then each fact is asked for: its question where there is one, else the fact itself as the task, which is not
counted as part of the prompt. A fact is retained if its probe tokens are near each other in the text, as in the
evaluation of compaction; the full text retains all of them. ``view`` is the compacted conversation alone, ``prompt``
with the passages, ``small`` the same with a budget of half the tokens of the conversation.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from evals.product import CachedEmbedder, open_product
from evals.results import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from evals.product import Product

_TARGET = 0.4
_NEEDED = 0.99
_MODEL = "gpt-5.6"
_DIGITS = 3
# Conversations, one of so many, and facts of each set.
_STEPS = {"ami": 6, "locomo": 1, "bfcl_memory": 1}
_FACTS = 200
_SMALL = 0.5


class Fact(NamedTuple):
    """A fact of a conversation, with the task that asks for it."""

    conversation: str
    task: str
    probe: dict[str, Any]


@dataclass
class Scores:
    """Whether each fact is retained, and the tokens of the prompts as a share of the conversation."""

    view: list[bool] = field(default_factory=list)
    prompt: list[bool] = field(default_factory=list)
    small: list[bool] = field(default_factory=list)
    view_share: list[float] = field(default_factory=list)
    prompt_share: list[float] = field(default_factory=list)
    small_share: list[float] = field(default_factory=list)


def compaction_expansion(folder: Path | None) -> Iterator[Row]:
    if folder is None:
        return
    retained = _scorer(folder)
    for name in _STEPS:
        yield from _rows(name, asyncio.run(_measure(folder, name, retained)))


def _scorer(folder: Path) -> Callable[[str, dict[str, Any]], bool]:
    """Return the score of the evaluation data: whether a text retains a fact."""
    spec = importlib.util.spec_from_file_location("score_facts", folder / "score_facts.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(folder / "score_facts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.retained  # type: ignore[no-any-return]


async def _measure(folder: Path, name: str, retained: Callable[[str, dict[str, Any]], bool]) -> Scores:
    conversations = {
        each["conv"]: each["messages"] for each in _lines(folder, f"{name}_conversations")[:: _STEPS[name]]
    }
    facts = _spread([fact for fact in _facts(folder, name) if fact.conversation in conversations])
    scores = Scores()
    async with open_product(CachedEmbedder()) as product:
        for session, messages in conversations.items():
            await _add(product, session, messages)
        await product.index()
        for session in conversations:
            asked = [fact for fact in facts if fact.conversation == session]
            await _ask_all(product, session, asked, retained, scores)
    return scores


def _facts(folder: Path, name: str) -> list[Fact]:
    return [
        Fact(each["conv"], each.get("question") or each["fact"], each)
        for each in _lines(folder, f"{name}_facts")
        if each["strict"]
    ]


def _spread(facts: Sequence[Fact]) -> list[Fact]:
    """Return at most as many facts as are asked for, evenly spread over all."""
    if len(facts) <= _FACTS:
        return list(facts)
    return [facts[place * len(facts) // _FACTS] for place in range(_FACTS)]


async def _add(product: Product, session: str, messages: Sequence[dict[str, Any]]) -> None:
    await product.call("session.create", session_id=session, purpose="An evaluation.")
    events = [
        {"event_id": f"e{number}", "content": each["text"], "name": each["speaker"]}
        for number, each in enumerate(messages)
        if each["text"].strip()
    ]
    await product.ingest(session, events)


async def _ask_all(
    product: Product,
    session: str,
    facts: Sequence[Fact],
    retained: Callable[[str, dict[str, Any]], bool],
    scores: Scores,
) -> None:
    if not facts:
        return
    whole = (await _assemble(product, session, facts[0].task))["blocks"]
    full = sum(block["tokens"] for block in whole if block["kind"] == "conversation")
    done = await product.call("context.compact", session_id=session, target=_TARGET, keep_recent=1, wait_seconds=30)
    # Where nothing would be saved, the conversation stays as it is, and so do its facts.
    if done["state"] not in {"applied", "skipped"}:
        raise RuntimeError(f"The compaction is {done['state']}.")
    for fact in facts:
        answer = await _assemble(product, session, fact.task)
        small = await _assemble(product, session, fact.task, token_budget=int(full * _SMALL))
        kinds = {block["kind"]: block["tokens"] for block in answer["blocks"]}
        compacted = kinds.get("conversation", 0) + kinds.get("summary", 0)
        scores.view.append(retained(_text(answer, passages=False), fact.probe))
        scores.prompt.append(retained(_text(answer), fact.probe))
        scores.small.append(retained(_text(small), fact.probe))
        scores.view_share.append(compacted / full)
        scores.prompt_share.append((compacted + kinds.get("retrieved", 0)) / full)
        scores.small_share.append(small["tokens"] / full)


async def _assemble(product: Product, session: str, task: str, **options: Any) -> Any:  # noqa: ANN401 - JSON
    return await product.call(
        "context.assemble",
        session_id=session,
        task_description=task,
        model=_MODEL,
        domains=[],
        fresh=True,
        **options,
    )


def _text(answer: Any, *, passages: bool = True) -> str:  # noqa: ANN401 - JSON
    """Return the text of a prompt without its layers and its task, and without passages if so asked."""
    messages = answer["body"]["messages"][1:-1]
    return "\n".join(
        f"{message.get('name') or ''}: {message.get('content', '')}"
        for message in messages
        if passages or 'source="found for the task"' not in message.get("content", "")
    )


def _rows(name: str, scores: Scores) -> Iterator[Row]:
    facts = f"of {len(scores.prompt)} facts"
    for part, found, share, needed in (
        ("view", scores.view, scores.view_share, None),
        ("prompt", scores.prompt, scores.prompt_share, _NEEDED),
        ("small", scores.small, scores.small_share, None),
    ):
        value = round(fmean(found), _DIGITS)
        unit = f"{facts}, in {fmean(share):.2f} of the tokens"
        target, met = (None, None) if needed is None else (f">= {needed}", value >= needed)
        yield Row(f"compaction_expansion.{name}.{part}", value, unit, 1.0, target, met)


def _lines(folder: Path, name: str) -> list[dict[str, Any]]:
    with (folder / "compaction" / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
