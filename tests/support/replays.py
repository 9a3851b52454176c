"""Helpers to replay the receipts of an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.assemblies import add_documents, assemble
from weftline.insight.recommendations.recorded_calls import ReplayServices, ReplayStores
from weftline.insight.recommendations.trials import Control, try_proposal
from weftline.jobs.session_indexing import INDEX
from weftline.jobs.vectors import EMBED
from weftline.kernel.identity import system_actor
from weftline.models.language_models.catalog import load_catalog
from weftline.prompts.assembly.sql import ReceiptStore
from weftline.prompts.efficiency import ItemUse, efficiency_of
from weftline.providers.prices import PriceTable
from weftline.providers.tokenizers import TokenizerRegistry
from weftline.storage.sql.database import Scope
from weftline.windows.compaction.compactor import Compactor

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.world import Caller, World
    from weftline.insight.recommendations.model import ProposedSettings
    from weftline.insight.recommendations.recorded_calls import RecordedWindow
    from weftline.insight.recommendations.trials import TrialResult

MODEL = "gpt-4o"
_TOPICS = ("backups", "invoices", "holidays", "passwords", "deployments", "incidents")


async def services() -> ReplayServices:
    prices = PriceTable()
    await prices.load()
    return ReplayServices(load_catalog(), TokenizerRegistry(), prices)


async def recorded(world: World, agent_id: str, limit: int = 100) -> list[RecordedWindow]:
    """Return the last calls of an agent as a replay reads them."""
    actor = system_actor(world.tenant)
    return await world.app.database.read(
        Scope(world.tenant),
        lambda tx: world.app._container.build(ReplayStores, actor, tx).recorded(agent_id, limit),
        heavy=True,
    )


async def tried(world: World, agent_id: str, proposal: ProposedSettings, limit: int = 100) -> TrialResult:
    used = await services()
    return await try_proposal(Control(await recorded(world, agent_id, limit), used), proposal, used, Compactor())


async def score(world: World, is_used: Callable[[str], bool], agent_id: str = "analysis") -> None:
    """Store for every call of an agent which items its answer used."""
    (window,) = await recorded(world, agent_id)
    for call in window.calls:
        items = [
            ItemUse(ref=ref, kind=block.kind, tokens=1, use="quoted" if is_used(ref) else "unused")
            for block in call.blocks
            for ref in block.items
        ]
        efficiency = efficiency_of("answer", sent=10, useful=1, overhead=1, capacity=100, items=items)
        await world.app.database.write(
            Scope(world.tenant),
            lambda tx, call=call, found=efficiency: ReceiptStore(tx).score(call.receipt.receipt_id, found),
        )


async def work_through(world: World, caller: Caller, *, rounds: int = 12, topics: int = 6, **options: Any) -> list[Any]:
    """Assemble a prompt in each round of a conversation with tools, documents and board entries, by so many topics."""
    texts = [f"{topic}: {sentence} " * 12 for topic in _TOPICS for sentence in _sentences(topic)]
    await add_documents(world, *texts)
    await caller.call("board.write", session_id=caller.session, key="goal", value="Answer questions of customers.")
    answers = []
    for number in range(rounds):
        topic = _TOPICS[number % topics]
        await caller.call("context.ingest", session_id=caller.session, events=_events(number, topic))
        if number % 4 == 0:
            await caller.call(
                "board.write", session_id=caller.session, key="status", value=f"round {number} is done. " * 30
            )
        answers.append(await assemble(caller, f"What do we know about {topic}?", model=MODEL, **options))
        world.clock.advance(seconds=20)
    return answers


async def converse(world: World, caller: Caller, *, rounds: int = 12, **options: Any) -> list[Any]:
    """Assemble a prompt in each round of a conversation that is indexed, so that passages of its events are found."""
    answers = []
    for number in range(rounds):
        events = [
            {
                "event_id": f"{topic}{number}",
                "content": f"Customer {number} says about {topic}: {_detail(topic, number)}",
            }
            for topic in _TOPICS
        ]
        await caller.call("context.ingest", session_id=caller.session, events=events)
        await world.app.scheduler.drain(INDEX, EMBED)
        asked = _TOPICS[number % len(_TOPICS)]
        task = f"What did customer {number // 2} say about {asked}?"
        answers.append(await assemble(caller, task, model=MODEL, **options))
        world.clock.advance(seconds=20)
    return answers


def _detail(topic: str, number: int) -> str:
    return f"the {topic} of order {number * 7} came {number + 2} days late. " * (1 + number % 3)


def _sentences(topic: str) -> list[str]:
    return [f"The rule for {topic} number {number} applies to every customer." for number in range(3)]


def _events(number: int, topic: str) -> list[dict[str, Any]]:
    call = {"call_id": f"c{number}", "name": "look_up", "arguments": f'{{"topic": "{topic}"}}'}
    return [
        {"event_id": f"q{number}", "content": f"Please explain {topic} to customer {number}. " * 8},
        {"event_id": f"a{number}", "role": "assistant", "content": "I look it up.", "tool_calls": [call]},
        {
            "event_id": f"t{number}",
            "role": "tool",
            "tool_call_id": f"c{number}",
            "content": f"{topic} {number} found. " * 40,
        },
    ]
