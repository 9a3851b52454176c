"""Cost of the content gate: a short board write, one of 1,000 tokens, and each with the gate switched off.

An agent writes ordinary text, different each time, on SQLite in one process. A short text needs no detector; a long one
does, and the figure is what its scan costs. Both run in turn on the same database.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from benchmarks.harness import SECOND_IN_MICROS, Row, compare
from benchmarks.servers import folder, prepare
from weft.app.app import App
from weft.app.dispatch import CallContext
from weft.capabilities.trust.gate import Admission, ContentGate
from weft.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.grown_board import Cost
    from weft.capabilities.trust.gate import IncomingContent
    from weft.kernel.operation import Operation

_CALLERS = 64
_KEYS = 4
_MAX_RATIO = 1.15
_OFF = "gate switched off"
# What agents write about their work, not what would suit the gate.
_SENTENCES = (
    "The retry budget is spent by the second attempt, so the queue must be drained before the deploy.",
    "Checkout latency rose to 840 ms after the index on orders was rebuilt.",
    "Finance approved the refund; the remaining invoices are due on the 14th.",
    "Two of the five regions have been migrated and the others wait for a maintenance window.",
    "The root cause is a race between the scheduler and the cleanup of expired leases.",
)


def run(*, quick: bool) -> list[Row]:
    # As the server does: several threads for one small matrix only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return asyncio.run(_run(rounds=2 if quick else 15, calls=2 if quick else 10))


async def _run(rounds: int, calls: int) -> list[Row]:
    with folder() as data:
        url = str(data / "weft.db")
        key = await prepare(url, [f"s{number}" for number in range(_CALLERS)], max_value_tokens=2_000)
        app = App(Settings(database_url=url, rate_limits="off"))
        # Without jobs: indexing what was written would be measured too.
        await app.open(background=False)
        rows = [
            await _row(app, key, "short", 200, rounds, calls, at_most=_MAX_RATIO),
            await _row(app, key, "1000_tokens", 4_400, max(rounds // 5, 1), 1),
        ]
        await app.close()
    return rows


async def _row(
    app: App, key: str, name: str, size: int, rounds: int, calls: int, *, at_most: float | None = None
) -> Row:
    context, texts, on = CallContext(key), _texts(size), app.registry["board.write"]
    off = replace(on, content=None)
    ours = _cost(app, on, context, texts, calls)
    theirs = _cost(app, off, context, texts, calls)

    async def without_gate() -> float:
        with _gate_switched_off():
            return await theirs()

    await ours()
    await without_gate()
    result = await compare(rounds, ours, without_gate)
    return result.row(f"write_gate.{name}", "us CPU/write", _OFF, at_most=at_most)


def _cost(app: App, operation: Operation, context: CallContext, texts: Iterator[str], calls: int) -> Cost:
    """Measure the CPU time of a write while all callers write at once, so that they share commits."""

    async def write(caller: int) -> None:
        for turn in range(calls):
            raw = {"session_id": f"s{caller}", "key": f"key_{turn % _KEYS}", "value": next(texts)}
            await app.call(operation, raw, context)

    async def measure() -> float:
        before = time.process_time()
        await asyncio.gather(*map(write, range(_CALLERS)))
        return (time.process_time() - before) / (_CALLERS * calls) * SECOND_IN_MICROS

    return measure


def _texts(size: int) -> Iterator[str]:
    for number in count():
        sentence = " ".join(_SENTENCES[(number + place) % len(_SENTENCES)] for place in range(size // 60 + 1))
        yield f"{number:06d} {sentence}"[:size]


@contextmanager
def _gate_switched_off() -> Iterator[None]:
    async def admit(_: Any, content: IncomingContent) -> Admission:  # noqa: ANN401 - the gate
        return Admission(content.text, None)

    with patch.object(ContentGate, "admit", admit):
        yield
