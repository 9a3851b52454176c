"""Time and memory of compacting a window without a language model, on one core.

Windows are sessions of an agent: requests, plans, decisions, calls of tools and their results (tables, logs, JSON, test
runs, stack traces, source code), or nothing but talk, which costs most. One sentence in 50 states a key fact, more
than in meetings or chats. Measured is all of it: facts, layout, summaries, verification. Figures are CPU time of the
process, so that waiting for other programs does not count.

The baseline is the text analysis of the same text for search (tokens, normal forms, stems): the least that a system
pays for every text it is given. The longest pause is that of an event loop that does nothing else meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import time
import tracemalloc
from statistics import quantiles
from typing import TYPE_CHECKING

# As on a server.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from msgspec import structs

from benchmarks.harness import Row, compared, limited
from weftline.indexing.text_analysis import stem, tokens, words
from weftline.kernel.ports import approximate_tokens
from weftline.models.language_models.content import ConversationMessage, ToolCall
from weftline.windows.compaction.compactor import Compactor
from weftline.windows.compaction.facts.extraction import WindowReader
from weftline.windows.compaction.model import CompactionSource
from weftline.windows.compaction.summariser import ExtractiveSummariser
from weftline.windows.model import Category, WindowEvent, message_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from weftline.windows.compaction.model import StrategyName

_SMALL, _LARGE = 100_000, 1_000_000
_BELOW_SECONDS = 1.0
# CPU time per token of the large window, against the small one.
_LINEAR = 1.25
_PAUSE_MS = 100.0
# Memory of a compaction besides the events, by token of the window.
_BYTES_PER_TOKEN = 100.0
_KEEP_RECENT, _TARGET = 20, 0.4
_START, _SECOND = 1_772_445_600_000_000, 1_000_000
_STRATEGIES: tuple[StrategyName, ...] = ("key_facts", "hierarchical", "task_scoped")
_NAMES = ("importer", "scheduler", "billing", "gateway", "journal", "indexer", "catalog", "mailer", "router", "planner")
_ADJECTIVES = ("slow", "empty", "stale", "missing", "duplicate", "partial", "large", "hidden", "nightly", "regional")
_ACTIONS = ("rebuild", "drain", "rename", "split", "retry", "measure", "document", "migrate", "rotate", "compare")
# What is said most of the time, and what must survive.
_SENTENCES = (
    "I looked at the {name} again and the {adjective} rows come from the job that runs before midnight.",
    "That is odd, because the {other} reads the same file and reports nothing at all.",
    "Could you {action} the {name} and tell me whether the {adjective} case is still there?",
    "Fine, then I look at the {adjective} path first and come back to the {other} later.",
    "Honestly I am not sure that this is right, but the figures from last week point in that direction.",
    "The {name} was written before the {other} existed, so it knows nothing about {adjective} regions.",
    "I ran it twice on my machine and both times the {other} came out {adjective}.",
    "Somebody told me that the {name} team wants to {action} theirs as well, for other reasons.",
    "It reminds me of the {adjective} {other} that we had in spring, only that nobody noticed it then.",
    "When I {action} it by hand everything looks good, which makes me think of the order of the steps.",
    "There is a long comment above that part, but it describes an {adjective} version of the {name}.",
    "Thanks, that helps a lot, and it also explains why the graph of the {other} looked so {adjective}.",
    "My impression is that the {name} does too much and that the {other} waits for all of it.",
    "Let me read the {adjective} part again, I think I mixed up the {name} with the {other}.",
    "Yes, exactly, and the same happens in the {adjective} branch if one waits long enough.",
    "Good morning, I had a look at the {name} over coffee and have two small remarks.",
)
_FACTS = (
    "We decided to {action} the {name} before the release on 2026-{month:02}-{day:02}.",
    "The {adjective} cache of the {name} holds {number} entries, which is about {small} MB.",
    "Anna will {action} the {name} by Friday, unless the {other} is still {adjective} then.",
    "It must never write to the {name} table while the {other} is open.",
    "The ticket {ticket} says that the {name} needs {small} retries with a timeout of {number} ms.",
    "In /srv/{name}/{other}_{small}.py the function load_{action} ignores the {adjective} flag.",
)
_FACT_SHARE = 0.02


def run(*, quick: bool) -> list[Row]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rounds = 2 if quick else 20
    large = _SMALL * 2 if quick else _LARGE
    agent, talk = agent_window(_SMALL), talk_window(_SMALL)
    # What events state is remembered, and words are cached: the first time is a figure of its own.
    rows = [
        Row(f"compaction.{name}_100k_first", _cpu(events, "sliding_window"), "s CPU")
        for name, events in (("agent", agent), ("talk", talk))
    ]
    rows += [_read_ahead("agent_100k", agent), _read_ahead("talk_100k", talk)]
    rows += [_latency("agent_100k", agent, rounds), _latency("talk_100k", talk, rounds)]
    rows += [_strategy(strategy, agent, max(rounds // 4, 1)) for strategy in _STRATEGIES]
    rows += [_growth("agent", agent_window, large, rounds), _growth("talk", talk_window, large, rounds)]
    return [*rows, _pause(agent), _memory(agent_window(large))]


def agent_window(size: int) -> list[WindowEvent]:
    """Return an agent's session of about so many tokens, with tools."""
    chance = random.Random(1)
    events: list[WindowEvent] = []
    total = 0
    for turn in range(size):
        if total >= size:
            break
        task = f"T-{turn // 8}"
        state = "started" if turn % 8 == 0 else "completed" if turn % 8 == 7 else ""
        drafts = [ConversationMessage(role="user", content=_talk(chance, 3))]
        if state:
            drafts.insert(
                0, ConversationMessage(role="assistant", content=json.dumps({"task_id": task, "status": state}))
            )
        for step in range(chance.randint(1, 4)):
            call = ToolCall(f"c{turn}-{step}", "query", json.dumps({"path": f"/srv/{chance.choice(_NAMES)}.py"}))
            drafts += [
                ConversationMessage(role="assistant", content=_talk(chance, 2), tool_calls=(call,)),
                ConversationMessage(role="tool", content=_result(chance), tool_call_id=call.call_id),
            ]
        drafts.append(ConversationMessage(role="assistant", content=_talk(chance, 6)))
        for draft in drafts:
            events.append(_event(len(events), draft))
            total += events[-1].tokens
    return events


