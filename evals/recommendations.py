"""Trials of settings against gold evidence: is what a trial calls safe really safe, and how often does it warn?

Conversations are ingested as windows, and questions with known evidence asked about them; the answers of the set are
reported, so that Weft computes which items they used. Then settings are tried on these calls: those that Weft
recommends, and a grid of compactions, minimum scores and documents or turns to leave out. A setting loses gold evidence
if a prompt that had it does not have it in the replay. ``safe`` must never lose any; ``warned`` is the share of the
settings that lose some which are not called safe, ``needless`` the share of all others that are not called safe.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from evals.product import AGENT, CachedEmbedder, open_product
from evals.results import Row
from weft.capabilities.agent_context.compaction_settings import CompactionSettings, ResolvedCompaction
from weft.capabilities.compaction.compactor import Compactor
from weft.capabilities.language_models.catalog import load_catalog
from weft.capabilities.recommendations.compaction_replay import views_under
from weft.capabilities.recommendations.model import ProposedSettings
from weft.capabilities.recommendations.recorded_calls import ReplayStores
from weft.capabilities.recommendations.replay import Replay, ReplayServices
from weft.capabilities.recommendations.trials import try_proposal
from weft.kernel.identity import system_actor
from weft.providers.prices import PriceTable
from weft.providers.tokenizers import TokenizerRegistry
from weft.storage.sql.database import Scope

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from evals.product import Product
    from weft.capabilities.recommendations.replay import RecordedWindow

_SETS = ("locomo", "bfcl_memory")
_MODEL = "gpt-4o"
_QUESTIONS = 40
_BUDGET = 12_000
_WINDOW = 40_000
_DIGITS = 3
_TENANT = "default"


class Asked(NamedTuple):
    """A question with its answer, and the events that have its evidence."""

    conversation: str
    task: str
    answer: str
    gold: frozenset[str]


class Outcome(NamedTuple):
    """What a trial said of a setting, and what the gold evidence says."""

    is_safe: bool
    loses_gold: bool
    saved: float
    recommended: bool


def recommendations(folder: Path | None) -> Iterator[Row]:
    if folder is None:
        return
    for name in _SETS:
        outcomes, reproduced = asyncio.run(_measure(folder, name))
        yield from _rows(name, outcomes, reproduced)


def _rows(name: str, outcomes: Sequence[Outcome], reproduced: float) -> Iterator[Row]:
    safe = [each for each in outcomes if each.is_safe]
    losing = [each for each in outcomes if each.loses_gold]
    keeping = [each for each in outcomes if not each.loses_gold]
    wrong = sum(each.loses_gold for each in safe)
    yield _row(f"recommendations.{name}.reproduced", reproduced, "share", "1", met=reproduced == 1)
    yield _row(f"recommendations.{name}.safe_settings", len(safe), "settings", None)
    yield _row(f"recommendations.{name}.safe_that_lose_gold", wrong, "settings", "0", met=wrong == 0)
    yield _row(f"recommendations.{name}.recommended_safe", sum(each.recommended for each in safe), "settings", None)
    if losing:
        yield _row(f"recommendations.{name}.warned", _share(not each.is_safe for each in losing), "share", "1")
    if keeping:
        yield _row(f"recommendations.{name}.needless", _share(not each.is_safe for each in keeping), "share", None)
    if safe:
        yield _row(f"recommendations.{name}.saved_by_best", max(each.saved for each in safe), "share of tokens", None)


def _row(name: str, value: float, unit: str, target: str | None, *, met: bool | None = None) -> Row:
    return Row(name, round(value, _DIGITS), unit, None, target, met)


def _share(found: Iterator[bool]) -> float:
    values = list(found)
    return sum(values) / len(values)


async def _measure(folder: Path, name: str) -> tuple[list[Outcome], float]:
    asked = _questions(folder, name)
    async with open_product(CachedEmbedder()) as product:
        for conversation in dict.fromkeys(each.conversation for each in asked):
            await _add(product, folder, name, conversation)
        await product.index()
        gold: dict[str, frozenset[str]] = {}
        for each in asked:
            gold[await _ask(product, each)] = each.gold
        windows = await product.app.database.read(
            Scope(_TENANT),
            lambda tx: product.app._container.build(  # noqa: SLF001 - no operation shows it
                ReplayStores, system_actor(_TENANT), tx
            ).recorded(AGENT, 400),
            heavy=True,
        )
        advised = await product.call("advise.list", agent_id=AGENT, calls=200)
        return await _outcomes(
            product, windows, gold, [each["recommendation_id"] for each in advised["recommendations"]]
        )


async def _outcomes(
    product: Product, windows: Sequence[RecordedWindow], gold: dict[str, frozenset[str]], names: Sequence[str]
) -> tuple[list[Outcome], float]:
    prices = PriceTable()
    await prices.load()
    services = ReplayServices(load_catalog(), TokenizerRegistry(), prices)
    shown = [await product.call("advise.show", recommendation_id=name, calls=200) for name in names]
    proposals = [(_settings(each["proposal"]), True) for each in shown if each["trial"] and each["kind"] != "model"]
    proposals += [(each, False) for each in _grid()]
    found: list[Outcome] = []
    reproduced = 1.0
    for proposal, recommended in proposals:
        trial = (await try_proposal(windows, proposal, services, Compactor())).trial
        reproduced = trial.reproduced / trial.calls
        loses = [await _loses(window, proposal, services, gold) for window in windows]
        found.append(Outcome(trial.safe, any(loses), trial.saved_tokens / trial.tokens, recommended))
    return found, reproduced


async def _loses(
    window: RecordedWindow, proposal: ProposedSettings, services: ReplayServices, gold: dict[str, frozenset[str]]
) -> bool:
    views = None
    if proposal.compaction is not None:
        views = await views_under(window, ResolvedCompaction.of(proposal.compaction), Compactor(), services)
    was, tried = Replay(window, services).as_recorded(), Replay(window, services, proposal, views).in_sequence()
    for before, after in zip(was, tried, strict=True):
        if before.is_as_sent:
            had = gold[before.call.receipt.receipt_id] & before.call.items
            if after.plan is None or not had <= after.plan.included.keys():
                return True
    return False


def _grid() -> Iterator[ProposedSettings]:
    for strategy in ("sliding_window", "key_facts", "hierarchical", "task_scoped"):
        for threshold in (0.2, 0.35, 0.5):
            yield ProposedSettings(compaction=CompactionSettings(strategy=strategy, threshold=threshold))
    for score in range(10, 90, 5):
        yield ProposedSettings(min_score=score / 100)


def _settings(proposal: dict[str, Any]) -> ProposedSettings:

    return msgspec.convert(proposal, ProposedSettings)


async def _add(product: Product, folder: Path, name: str, conversation: str) -> None:
    await product.call("session.create", session_id=conversation, purpose="An evaluation.")
    await product.call("window.create", session_id=conversation, model=_MODEL, model_max_tokens=_WINDOW)
    turns = [each for each in _lines(folder, f"{name}_docs") if str(each["conv"]) == conversation]
    events = [
        {"event_id": _event(each["id"]), "content": f"{each['speaker']}: {each['text']}"}
        for each in turns
        if each["text"].strip()
    ]
    await product.ingest(conversation, events)


async def _ask(product: Product, asked: Asked) -> str:
    """Assemble the prompt of a question and report its answer; return the receipt."""
    prompt = await product.call(
        "context.assemble",
        session_id=asked.conversation,
        task_description=asked.task,
        model=_MODEL,
        token_budget=_BUDGET,
        domains=[],
    )
    usage = {"prompt_tokens": prompt["tokens"], "completion_tokens": 50}
    await product.call(
        "context.emit_metrics",
        session_id=asked.conversation,
        receipt_id=prompt["receipt_id"],
        usage=usage,
        answer=asked.answer,
    )
    return str(prompt["receipt_id"])


def _questions(folder: Path, name: str) -> list[Asked]:
    lines = [
        each for each in _lines(folder, f"{name}_queries") if each["category"] != "adversarial" and each["gold_ids"]
    ]
    per_conversation: dict[str, list[Asked]] = {}
    for each in lines:
        conversation = str(each["conv"])
        refs = frozenset(f"window:{conversation}:{AGENT}/{_event(name)}" for name in each["gold_ids"])
        answer = each["answer"] if isinstance(each["answer"], str) else json.dumps(each["answer"])
        per_conversation.setdefault(conversation, []).append(Asked(conversation, each["query"], answer, refs))
    return [each for asked in per_conversation.values() for each in asked[:_QUESTIONS]]


def _event(turn_id: str) -> str:
    return "".join(sign if sign.isalnum() or sign in "_.:-" else "_" for sign in turn_id)


def _lines(folder: Path, name: str) -> list[dict[str, Any]]:
    path = folder / "conv_retrieval" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]
