"""Are recommendations that say "safe" safe on later calls? Settings are judged on calls that they were not made from.

An agent works on sets with known evidence (``recommendation_sets``): conversations, documents, board entries, pins and
tools. After the first half of its questions Weftline is asked for recommendations, and a grid of further settings is
tried on these calls. Then the second half is asked, and every setting is replayed on it: it loses gold evidence if a
prompt that had it does not have it in the replay, or a tool that is needed is not offered. Settings that change no
prompt are not counted.

``safe_that_lose_gold`` must be 0. ``precision``: the share of settings called safe that lose nothing, ``recall``: the
share of those that lose nothing which were called safe. ``held_out`` is of sets that no rule was made from.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from evals.product import AGENT, CachedEmbedder, open_product
from evals.recommendation_sets import DOMAIN, evaluation_sets, held_out_sets
from evals.results import Row
from weftline.insight.recommendations.model import ProposedSettings
from weftline.insight.recommendations.recorded_calls import Replay, ReplayServices, ReplayStores, document_of
from weftline.insight.recommendations.trials import Control, try_proposal, views_under
from weftline.kernel.identity import system_actor
from weftline.models.language_models.catalog import load_catalog
from weftline.providers.prices import PriceTable
from weftline.providers.tokenizers import TokenizerRegistry
from weftline.state.agent_context.settings import CompactionSettings, ResolvedCompaction
from weftline.storage.sql.database import Scope
from weftline.windows.compaction.compactor import Compactor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from evals.product import Product
    from evals.recommendation_sets import EvaluationSet, Question, Work
    from weftline.insight.recommendations.model import TriedCall
    from weftline.insight.recommendations.recorded_calls import RecordedWindow, ReplayedCall

_MODEL = "gpt-4o"
_BETWEEN_CALLS = timedelta(seconds=20)
_TENANT, _ADMIN = "default", "admin"
_MAX_CALLS = 200
_DIGITS = 3


class Outcome(NamedTuple):
    """What a trial said of a setting, and what the gold evidence of later calls says."""

    name: str
    is_safe: bool
    loses_gold: bool
    saved: float
    is_recommended: bool
    risks: tuple[str, ...]


class Measured(NamedTuple):
    name: str
    outcomes: list[Outcome]
    exact: int
    calls: int


def recommendations(folder: Path | None) -> Iterator[Row]:
    if folder is None:
        return
    measured = [asyncio.run(measure(each)) for each in evaluation_sets(folder)]
    tools = [each for each in measured if each.name.startswith("tools")]
    for each in measured:
        if each not in tools:
            yield from _rows(each)
    yield from _rows(_together("tools", tools))
    yield from _rows(_together("all", measured))
    held_out = [asyncio.run(measure(each)) for each in held_out_sets(folder)]
    yield from _rows(_together("held_out", held_out))


def _together(name: str, measured: Sequence[Measured]) -> Measured:
    outcomes = [outcome for each in measured for outcome in each.outcomes]
    return Measured(name, outcomes, sum(each.exact for each in measured), sum(each.calls for each in measured))


def _rows(measured: Measured) -> Iterator[Row]:
    name, outcomes = f"recommendations.{measured.name}", measured.outcomes
    safe = [each for each in outcomes if each.is_safe]
    fine = [each for each in outcomes if not each.loses_gold]
    wrong = sum(each.loses_gold for each in safe)
    advised = [each for each in outcomes if each.is_recommended]
    exact = measured.exact / max(1, measured.calls)
    yield _row(f"{name}.exact", exact, "share", "1", met=exact == 1)
    yield _row(f"{name}.settings", len(outcomes), "settings")
    yield _row(f"{name}.fine", len(fine), "settings")
    yield _row(f"{name}.safe", len(safe), "settings")
    yield _row(f"{name}.safe_that_lose_gold", wrong, "settings", "0", met=wrong == 0)
    yield _row(f"{name}.recommended", len(advised), "settings")
    yield _row(f"{name}.recommended_safe", sum(each.is_safe for each in advised), "settings")
    yield _row(f"{name}.recommended_fine", sum(not each.loses_gold for each in advised), "settings")
    if safe:
        yield _row(f"{name}.precision", 1 - wrong / len(safe), "share", "1", met=wrong == 0)
        yield _row(f"{name}.saved_by_best_safe", max(each.saved for each in safe), "share of tokens")
    if fine:
        yield _row(f"{name}.recall", sum(each.is_safe for each in fine) / len(fine), "share")


def _row(name: str, value: float, unit: str, target: str | None = None, *, met: bool | None = None) -> Row:
    return Row(name, round(value, _DIGITS), unit, None, target, met)


async def measure(evaluated: EvaluationSet) -> Measured:
    """Judge settings by the first half of the questions, and check them by the second."""
    prices = PriceTable()
    await prices.load()
    services = ReplayServices(load_catalog(), TokenizerRegistry(), prices)
    async with open_product(CachedEmbedder()) as product:
        await product.call("knowledge.create_domain", principal=_ADMIN, domain=DOMAIN)
        for work in evaluated.sessions:
            await _add(product, work, evaluated.window)
        await product.index()
        tools = {work.session_id: work.tools for work in evaluated.sessions}
        halves = [(work.questions[: len(work.questions) // 2], work) for work in evaluated.sessions]
        for first, _ in halves:
            await _ask_all(product, first, tools, evaluated.budget)
        control = Control(await _recorded(product), services)
        proposals = [
            *await _recommended(product),
            *((each, False) for each in _grid(control.windows, evaluated.budget)),
        ]
        judged = [
            (proposal, advised, (await try_proposal(control, proposal, services, Compactor())))
            for proposal, advised in proposals
        ]
        gold: dict[str, Question] = {}
        for first, work in halves:
            gold |= await _ask_all(product, work.questions[len(first) :], tools, evaluated.budget)
        later = [_only(window, gold) for window in await _recorded(product)]
        controls = [(window, list(Replay(window, services).in_sequence())) for window in later]
        outcomes = [
            Outcome(
                msgspec.json.encode(proposal).decode(),
                result.trial.safe,
                await _loses(controls, proposal, services, gold),
                result.trial.saved_tokens / max(1, result.trial.tokens),
                advised,
                result.trial.risks,
            )
            for proposal, advised, result in judged
            if result.trial.changed
        ]
        calls: list[TriedCall] = list(judged[0][2].calls) if judged else []
        return Measured(evaluated.name, outcomes, sum(call.exact for call in calls), len(calls))


async def _recommended(product: Product) -> list[tuple[ProposedSettings, bool]]:
    """Return what Weftline recommends; another model is never called safe."""
    listed = await product.call("advise.list", agent_id=AGENT, calls=_MAX_CALLS)
    names = [each["recommendation_id"] for each in listed["recommendations"] if each["kind"] != "model"]
    shown = [await product.call("advise.show", recommendation_id=name, calls=_MAX_CALLS) for name in names]
    return [(msgspec.convert(each["proposal"], ProposedSettings), True) for each in shown if each["trial"]]


def _grid(windows: Sequence[RecordedWindow], budget: int) -> Iterator[ProposedSettings]:
    """Yield settings of every kind: some that matter and some that do not."""
    for strategy in ("sliding_window", "key_facts"):
        for keep in (10, 40):
            yield ProposedSettings(compaction=CompactionSettings(strategy=strategy, threshold=0.1, keep_recent=keep))
    yield from (ProposedSettings(min_score=score / 100) for score in (71, 73, 76, 80))
    yield from (ProposedSettings(token_budget=budget * part // 100) for part in (90, 70))
    blocks = [block for window in windows for call in window.calls for block in call.blocks]
    sent = {ref for block in blocks if block.kind in {"board", "pins"} for ref in block.items}
    yield from (ProposedSettings(without_items=(ref,)) for ref in sorted(sent))
    uris = {
        document_of(ref, call.receipt.documents)
        for window in windows
        for call in window.calls
        for ref in call.receipt.documents
    }
    yield from (ProposedSettings(without_items=(uri,)) for uri in sorted(uris)[:20])
    tools = {tool.name for window in windows for call in window.calls for tool in call.tools}
    yield from (ProposedSettings(without_tools=(name,)) for name in sorted(tools))


async def _loses(
    controls: Sequence[tuple[RecordedWindow, list[ReplayedCall]]],
    proposal: ProposedSettings,
    services: ReplayServices,
    gold: dict[str, Question],
) -> bool:
    for window, was in controls:
        views = None
        if proposal.compaction is not None:
            views = await views_under(window, ResolvedCompaction.of(proposal.compaction), Compactor(), services)
        for before, after in zip(was, Replay(window, services, proposal, views).in_sequence(), strict=True):
            question = gold[before.call.receipt.receipt_id]
            if not question.gold & _names(before) <= _names(after) or set(question.tools) & set(proposal.without_tools):
                return True
    return False


def _names(replayed: ReplayedCall) -> set[str]:
    """Return the items of a prompt, passages by their documents."""
    documents = replayed.call.receipt.documents
    return {document_of(ref, documents) or ref for ref in replayed.items}


def _only(window: RecordedWindow, gold: dict[str, Question]) -> RecordedWindow:
    """Return a window with the calls of the second half only."""
    later = [call for call in window.calls if call.receipt.receipt_id in gold]
    before = [call for call in window.calls if call.receipt.receipt_id not in gold]
    return window._replace(calls=later, earlier=before[-1] if before else None)


async def _recorded(product: Product) -> list[RecordedWindow]:
    return await product.app.database.read(
        Scope(_TENANT),
        lambda tx: product.app._container.build(  # noqa: SLF001 - no operation shows it
            ReplayStores, system_actor(_TENANT), tx
        ).recorded(AGENT, _MAX_CALLS * 2),
        heavy=True,
    )


async def _add(product: Product, work: Work, window_tokens: int) -> None:
    session_id = work.session_id
    await product.call("session.create", session_id=session_id, purpose="An evaluation.")
    await product.call("window.create", session_id=session_id, model=_MODEL, model_max_tokens=window_tokens)
    for text in work.pins:
        added = await product.call("message.add", session_id=session_id, content=text)
        await product.call("pin.add", session_id=session_id, message_id=added["message_id"])
    for key, value in work.board.items():
        await product.call("board.write", session_id=session_id, key=key, value=value)
    documents = [{"document_id": name, "text": text} for name, text in work.documents.items()]
    if documents:
        await product.call("knowledge.add_documents", principal=_ADMIN, domain=DOMAIN, documents=documents)
    events = [{"event_id": turn.turn_id, "content": turn.text} for turn in work.events]
    await product.ingest(session_id, events)


async def _ask_all(
    product: Product, questions: Iterable[Question], tools: dict[str, list[dict[str, Any]]], budget: int
) -> dict[str, Question]:
    """Assemble the prompt of each question and report its answer; return the questions by receipt."""
    asked: dict[str, Question] = {}
    for question in questions:
        # Calls of the same moment have no order.
        product.clock.at += _BETWEEN_CALLS
        offered = tools[question.session_id]
        prompt = await product.call(
            "context.assemble",
            session_id=question.session_id,
            task_description=question.task,
            model=_MODEL,
            token_budget=budget,
            **({"form": "openai_chat", "tools": offered} if offered else {}),
        )
        calls = [{"type": "function", "function": {"name": name, "arguments": "{}"}} for name in question.tools]
        answer = {"role": "assistant", "content": question.answer or None}
        await product.call(
            "context.emit_metrics",
            session_id=question.session_id,
            receipt_id=prompt["receipt_id"],
            usage={"prompt_tokens": prompt["tokens"], "completion_tokens": 50},
            answer={**answer, "tool_calls": calls} if calls else answer,
        )
        asked[str(prompt["receipt_id"])] = question
    return asked