def talk_window(size: int) -> list[WindowEvent]:
    """Return a conversation of about so many tokens, without tools."""
    chance = random.Random(2)
    events: list[WindowEvent] = []
    total = 0
    while total < size:
        role = "user" if len(events) % 2 == 0 else "assistant"
        message = ConversationMessage(role=role, content=_talk(chance, chance.randint(1, 6)))
        events.append(_event(len(events), message))
        total += events[-1].tokens
    return events


def _event(at: int, message: ConversationMessage) -> WindowEvent:
    is_state = message.content.startswith('{"task_id"')
    category = Category.SYSTEM_OUTPUT if message.role == "tool" else Category.DIALOG
    return WindowEvent(
        event_id=f"e{at}",
        number=at + 1,
        category=Category.INTERNAL if is_state else category,
        message=message,
        kind="workflow" if is_state else "tool_output" if message.role == "tool" else "message",
        at=_START + at * 45 * _SECOND,
        author="human:anna" if message.role == "user" else "agent:worker",
        agent_id="worker",
        tokens=message_tokens(message),
        item_id=f"window:s1:worker/e{at}/1.1",
    )


def _talk(chance: random.Random, sentences: int) -> str:
    return " ".join(
        chance.choice(_FACTS if chance.random() < _FACT_SHARE else _SENTENCES).format(
            name=chance.choice(_NAMES),
            other=chance.choice(_NAMES),
            adjective=chance.choice(_ADJECTIVES),
            action=chance.choice(_ACTIONS),
            number=chance.randint(100, 99_999),
            small=chance.randint(2, 64),
            month=chance.randint(1, 12),
            day=chance.randint(1, 28),
            ticket=f"{chance.choice(('OPS', 'WEB'))}-{chance.randint(100, 9_999)}",
        )
        for _ in range(sentences)
    )


def _result(chance: random.Random) -> str:
    number = chance.randint(10, 120)
    return chance.choice((_table, _log, _json, _tests, _trace, _code))(chance, number)


def _table(chance: random.Random, rows: int) -> str:
    lines = ["id,customer,amount,region"]
    lines += [
        f"{at},c{chance.randint(1, 999)},{chance.randint(1, 99_999) / 100},{chance.choice(_NAMES)}"
        for at in range(rows)
    ]
    return "\n".join(lines)


def _log(chance: random.Random, lines: int) -> str:
    levels = ("INFO",) * 18 + ("WARN", "ERROR")
    return "\n".join(
        f"2026-03-02 10:{at // 60:02}:{at % 60:02} {chance.choice(levels)} {chance.choice(_NAMES)}: request "
        f"{chance.randint(1, 10**6)} took {chance.randint(1, 900)} ms"
        for at in range(lines)
    )


def _json(chance: random.Random, items: int) -> str:
    values = [{"id": f"u{at}", "score": chance.random(), "state": chance.choice(_ADJECTIVES)} for at in range(items)]
    return json.dumps({"total": items, "items": values})


