"""Choosing tools for a task among the most that a tenant can register, and what that costs its neighbours."""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Row
from benchmarks.servers import ADMIN, TENANT, folder, open_app
from benchmarks.wire import run_async
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.prompts.tools.model import MAX_TOOLS, MAX_TOOLS_PER_CALL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weftline.app.app import App

_QUICK_TOOLS = 200
_TASKS = 20
_MILLISECONDS = 1_000
_AT_MOST_MS = 50.0
_NEIGHBOUR = "neighbour"
_ALTERNATING = ("send the letters of the Oslo office", "count the images of the Quito office")
_VERBS = ("read", "write", "list", "send", "delete", "copy", "check", "count", "sort", "merge")
_THINGS = ("file", "order", "ticket", "letter", "report", "contract", "image", "task", "team", "room")
_PLACES = ("Berlin", "Paris", "Oslo", "Lima", "Cairo", "Delhi", "Tokyo", "Quito", "Accra", "Perth")


def run(*, quick: bool) -> list[Row]:
    return run_async(_run(_QUICK_TOOLS if quick else MAX_TOOLS))


async def _run(tools: int) -> list[Row]:
    with folder() as data:
        app = await open_app(str(data / "weftline.db"))
        try:
            return await _measured(app, tools)
        finally:
            await app.close()


async def _measured(app: App, tools: int) -> list[Row]:
    for tenant in (TENANT, _NEIGHBOUR):
        await app.tenants.create(tenant)
        # Some of the generated descriptions look like instructions.
        admin = CallContext(Local(tenant, "admin"))
        await _call(app, admin, "layer.define", layer="tenant", policy={"injection": {"tool": "annotate"}})
    neighbour = CallContext(Local(_NEIGHBOUR, "admin"))
    await _register(app, 20, neighbour)
    alone = await _selecting(app, neighbour, "alone")
    registering = asyncio.create_task(_register(app, tools, ADMIN))
    beside = await _selecting(app, neighbour, "beside", while_running=registering)
    seconds = await registering
    app.lease_runner.rest = 0
    await app.scheduler.drain("search.embed_sessions")
    first = await _selecting(app, ADMIN, "new task")
    choosing = await _alternating(app)
    again = median([await _timed(lambda: _select(app, ADMIN, _ALTERNATING[1])) for _ in range(_TASKS)])
    return [
        Row("tool_selection.register", round(seconds * _MILLISECONDS / tools, 3), f"ms per tool ({tools:,})"),
        Row("tool_selection.new_task", round(first, 2), f"ms, among {tools:,} tools, with its embedding"),
        Row(
            "tool_selection.choose",
            round(choosing, 2),
            f"ms, among {tools:,} tools, of a task that was embedded before",
            target=f"at most {_AT_MOST_MS:g} ms",
            met=choosing <= _AT_MOST_MS,
        ),
        Row("tool_selection.same_task", round(again, 2), "ms, the recorded list"),
        Row("tool_selection.neighbour", round(alone, 2), "ms, in a tenant with 20 tools"),
        Row("tool_selection.neighbour.beside", round(beside, 2), "ms, while another tenant registers its maximum"),
    ]


async def _register(app: App, count: int, caller: CallContext) -> float:
    """Register tools; return the seconds that it took."""
    made = [_tool(number) for number in range(count)]
    started = time.perf_counter()
    for start in range(0, count, MAX_TOOLS_PER_CALL):
        await _call(app, caller, "tools.register", tools=made[start : start + MAX_TOOLS_PER_CALL])
    return time.perf_counter() - started


def _tool(number: int) -> dict[str, Any]:
    verb, thing, place = _VERBS[number % 10], _THINGS[number // 10 % 10], _PLACES[number // 100 % 10]
    description = f"{verb.title()}s {thing}s of the {place} office by their number, for department {number // 1_000}."
    properties = {"number": {"type": "integer", "description": f"Number of the {thing}"}}
    return {
        "name": f"{verb}_{thing}_{number}",
        "description": description,
        "input_schema": {"type": "object", "properties": properties},
    }


async def _selecting(
    app: App, caller: CallContext, note: str, while_running: asyncio.Task[float] | None = None
) -> float:
    """Return the median milliseconds of choosing for different tasks."""
    took: list[float] = []
    await _select(app, caller, "warm up")
    while len(took) < _TASKS or (while_running is not None and not while_running.done()):
        number = len(took)
        task = f"{_VERBS[number % 10]} a {_THINGS[number // 10 % 10]} to {_PLACES[number % 7]}, {note} {number}"
        took.append(await _timed(lambda task=task: _select(app, caller, task)))  # type: ignore[misc]
    return median(took)


async def _alternating(app: App) -> float:
    """Return the median milliseconds of choosing for two tasks in turn, whose vectors are cached."""
    took = [await _timed(lambda task=task: _select(app, ADMIN, task)) for task in _ALTERNATING * _TASKS]  # type: ignore[misc]
    return median(took)


async def _select(app: App, caller: CallContext, task: str) -> Any:  # noqa: ANN401 - JSON
    return await _call(app, caller, "tools.select", task_description=task)


async def _call(app: App, caller: CallContext, operation: str, **raw: Any) -> Any:  # noqa: ANN401 - JSON
    return await app.call(app.registry[operation], raw, caller)


async def _timed(work: Callable[[], Awaitable[Any]]) -> float:
    started = time.perf_counter()
    await work()
    return (time.perf_counter() - started) * _MILLISECONDS
