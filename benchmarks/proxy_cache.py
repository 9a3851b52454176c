"""Long agent loops through simulated prompt caches, with and without the model proxy: read from cache, and money.

Each loop is a program that sends its whole conversation with every call, with cache marks where coding agents set them:
after the tools, the system text and the last two turns. Tools return logs, listings, tables and files of 100 to 20,000
tokens, or of 800 to 3,500 only, which are not shortened. The user has a new task each dozen calls, which memory says
something about. Conversations and receipts are recorded as they are behind the proxy; in full mode, windows are
compacted each 25 calls. What the proxy forwards in each mode, and what the program sent, go through the same simulator.
Money is that of all calls of a loop; the ratio of the dearest loop is reported, so none is hidden by others. How often
something was added, and a summary took the place of messages, is reported too: what did not happen cannot be dear.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from benchmarks.harness import Baseline, Row
from benchmarks.servers import ADMIN, TENANT, call, folder, open_app
from benchmarks.wire import run_async
from weftline.app.call_meter import ProxiedAs, reported_sums
from weftline.app.proxied_conversations import ConversationCall
from weftline.app.proxied_edits import GivenRequest
from weftline.models.language_models.catalog import load_catalog
from weftline.models.language_models.chat_model import ChatCaller
from weftline.models.metering import UsageSums, nanos
from weftline.models.proxied_calls import usage_as_given
from weftline.providers.prices import PriceTable
from weftline.testing.prompt_cache import CacheSimulator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.app.app import App
    from weftline.app.proxied_edits import EditNote
    from weftline.models.language_models.catalog import Rates
    from weftline.models.language_models.content import WireForm
    from weftline.state.agent_context.settings import ProxyMode
    from weftline.testing.prompt_cache import SimulatedCall

_MODELS: dict[str, tuple[str, WireForm]] = {
    "anthropic": ("claude-sonnet-5", "anthropic"),
    "openai": ("gpt-5.6", "openai_chat"),
    "openai_automatic": ("gpt-5.4", "openai_chat"),
}
_MODES: tuple[ProxyMode, ...] = ("trim", "full")
_CALLS = (35, 60, 120)
_LOOPS = 1
_SECONDS, _ANSWER_TOKENS = 20, 300
# What tools return, in tokens, about.
_SIZES = (120, 300, 700, 250, 1_500, 5_000, 400, 150, 12_000, 900, 20_000, 350)
# None of these is shortened, so that a summary is what saves most.
_MIDDLE_SIZES = (1_200, 2_500, 3_500, 800, 3_000)
_TOKEN_CHARACTERS = 4
# By how much less may be read from the cache.
_LESS_READ = 0.01
# Where no result is large, there is nothing to save in trim.
_DEAREST = 1.01
_EDIT_SECONDS = 30.0
_TASK_CALLS, _COMPACT_CALLS = 12, 25
_COMPACT_SECONDS = 60.0
_MODULES = 40
_PRICED_AT = datetime(2026, 11, 16, tzinfo=UTC)
_MARK = {"cache_control": {"type": "ephemeral"}}
_SYSTEM = (
    "You are a coding agent. Read before you write, run the tests after each change, and keep answers short. " * 40
)


def run(*, quick: bool) -> list[Row]:
    models = {"anthropic": _MODELS["anthropic"]} if quick else _MODELS
    return run_async(_run(models, _CALLS[1:2] if quick else _CALLS, _LOOPS))


async def _run(models: dict[str, tuple[str, WireForm]], calls: tuple[int, ...], loops: int) -> list[Row]:
    rows: list[Row] = []
    for name, (model, form) in models.items():
        for mode in _MODES:
            with folder() as data:
                app = await open_app(str(data / "weftline.db"))
                try:
                    await app.tenants.create(TENANT)
                    app.proxied_edits.mode = mode
                    await _prepare(app)
                    results = [
                        await _replay(app, model, form, count, Random(number * 1_000 + count), sizes)
                        for number in range(loops)
                        for sizes in (_SIZES, _MIDDLE_SIZES)
                        for count in calls
                    ]
                finally:
                    await app.close()
            rows += _rows(f"proxy_cache.{name}.{mode}", results)
    return rows


@dataclass
class _Replay:
    """The simulated calls of one loop, as forwarded by the proxy and as sent, and what full mode did in it."""

    forwarded: CacheSimulator
    sent: CacheSimulator
    added: int = 0
    summarised: int = 0


async def _prepare(app: App) -> None:
    """Say in a layer and in memory what full mode adds."""
    await call(app, "layer.define", layer="tenant", text="Name the module in each answer. Do not push to main.")
    for number in range(_MODULES):
        fact = f"The build of module {number} needs the toolchain of {2_000 + number}: another one fails at link time."
        await call(app, "memory.set", key=f"module-{number}", value=fact)


async def _replay(app: App, model: str, form: WireForm, count: int, random: Random, sizes: tuple[int, ...]) -> _Replay:
    info = load_catalog().find(model)
    rates = PriceTable().rates(info, _PRICED_AT)
    replay = _Replay(CacheSimulator(info, rates), CacheSimulator(info, rates))
    caller = ChatCaller(TENANT, "admin")
    request_form: WireForm = "anthropic" if form == "anthropic" else "openai_chat"
    headers = {b"x-claude-code-session-id": f"loop-{count}-{sizes[0]}-{random.random()}".encode()}
    for number, body in enumerate(_loop(form, model, count, random, sizes)):
        request = GivenRequest(request_form, headers, json.dumps(body).encode())
        edited = await app.proxied_edits.edit(caller, ADMIN, request, _EDIT_SECONDS)
        made = ConversationCall(request_form, request.body, headers, b"", is_stream=False, at=app.clock.now())
        session_id = await app.proxied_conversations.record(caller, ADMIN, made)
        simulated = replay.forwarded.call(form, json.loads(edited.body), number * _SECONDS, _ANSWER_TOKENS)
        replay.sent.call(form, body, number * _SECONDS, _ANSWER_TOKENS)
        if edited.note is not None:
            await app.proxied_edits.note(caller, edited.note, session_id)
            await _add_receipt(app, caller._replace(session_id=session_id), model, simulated, edited.note, rates)
        replay.added = max(replay.added, edited.body.count(b"[Weftline: what memory"))
        replay.summarised += b"[Weftline: a summary of" in edited.body
        if app.proxied_edits.mode == "full" and number % _COMPACT_CALLS == _COMPACT_CALLS - 1:
            compact = {"session_id": session_id, "keep_recent": 20, "target": 0.2, "wait_seconds": _COMPACT_SECONDS}
            await call(app, "context.compact", **compact)
    return replay


async def _add_receipt(
    app: App, caller: ChatCaller, model: str, made: SimulatedCall, note: EditNote, rates: Rates
) -> None:
    """Add the receipt of a call, by which full mode stops where it is dearer."""
    given = usage_as_given(made.usage, note.tokens)
    modelled = UsageSums(
        naive_baseline_tokens=given.input_tokens,
        engine_assembled_tokens=made.usage.input_tokens,
        naive_cost_nanos=nanos(float(rates.cost(given))),
    )
    sums = reported_sums(made.usage, made.cost).plus(modelled)
    proxied = ProxiedAs(note.conversation, note.mode, uuid4().hex, app.clock.now())
    await app.proxied_usage.add("proxy", caller, model, sums, 1.0, proxied)


def _loop(form: WireForm, model: str, count: int, random: Random, sizes: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Yield the requests of a program, each with the conversation so far."""
    is_anthropic = form == "anthropic"
    tools = [_tool(number, is_anthropic=is_anthropic) for number in range(8)]
    messages: list[dict[str, Any]] = [] if is_anthropic else [{"role": "system", "content": _SYSTEM}]
    for number in range(count):
        if number % _TASK_CALLS == 0:
            messages += _task(random, is_first=number == 0)
        if is_anthropic:
            marked = [*messages[:-3], *(_marked(each) for each in messages[-3:])] if number else messages
            system = [{"type": "text", "text": _SYSTEM, **_MARK}]
            yield {"model": model, "system": system, "tools": tools, "messages": marked, "max_tokens": 4_000}
        else:
            yield {"model": model, "tools": tools, "messages": [*messages]}
        messages += _step(number, _result(random, sizes), is_anthropic=is_anthropic)


