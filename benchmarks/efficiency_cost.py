"""Cost of comparing an answer with its prompt, and what the server's other callers notice of it.

Prompts from windows of several sizes are reported with and without an answer: the CPU time of the process that the
answer adds, embeddings included, and by how much it delays the event loop at most, as a task sees that yields to it all
the time. Threads and the garbage collector are set up as in a server: a full collection stops all threads.
"""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.harness import Row, in_subprocess
from benchmarks.servers import TENANT, call, folder
from weftline.app.app import App
from weftline.kernel.thread_pools import always_short_turns
from weftline.settings import Settings
from weftline.transports.server import tune_garbage_collection

if TYPE_CHECKING:
    from collections.abc import Awaitable

_USAGE = {"input_tokens": 1_000, "output_tokens": 100}
_SESSION = "bench"
_BATCH = 200
_TOPICS = ("cache", "invoice", "release", "badge", "cluster", "budget", "review", "harbour", "ticket", "metric")
# A pause that a caller of a busy server does not notice.
_MAX_LOOP_MS = 50


class Size(NamedTuple):
    """Events of the window, and characters of the answer."""

    name: str
    events: int
    answer: int


class Effort(NamedTuple):
    """Which prompts, and how often each is reported with and without an answer."""

    sizes: tuple[Size, ...]
    rounds: int


class Cost(NamedTuple):
    """Seconds of CPU, and the longest time for which the event loop did nothing else."""

    cpu: float
    longest: float


_SIZES = (Size("usual", 60, 1_500), Size("long", 1_000, 20_000), Size("largest", 10_000, 500_000))


def run(*, quick: bool) -> list[Row]:
    return in_subprocess(_measured, Effort(_SIZES[:1], 2) if quick else Effort(_SIZES, 7))


def _measured(effort: Effort) -> list[Row]:
    return asyncio.run(_measure(*effort))


async def _measure(sizes: tuple[Size, ...], rounds: int) -> list[Row]:
    rows: list[Row] = []
    with folder() as data:
        app = App(Settings(database_url=str(data / "weftline.db"), data_dir=str(data), rate_limits="off"))
        await app.open(background=False)
        always_short_turns()
        tune_garbage_collection()
        try:
            await app.tenants.create(TENANT)
            for size in sizes:
                rows += await _of_size(app, size, rounds)
        finally:
            await app.close()
    return rows


async def _of_size(app: App, size: Size, rounds: int) -> list[Row]:
    session = f"{_SESSION}-{size.name}"
    await call(app, "session.create", session_id=session, purpose="a benchmark")
    events = [{"event_id": f"e{number}", "content": _text(number)} for number in range(size.events)]
    for start in range(0, size.events, _BATCH):
        await call(app, "context.ingest", session_id=session, events=events[start : start + _BATCH])
    answer = " ".join(_text(number * 7) for number in range(size.answer // 50))[: size.answer]
    costs: dict[bool, list[Cost]] = {True: [], False: []}
    prompt: dict[str, Any] = {}
    for number in range(2 * rounds):
        has_answer = number % 2 == 0
        prompt = await call(
            app, "context.assemble", session_id=session, task_description=f"What about {_TOPICS[number % 10]}?"
        )
        report = {"session_id": session, "receipt_id": prompt["receipt_id"], "usage": _USAGE}
        costs[has_answer].append(
            await _cost(call(app, "context.emit_metrics", **report, **({"answer": answer} if has_answer else {})))
        )
    added = median(each.cpu for each in costs[True]) - median(each.cpu for each in costs[False])
    longest = median(each.longest for each in costs[True]) * 1_000
    of = f"{len(prompt['blocks'])} blocks, {prompt['tokens']} tokens, answer of {size.answer} characters"
    name = f"efficiency_cost.{size.name}"
    return [
        Row(f"{name}.cpu", round(added * 1_000, 1), f"ms of CPU; {of}"),
        Row(
            f"{name}.loop",
            round(longest, 1),
            "ms, longest delay of the event loop, median",
            target=f"at most {_MAX_LOOP_MS}",
            met=longest <= _MAX_LOOP_MS,
        ),
    ]


async def _cost(work: Awaitable[Any]) -> Cost:
    longest, done = 0.0, False

    async def watch() -> None:
        nonlocal longest
        before = time.perf_counter()
        while not done:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest, before = max(longest, now - before - 0.001), now

    watcher = asyncio.create_task(watch())
    await asyncio.sleep(0)
    started = time.process_time()
    await work
    spent = time.process_time() - started
    done = True
    await watcher
    return Cost(spent, longest)


def _text(number: int) -> str:
    topic, other = _TOPICS[number % 10], _TOPICS[number // 10 % 10]
    return f"Note {number}: the {topic} of team {number % 23} waits for the {other} since {number % 28 + 1} May."
