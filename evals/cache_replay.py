"""Replays of an agent's loop through simulated prompt caches: share of input read from the cache, and its price.

The agent has a system message, ten tools, two documents and five tasks. Each task is a request of the user, calls of
tools with results of 100 to 3,000 tokens, and an answer; the product assembles the prompt of every model call, which
appends to the call before where it can. Compared, in the same run and under the same rules: the naive prompt, with the
documents and the whole conversation, and the truncated one, with the last events that fit and no documents. Their
breakpoints are where the product would set them. Output is the same for all and not counted. The ``compacted`` loop is
the same in a window of the size of the budget, which is compacted, without a model, whenever an assembly says that this
is due; its baseline is the loop without compaction.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from evals.assembly_sets import SETS
from evals.product import AGENT, CachedEmbedder, open_product
from evals.results import Row
from weftline.kernel.ports import approximate_tokens
from weftline.models.language_models.catalog import load_catalog
from weftline.models.language_models.content import (
    ConversationMessage,
    Prompt,
    PromptBlock,
    ToolCall,
    ToolDefinition,
)
from weftline.models.language_models.wire_forms import render
from weftline.providers.prices import PriceTable
from weftline.testing.prompt_cache import CacheSimulator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from evals.assembly_sets import AssemblySet
    from evals.product import Product
    from weftline.models.language_models.catalog import ModelInfo
    from weftline.models.language_models.content import WireForm

_SESSION, _DOMAIN = "loop", "minutes"
_MODELS: dict[str, tuple[str, WireForm]] = {
    "anthropic": ("claude-sonnet-5", "anthropic"),
    "openai": ("gpt-5.6", "openai_responses"),
    "openai_automatic": ("gpt-5.4", "openai_responses"),
}
_TASKS, _CALLS_PER_TASK = 5, 10
_TOOLS, _DOCUMENTS = 10, 2
_BUDGET = 32_000
# What a window of this size keeps free for the answer.
_RESERVED = 4_096
_RESULT_TOKENS = (120, 400, 900, 2_200, 300, 1_500, 150, 3_000, 500)
_SECONDS, _SECONDS_BETWEEN_TASKS = 15, 90
_PRICED_AT = datetime(2026, 11, 16, tzinfo=UTC)
_MIN_READ = 0.85
_DIGITS = 4
_SYSTEM = (
    "You support a team that designs a remote control. Answer from the minutes and from what tools return, name the "
    "meeting that you rely on, and ask if minutes contradict each other. Prices are in euros. Decisions of the project "
    "manager outrank proposals of others. Keep answers below two hundred words unless asked for a report. "
) * 8
Events = list[dict[str, Any]]


@dataclass
class AgentLoop:
    """The events before each model call, and what the agent has besides."""

    tools: list[dict[str, Any]]
    documents: list[str]
    calls: list[tuple[str, Events]] = field(default_factory=list)


@dataclass
class Replay:
    """Simulated calls of each method, for one model."""

    product: CacheSimulator
    naive: CacheSimulator
    truncated: CacheSimulator
    modes: list[str] = field(default_factory=list)
    compactions: int = 0


def cache_replay(folder: Path | None) -> Iterator[Row]:
    if folder is None:
        return
    loop = _agent_loop(SETS["ami"](folder), SETS["bfcl_memory"](folder), _tools(folder))
    for name, (model, form) in _MODELS.items():
        info = load_catalog().find(model)
        replay = asyncio.run(_replay(loop, info, form))
        yield from _rows(name, replay)
        yield from _compacted_rows(name, asyncio.run(_replay(loop, info, form, compact=True)), replay)


def _agent_loop(meetings: AssemblySet, memories: AssemblySet, tools: list[dict[str, Any]]) -> AgentLoop:
    """Return the loop: documents and results of tools are minutes; what the model says is from a user's talk."""
    minutes = {
        name: "\n".join(f"{turn.speaker}: {turn.text}" for turn in turns)
        for name, turns in meetings.conversations.items()
    }
    known = list(minutes)[:_DOCUMENTS]
    facts = [question.task for question in meetings.questions if question.source in known]
    lines = cycle([line for name, text in minutes.items() if name not in known for line in text.splitlines()])
    talk = cycle([turn.text for turns in memories.conversations.values() for turn in turns])
    loop = AgentLoop(tools, [minutes[name] for name in known])
    steps = _tool_steps(tools, lines, talk)
    events: Events = [{"event_id": "system", "role": "system", "content": _SYSTEM}]
    for task in range(_TASKS):
        request = f"Check this against the minutes, and say what led to it: {facts[task * len(facts) // _TASKS]}"
        events.append({"event_id": f"request{task}", "content": request})
        loop.calls.append((request, events))
        loop.calls += [(request, step) for step in islice(steps, _CALLS_PER_TASK - 1)]
        events = [{"event_id": f"answer{task}", "role": "assistant", "content": next(talk)}]
    return loop


