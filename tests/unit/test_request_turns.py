"""Requests are started in fair turns, few in each iteration of the event loop."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from weft.transports.http.request_turns import RequestTurns


async def started(turns: RequestTurns, order: list[str], count: int) -> list[int]:
    """Wait until all are started; return how many were in each iteration."""
    of_iterations, before = [], len(order)
    while len(order) < count:
        await asyncio.sleep(0)
        of_iterations.append(len(order) - before)
        before = len(order)
    assert not len(turns)
    return of_iterations


async def test_a_caller_with_many_requests_is_not_ahead_of_others() -> None:
    turns, order, loop = RequestTurns(), [], asyncio.get_running_loop()
    for _ in range(1_000):
        turns.start(("t", "many"), partial(order.append, "many"), loop)
    turns.start(("t", "one"), partial(order.append, "one"), loop)
    turns.start(("other", "one"), partial(order.append, "other"), loop)
    await started(turns, order, 1_002)
    assert order.index("one") < 20
    assert order.index("other") < 20


async def test_many_agents_of_one_tree_or_tenant_are_not_ahead_either() -> None:
    turns, order, loop = RequestTurns(), [], asyncio.get_running_loop()
    for number in range(1_000):
        turns.start(("t", f"root/agent-{number}"), partial(order.append, "many"), loop)
    for _ in range(3):
        turns.start(("t", "one"), partial(order.append, "one"), loop)
    await started(turns, order, 1_003)
    assert [place for place, name in enumerate(order) if name == "one"][-1] < 20


async def test_few_are_started_in_an_iteration_and_fewer_if_each_takes_long() -> None:
    turns, order, loop = RequestTurns(), [], asyncio.get_running_loop()
    for _ in range(500):
        turns.start(("t", "a"), partial(order.append, "a"), loop)
    assert max(await started(turns, order, 500)) <= 16

    def slow() -> None:
        order.append("slow")
        time.sleep(0.005)

    for _ in range(60):
        turns.start(("t", "a"), slow, loop)
    assert (await started(turns, order, 560))[-5:] == [1] * 5


async def test_a_lone_request_is_started_at_once() -> None:
    turns, order, loop = RequestTurns(), [], asyncio.get_running_loop()
    for _ in range(3):
        turns.start(("t", "a"), partial(order.append, "a"), loop)
        assert order
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert order == ["a"] * 3