def _tests(chance: random.Random, tests: int) -> str:
    lines = [
        f"tests/test_{chance.choice(_NAMES)}_{at}.py::test_{chance.choice(_ACTIONS)} PASSED" for at in range(tests)
    ]
    lines[tests // 2] = f"tests/test_{tests}.py::test_{chance.choice(_ACTIONS)} FAILED - AssertionError: {tests} != 4"
    return "\n".join([*lines, f"1 failed, {tests - 1} passed in 3.{tests}s"])


def _trace(chance: random.Random, frames: int) -> str:
    lines = [
        f'  File "/srv/{chance.choice(_NAMES)}.py", line {at}, in load\n    return call()' for at in range(frames // 3)
    ]
    return "\n".join(["Traceback (most recent call last):", *lines, f"KeyError: 'customer_{frames}'"])


def _code(chance: random.Random, lines: int) -> str:
    body = [f"    {chance.choice(_ACTIONS)}_{at} = {chance.choice(_NAMES)}.load({at})" for at in range(lines)]
    return "\n".join(["import os", "", "def load(path: str) -> Rows:", *body, "    return rows"])


def _source(events: list[WindowEvent]) -> CompactionSource:
    return CompactionSource(events, (), _TARGET, _KEEP_RECENT, approximate_tokens)


def _cpu(events: list[WindowEvent], strategy: StrategyName) -> float:
    gc.collect()
    before = time.process_time()
    asyncio.run(Compactor().compact(_source(events), strategy, ExtractiveSummariser()))
    return time.process_time() - before


def _read_ahead(name: str, events: list[WindowEvent]) -> Row:
    """Measure a first compaction of messages that were read in the background as they came."""

    async def read(events: list[WindowEvent]) -> None:
        reader = WindowReader()
        while await reader.read(events):
            pass

    others = [structs.replace(event, item_id=f"another {event.item_id}") for event in events]
    asyncio.run(read(others))
    return limited(
        f"compaction.{name}_first_after_reading", _cpu(others, "sliding_window"), "s CPU", below=_BELOW_SECONDS
    )


def _analysis(events: list[WindowEvent]) -> float:
    """Measure the text analysis of the same texts."""
    gc.collect()
    before = time.process_time()
    for event in events:
        for token in tokens(event.message.content):
            for word in words(token):
                stem(word)
    return time.process_time() - before


def _latency(name: str, events: list[WindowEvent], rounds: int) -> Row:
    pairs = [(_cpu(events, "sliding_window"), _analysis(events)) for _ in range(rounds)]
    row = compared(pairs).row(f"compaction.{name}", "s CPU p95", "text analysis for search")
    p95 = quantiles([ours for ours, _ in pairs], n=20)[-1]
    limit = limited("", p95, "s CPU p95", below=_BELOW_SECONDS)
    return Row(row.name, limit.value, limit.unit, row.baseline, row.ratio, limit.target, limit.met)


def _strategy(strategy: StrategyName, events: list[WindowEvent], rounds: int) -> Row:
    pairs = [(_cpu(events, strategy), _cpu(events, "sliding_window")) for _ in range(rounds)]
    return compared(pairs).row(f"compaction.{strategy}", "s CPU", "sliding window")


def _growth(name: str, window: Callable[[int], list[WindowEvent]], large: int, rounds: int) -> Row:
    """Compare the time per token of a large window with that of the small one."""
    small, grown = window(_SMALL), window(large)
    sizes = [sum(event.tokens for event in events) / 100_000 for events in (grown, small)]
    for events in (grown, small):
        _cpu(events, "sliding_window")
    pairs = [
        (_cpu(grown, "sliding_window") / sizes[0], _cpu(small, "sliding_window") / sizes[1])
        for _ in range(max(rounds // 6, 1))
    ]
    return compared(pairs).row(
        f"compaction.{name}_{large // 1000}k", "s CPU/100k", f"{_SMALL // 1000}k tokens", at_most=_LINEAR
    )


def _pause(events: list[WindowEvent]) -> Row:
    """Measure the longest pause of an event loop while a window is compacted."""

    async def longest() -> float:
        running = asyncio.create_task(Compactor().compact(_source(events), "sliding_window", ExtractiveSummariser()))
        pauses = []
        while not running.done():
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            pauses.append(time.perf_counter() - before)
        return sorted(pauses)[-max(len(pauses) // 100, 1)] * 1_000

    return limited("compaction.loop_pause", min(asyncio.run(longest()) for _ in range(3)), "ms p99", below=_PAUSE_MS)


def _memory(events: list[WindowEvent]) -> Row:
    """Measure the most memory that a compaction takes, for each token of its window."""
    size = sum(event.tokens for event in events)
    tracemalloc.start()
    asyncio.run(Compactor().compact(_source(events), "sliding_window", ExtractiveSummariser()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return limited("compaction.memory", peak / size, "bytes/token", below=_BYTES_PER_TOKEN)