def _tool_steps(tools: Sequence[dict[str, Any]], lines: Iterator[str], talk: Iterator[str]) -> Iterator[Events]:
    """Yield a call of a tool and its result, again and again."""
    for number, (tool, tokens) in enumerate(zip(cycle(tools), cycle(_RESULT_TOKENS), strict=False)):
        arguments = json.dumps({"query": " ".join(next(lines).split()[:12])})
        call = {"call_id": f"call_{number}", "name": tool["name"], "arguments": arguments}
        yield [
            {"event_id": f"c{number}", "role": "assistant", "content": next(talk)[:200], "tool_calls": [call]},
            {
                "event_id": f"r{number}",
                "role": "tool",
                "tool_call_id": call["call_id"],
                "content": _text_of(lines, tokens),
            },
        ]


def _text_of(lines: Iterator[str], tokens: int) -> str:
    taken: list[str] = []
    while tokens > 0:
        taken.append(next(lines))
        tokens -= approximate_tokens(taken[-1])
    return "\n".join(taken)


def _tools(folder: Path) -> list[dict[str, Any]]:
    with (folder / "tools" / "bfcl_live_tools.jsonl").open(encoding="utf-8") as file:
        found = [json.loads(line) for line in islice(file, _TOOLS)]
    return [
        {
            "name": f"{tool['name'].replace('.', '_')[:50]}_{number}",
            "description": tool["description"],
            "parameters": {name: text or "" for name, text in (tool.get("parameters") or {}).items()},
        }
        for number, tool in enumerate(found)
    ]


async def _replay(loop: AgentLoop, info: ModelInfo, form: WireForm, *, compact: bool = False) -> Replay:
    rates = PriceTable().rates(info, _PRICED_AT)
    replay = Replay(*(CacheSimulator(info, rates) for _ in range(3)))
    baselines = _Baselines(loop, info, form)
    async with open_product(CachedEmbedder()) as product:
        product.clock.at = _PRICED_AT
        # An agent cannot write its own system text: an admin registers what its runtime hands over.
        await product.call("agent.define", principal="admin", agent_id=AGENT, system_prompt=_SYSTEM)
        await product.call("session.create", session_id=_SESSION, purpose="An evaluation.")
        await product.add_documents(_DOMAIN, loop.documents)
        await product.index()
        if compact:
            await product.call("window.create", session_id=_SESSION, model_max_tokens=_BUDGET + _RESERVED)
        before = ""
        for request, events in loop.calls:
            product.clock.at += timedelta(seconds=_SECONDS if request == before else _SECONDS_BETWEEN_TASKS)
            before, at = request, product.clock.at.timestamp()
            await product.ingest(_SESSION, events)
            await product.index()
            answer = await _assemble(product, loop, info, form, request)
            baselines.add(events)
            replay.modes.append(answer["mode"])
            replay.product.call(form, answer["body"], at)
            replay.naive.call(form, baselines.naive(), at)
            replay.truncated.call(form, baselines.truncated(), at)
            if compact and answer.get("compaction_due"):
                done = await product.call("context.compact", session_id=_SESSION, wait_seconds=30)
                replay.compactions += done["state"] == "applied"
    return replay


async def _assemble(product: Product, loop: AgentLoop, info: ModelInfo, form: WireForm, request: str) -> Any:  # noqa: ANN401 - JSON
    return await product.call(
        "context.assemble",
        session_id=_SESSION,
        task_description=request,
        token_budget=_BUDGET,
        model=info.model,
        form=form,
        tools=[_native(tool, form) for tool in loop.tools],
    )


def _native(tool: dict[str, Any], form: WireForm) -> dict[str, Any]:
    named = {"name": tool["name"], "description": tool["description"]}
    if form == "anthropic":
        return {**named, "input_schema": _schema(tool)}
    return {"type": "function", **named, "parameters": _schema(tool)}


def _schema(tool: dict[str, Any]) -> dict[str, Any]:
    described = {name: {"type": "string", "description": text} for name, text in tool["parameters"].items()}
    return {"type": "object", "properties": described}