def _task(random: Random, *, is_first: bool) -> list[dict[str, Any]]:
    """Return the messages with a new task; the program answers the last one before."""
    task = f"Which toolchain does the build of module {random.randrange(_MODULES)} need? Find out why it fails."
    said = [] if is_first else [{"role": "assistant", "content": [{"type": "text", "text": "The build passes now."}]}]
    return [*said, {"role": "user", "content": [{"type": "text", "text": task}]}]


def _step(number: int, result: str, *, is_anthropic: bool) -> list[dict[str, Any]]:
    call_id, said = f"call_{number:04}", f"I look at part {number}."
    arguments = {"path": f"src/part_{number}.py"}
    if is_anthropic:
        call = {"type": "tool_use", "id": call_id, "name": "tool_1", "input": arguments}
        answer = {"type": "tool_result", "tool_use_id": call_id, "content": result}
        blocks = [{"type": "text", "text": said}, call]
        return [{"role": "assistant", "content": blocks}, {"role": "user", "content": [answer]}]
    function = {"name": "tool_1", "arguments": json.dumps(arguments)}
    made = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": said, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]


def _marked(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of the user with a mark on its last block, as coding agents move it along."""
    if message["role"] != "user":
        return message
    *others, last = message["content"]
    return {**message, "content": [*others, {**last, **_MARK}]}


def _tool(number: int, *, is_anthropic: bool) -> dict[str, Any]:
    about = {"name": f"tool_{number}", "description": f"Reads or changes files of kind {number}. " * 20}
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    if is_anthropic:
        return {**about, "input_schema": schema}
    return {"type": "function", "function": {**about, "parameters": schema}}


def _result(random: Random, sizes: tuple[int, ...]) -> str:
    """Return what a tool returned: a log, a listing, a table or a file."""
    size = random.choice(sizes) * _TOKEN_CHARACTERS
    kind, lines, length = random.randrange(3), [], 0
    while length < size:
        number = random.randrange(10**5)
        if kind == 0:
            state = random.choice(["INFO ok", "INFO ok", "INFO ok", "WARN slow", "ERROR refused"])
            line = f"2026-11-19T10:00:{number % 60:02} {state} worker-{number % 8} job {number} took {number % 900} ms"
        elif kind == 1:
            line = json.dumps({"id": number, "path": f"src/a/{number}.py", "size": number % 9_000, "state": "clean"})
        else:
            line = f"    value_{number} = compute(part_{number % 50}, limit={number % 300})  # step {number % 7}"
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines)


def _rows(name: str, results: list[_Replay]) -> Iterator[Row]:
    shares = [(_read_share(each.forwarded), _read_share(each.sent)) for each in results]
    read = min(ours - theirs for ours, theirs in shares)
    # A summary loses the cache of what follows it, for less to read: its money is what counts.
    is_full = name.endswith(".full")
    ours, theirs = (sum(each) / len(shares) for each in zip(*shares, strict=True))
    yield Row(
        f"{name}.read_from_cache",
        round(ours, 4),
        "of input",
        Baseline("no proxy", round(theirs, 4)),
        round(ours / theirs, 3),
        None if is_full else f"in no loop more than {_LESS_READ:g} less",
        None if is_full else read >= -_LESS_READ,
    )
    costs = [(_cost(each.forwarded), _cost(each.sent)) for each in results]
    spent, without = (sum(each) for each in zip(*costs, strict=True))
    yield Row(
        f"{name}.cost",
        round(spent, 4),
        "US dollars",
        Baseline("no proxy", round(without, 4)),
        round(spent / without, 3),
        "below 1 x",
        spent < without,
    )
    dearest = max(ours / theirs for ours, theirs in costs)
    yield Row(f"{name}.dearest_loop", round(dearest, 4), "x no proxy", target="at most 1.01", met=dearest <= _DEAREST)
    if is_full:
        added, summarised = sum(each.added for each in results), sum(each.summarised for each in results)
        yield Row(f"{name}.added", added, "times", target="above 0", met=added > 0)
        # Only the longest loops are worth a summary.
        is_long = max(len(each.sent.calls) for each in results) >= max(_CALLS)
        target, met = ("above 0", summarised > 0) if is_long else (None, None)
        yield Row(f"{name}.with_summary", summarised, "calls", target=target, met=met)


def _read_share(simulator: CacheSimulator) -> float:
    used = [call.usage for call in simulator.calls]
    return sum(usage.cache_read_tokens for usage in used) / sum(usage.input_tokens for usage in used)


def _cost(simulator: CacheSimulator) -> float:
    return float(sum(call.cost for call in simulator.calls if call.cost is not None))
