"""Fair sharing by tenant and principal: the queue, and the slots on top of it."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.kernel.errors import ServerBusy
from weftline.kernel.fair_queue import FairQueue, FairSlots, Shares, _Flows


def drain(queue: FairQueue[str]) -> list[str]:
    return list(iter(queue.pop, None))


def test_tenants_take_turns_however_much_one_has_queued() -> None:
    queue: FairQueue[str] = FairQueue()
    for n in range(100):
        queue.push("greedy", "a", f"greedy-{n}")
    queue.push("other", "b", "other-0")
    queue.push("other", "b", "other-1")
    assert drain(queue)[:4] == ["greedy-0", "other-0", "greedy-1", "other-1"]


def test_many_principals_do_not_give_a_tenant_more() -> None:
    queue: FairQueue[str] = FairQueue()
    for n in range(100):
        queue.push("greedy", f"agent-{n}", "greedy")
    for _ in range(10):
        queue.push("other", "b", "other")
    assert Counter(drain(queue)[:20]) == {"greedy": 10, "other": 10}


def test_principals_of_a_tenant_take_turns() -> None:
    queue: FairQueue[str] = FairQueue()
    for n in range(100):
        queue.push("t", "greedy", f"greedy-{n}")
    queue.push("t", "other", "other")
    assert "other" in drain(queue)[:2]


def test_many_agents_below_one_do_not_give_it_more() -> None:
    queue: FairQueue[str] = FairQueue()
    for n in range(100):
        queue.push("t", f"greedy/agent-{n}", "greedy")
        queue.push("t", "greedy", "greedy")
    for _ in range(10):
        queue.push("t", "other", "other")
    assert Counter(drain(queue)[:20]) == {"greedy": 10, "other": 10}


def test_agents_of_a_tree_take_turns() -> None:
    queue: FairQueue[str] = FairQueue()
    for n in range(100):
        queue.push("t", "tree/busy", f"busy-{n}")
    queue.push("t", "tree/calm", "calm")
    queue.push("t", "tree", "first")
    assert {"calm", "first"} < set(drain(queue)[:3])


def test_what_an_agent_costs_is_charged_to_its_tree() -> None:
    queue: FairQueue[str] = FairQueue()
    for n in range(10):
        queue.push("t", f"tree/agent-{n}", "tree")
        queue.push("t", "other", "other")
    first = [queue.pop(), queue.pop()]
    assert sorted(map(str, first)) == ["other", "tree"]
    queue.charge("t", "tree/agent-0", 5.0)
    assert [queue.pop() for _ in range(9)] == ["other"] * 9


def test_a_tree_and_an_agent_in_it_leave_places_to_their_neighbours() -> None:
    shares = Shares(8, 0.5)
    held = 0
    for agent in "abcd":
        while not shares.full("t", f"tree/{agent}"):
            shares.take("t", f"tree/{agent}")
            held += 1
        assert held == (2 if agent == "a" else 3)
    assert shares.full("t", "tree")
    assert not shares.full("t", "other")
    shares.take("t", "other")
    assert shares.full("t", "third")
    assert not shares.full("elsewhere", "tree")
    shares.give_back("t", "tree/a")
    assert not shares.full("t", "tree/d")


def test_items_of_a_principal_keep_their_order() -> None:
    queue: FairQueue[str] = FairQueue()
    for n in range(20):
        queue.push("t", "p", str(n))
    assert drain(queue) == [str(n) for n in range(20)]


def test_measured_cost_decides_who_is_next() -> None:
    queue: FairQueue[str] = FairQueue()
    served: list[str] = []
    for _ in range(200):
        queue.push("slow", "p", "slow")
        queue.push("quick", "p", "quick")
    while len(served) < 110 and (item := queue.pop()) is not None:
        served.append(item)
        queue.charge(item, "p", 1.0 if item == "slow" else 0.1)
    counts = Counter(served)
    assert 9 <= counts["quick"] / counts["slow"] <= 11


def test_a_pause_neither_saves_up_time_nor_ends_a_debt() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push("busy", "p", "busy")
    queue.push("steady", "p", "steady")
    assert queue.pop() == "busy"
    queue.charge("busy", "p", 1.0)
    # It has nothing queued for a moment, and still owes a second.
    queue.push("steady", "p", "steady")
    queue.push("busy", "p", "busy")
    assert [queue.pop(), queue.pop(), queue.pop()] == ["steady", "steady", "busy"]
    for _ in range(3):
        queue.push("busy", "p", "busy")
    queue.push("new", "p", "new")
    queue.push("new", "p", "new")
    # Who was away for long does not come first until it has caught up.
    assert drain(queue) == ["busy", "new", "busy", "new", "busy"]


def test_nobody_owes_anything_once_nobody_waits() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push("busy", "p", "busy")
    queue.charge("busy", "p", 100.0)
    assert queue.pop() == "busy"
    queue.push("busy", "p", "busy")
    queue.push("new", "p", "new")
    assert drain(queue) == ["busy", "new"]


def test_who_may_not_be_served_is_skipped_and_keeps_its_place() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push("full", "p", "full")
    queue.push("t", "full", "t-full")
    queue.push("t", "free", "t-free")
    assert queue.pop(lambda tenant, principal: "full" in {tenant, principal}) == "t-free"
    assert queue.pop(lambda *_: True) is None
    assert len(queue) == 2
    assert set(drain(queue)) == {"full", "t-full"}


def test_an_item_can_be_removed() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push("t", "p", "first")
    queue.push("t", "p", "second")
    assert queue.waiting("t", "p") == 2
    assert queue.remove("t", "p", "first")
    assert not queue.remove("t", "p", "first")
    assert not queue.remove("nobody", "p", "first")
    assert queue.waiting("t", "p") == 1
    assert drain(queue) == ["second"]
    queue.push("t", "p", "third")
    assert drain(queue) == ["third"]


def test_idle_flows_are_forgotten() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push("stays", "p", "stays")
    for n in range(10_000):
        queue.push(f"tenant-{n}", "p", "x")
        queue.push("stays", f"principal-{n}", "x")
        for _ in range(2):
            queue.pop()
        queue.charge(f"tenant-{n}", "p", 0.001)
    tenants = queue._flows
    stays = tenants._below["stays"]
    assert isinstance(stays, _Flows)
    assert len(tenants._below) < 1_000
    assert len(stays._below) < 1_000
    assert len(stays._schedule) < 1_000


Step = tuple[str, str, str, float]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["push", "pop", "remove", "charge", "skip"]),
            st.sampled_from("ABC"),
            st.sampled_from(["x", "y", "x/y", "x/z"]),
            st.floats(0, 2),
        ),
        max_size=200,
    )
)
def test_everything_pushed_is_served_or_removed_once(steps: list[Step]) -> None:
    queue: FairQueue[tuple[str, str, int]] = FairQueue()
    waiting: dict[tuple[str, str], list[tuple[str, str, int]]] = {}

    def served(item: tuple[str, str, int] | None) -> None:
        if item is not None:
            assert waiting[item[:2]].pop(0) == item

    for number, (step, tenant, principal, cost) in enumerate(steps):
        own = waiting.setdefault((tenant, principal), [])
        if step == "push":
            own.append((tenant, principal, number))
            queue.push(tenant, principal, own[-1])
        elif step == "pop":
            served(queue.pop())
        elif step == "skip":
            item = queue.pop(lambda t, p, skipped=(tenant, principal): (t, p) == skipped)  # type: ignore[misc]
            assert item is None or item[:2] != (tenant, principal)
            served(item)
        elif step == "charge":
            queue.charge(tenant, principal, cost)
        elif own:
            assert queue.remove(tenant, principal, own.pop())
        assert len(queue) == sum(len(items) for items in waiting.values())
        assert queue.waiting(tenant, principal) == len(own)
    while (last := queue.pop()) is not None:
        served(last)
    assert not any(waiting.values())
    assert not len(queue)


async def test_no_tenant_and_no_principal_holds_more_than_its_share() -> None:
    slots = FairSlots(8, share=0.5)
    for _ in range(3):
        await slots.take("t", "greedy")
    greedy = asyncio.create_task(slots.take("t", "greedy"))
    await asyncio.wait_for(slots.take("t", "neighbour"), 60)
    neighbour = asyncio.create_task(slots.take("t", "third"))
    await asyncio.wait_for(slots.take("other", "p"), 60)
    await asyncio.sleep(0)
    assert not greedy.done()
    assert not neighbour.done()
    slots.give_back("t", "greedy", 1.0)
    await asyncio.wait_for(neighbour, 60)
    assert not greedy.done()
    slots.give_back("t", "third", 0.1)
    await asyncio.wait_for(greedy, 60)


async def test_one_slot_serves_everybody() -> None:
    slots = FairSlots(1, share=0.5)
    served: list[str] = []

    async def work(tenant: str) -> None:
        async with slots.hold(tenant, "p"):
            served.append(tenant)
            await asyncio.sleep(0)

    await asyncio.gather(*(work("greedy") for _ in range(20)), work("other"))
    assert served.index("other") <= 2
    assert len(served) == 21


async def test_too_many_waiting_calls_of_one_principal_are_refused() -> None:
    slots = FairSlots(1, max_waiting=3)
    await slots.take("t", "p")
    waiting = [asyncio.create_task(slots.take("t", "p")) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(ServerBusy) as refused:
        await slots.take("t", "p")
    assert refused.value.context["retry_after_seconds"] >= 1
    other = asyncio.create_task(slots.take("t", "other"))
    await asyncio.sleep(0)
    assert not other.done()
    for task in [*waiting, other]:
        task.cancel()
    await asyncio.gather(*waiting, other, return_exceptions=True)
    slots.give_back("t", "p", 0.0)
    await asyncio.wait_for(slots.take("t", "p"), 60)


async def test_who_waits_too_long_is_refused_and_leaves_the_queue() -> None:
    slots = FairSlots(1, max_wait_seconds=0.01)
    await slots.take("t", "p")
    with pytest.raises(ServerBusy):
        await slots.take("other", "p")
    slots.give_back("t", "p", 0.0)
    await slots.take("other", "p")


async def test_a_slot_granted_to_a_cancelled_call_is_not_lost() -> None:
    slots = FairSlots(1)
    await slots.take("t", "p")
    waiting = asyncio.create_task(slots.take("t", "p"))
    await asyncio.sleep(0)
    slots.give_back("t", "p", 0.0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.wait_for(slots.take("t", "p"), 60)


async def test_holders_and_waiters_may_be_cancelled_together() -> None:
    slots = FairSlots(4)

    async def work() -> None:
        while True:
            async with slots.hold("t", "p"):
                await asyncio.sleep(0)

    for _ in range(20):
        tasks = [asyncio.create_task(work()) for _ in range(10)]
        for _ in range(3):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        assert {type(result) for result in await asyncio.gather(*tasks, return_exceptions=True)} == {
            asyncio.CancelledError
        }
    assert slots._free == 4
    assert not slots._shares._held
    assert not slots._queue