class _Baselines:
    """The prompts of an agent without Weftline, rendered by the same code."""

    def __init__(self, loop: AgentLoop, info: ModelInfo, form: WireForm) -> None:
        self._tools = tuple(ToolDefinition(tool["name"], tool["description"], _schema(tool)) for tool in loop.tools)
        self._documents = [_block("documents", ConversationMessage(role="user", content="\n\n".join(loop.documents)))]
        self._info = info
        self._form = form
        self._system: list[PromptBlock] = []
        # Events that belong together: a call of a tool and its result.
        self._groups: list[list[PromptBlock]] = []

    def add(self, events: Events) -> None:
        blocks = [_block(event["event_id"], _message(event)) for event in events]
        self._system += [block for block in blocks if block.messages[0].role == "system"]
        self._groups.append([block for block in blocks if block.messages[0].role != "system"])

    def naive(self) -> dict[str, Any]:
        return self._rendered([*self._documents, *(block for group in self._groups for block in group)])

    def truncated(self) -> dict[str, Any]:
        """Return the last events within the budget; the system message stays."""
        room = _BUDGET - sum(map(_tokens, self._system))
        room -= sum(approximate_tokens(json.dumps([tool.description, tool.input_schema])) for tool in self._tools)
        kept: list[PromptBlock] = []
        for group in reversed(self._groups):
            room -= sum(map(_tokens, group))
            if room < 0:
                break
            kept = [*group, *kept]
        return self._rendered(kept)

    def _rendered(self, blocks: Sequence[PromptBlock]) -> dict[str, Any]:
        prompt = Prompt(self._info.model, self._tools, (*self._system, *blocks), 4_000)
        return render(self._form, prompt, self._info)


def _block(block_id: str, message: ConversationMessage) -> PromptBlock:
    return PromptBlock(block_id, "layer" if message.role == "system" else "conversation", (message,), cache_point=True)


def _message(event: dict[str, Any]) -> ConversationMessage:
    calls = tuple(ToolCall(call["call_id"], call["name"], call["arguments"]) for call in event.get("tool_calls", ()))
    role = event.get("role", "user")
    return ConversationMessage(
        role=role, content=event["content"], tool_calls=calls, tool_call_id=event.get("tool_call_id")
    )


def _tokens(block: PromptBlock) -> int:
    return sum(approximate_tokens(message.content) for message in block.messages)


def _rows(name: str, replay: Replay) -> Iterator[Row]:
    read = _read_share(replay.product)
    yield _row(
        f"{name}.read_from_cache", read, "of input after the first call", None, f">= {_MIN_READ}", read >= _MIN_READ
    )
    cost = _cost(replay.product)
    for other, simulator in (("naive", replay.naive), ("truncated", replay.truncated)):
        compared = _cost(simulator)
        yield _row(
            f"{name}.cost_against_{other}", cost, "US dollars", compared, f"< {other} with cache", cost < compared
        )
    tokens, naive = (sum(call.usage.input_tokens for call in each.calls) for each in (replay.product, replay.naive))
    yield _row(f"{name}.input_tokens", tokens, f"{replay.modes.count('rebuilt')} rebuilt", naive, None, None)


def _compacted_rows(name: str, replay: Replay, without: Replay) -> Iterator[Row]:
    read = _read_share(replay.product)
    unit = f"of input after the first call, {replay.compactions} compactions"
    yield _row(f"{name}.compacted.read_from_cache", read, unit, _read_share(without.product), None, None)
    cost, naive = _cost(replay.product), _cost(replay.naive)
    yield _row(
        f"{name}.compacted.cost", cost, "US dollars", _cost(without.product), f"< naive {naive:.4f}", cost < naive
    )
    tokens, earlier = (sum(call.usage.input_tokens for call in each.product.calls) for each in (replay, without))
    unit = f"{replay.modes.count('rebuilt')} rebuilt"
    yield _row(f"{name}.compacted.input_tokens", tokens, unit, earlier, None, None)


def _read_share(simulator: CacheSimulator) -> float:
    later = [call.usage for call in simulator.calls[1:]]
    return sum(usage.cache_read_tokens for usage in later) / sum(usage.input_tokens for usage in later)


def _cost(simulator: CacheSimulator) -> float:
    return float(sum(call.cost for call in simulator.calls if call.cost is not None))


def _row(name: str, value: float, unit: str, baseline: float | None, target: str | None, met: bool | None) -> Row:  # noqa: FBT001 - a row
    compared = None if baseline is None else round(baseline, _DIGITS)
    return Row(f"cache_replay.{name}", round(value, _DIGITS), unit, compared, target, met)
