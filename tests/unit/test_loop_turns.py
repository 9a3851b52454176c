"""Steps are started in fair turns, few in each iteration of the event loop."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from weftline.kernel.packed_text import LoopTurns


async def started(turns: LoopTurns, order: list[str], count: int) -> list[int]:
    """Wait until all are started; return how many were in each iteration."""
    of_iterations, before = [], len(order)
    while len(order) < count:
        await asyncio.sleep(0)
        of_iterations.append(len(order) - before)
        before = len(order)
    assert not len(turns)
    return of_iterations


async def test_a_caller_with_many_requests_is_not_ahead_of_others() -> None:
    turns = LoopTurns()
    order: list[str] = []
    for _ in range(1_000):
        turns.start(("t", "many"), partial(order.append, "many"))
    turns.start(("t", "one"), partial(order.append, "one"))
    turns.start(("other", "one"), partial(order.append, "other"))
    await started(turns, order, 1_002)
    assert order.index("one") < 20
    assert order.index("other") < 20


async def test_many_agents_of_one_tree_or_tenant_are_not_ahead_either() -> None:
    turns = LoopTurns()
    order: list[str] = []
    for number in range(1_000):
        turns.start(("t", f"root/agent-{number}"), partial(order.append, "many"))
    for _ in range(3):
        turns.start(("t", "one"), partial(order.append, "one"))
    await started(turns, order, 1_003)
    assert [place for place, name in enumerate(order) if name == "one"][-1] < 20


async def test_few_are_started_in_an_iteration_and_fewer_if_each_takes_long() -> None:
    turns = LoopTurns()
    order: list[str] = []
    for _ in range(500):
        turns.start(("t", "a"), partial(order.append, "a"))
    assert max(await started(turns, order, 500)) <= 16

    def slow() -> None:
        order.append("slow")
        time.sleep(0.005)

    for _ in range(60):
        turns.start(("t", "a"), slow)
    assert max((await started(turns, order, 560))[-5:]) == 1


async def test_a_lone_request_is_started_at_once() -> None:
    turns = LoopTurns()
    order: list[str] = []
    for _ in range(3):
        turns.start(("t", "a"), partial(order.append, "a"))
        assert order
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert order == ["a"] * 3


async def test_who_waits_for_a_turn_may_be_cancelled() -> None:
    turns = LoopTurns()
    waiting = [asyncio.create_task(turns.wait(("t", "a"))) for _ in range(50)]
    await asyncio.sleep(0)
    for task in waiting[::2]:
        task.cancel()
    async with asyncio.timeout(30):
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert sum(each is None for each in ended) >= 25
    assert not len(turns)
