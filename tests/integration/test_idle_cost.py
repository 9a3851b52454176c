"""Idle agents and sessions use no task, thread or timer."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, NamedTuple

import pytest

from support.full_run import FULL

if TYPE_CHECKING:
    from support.world import World

IDLE = 2_000 if FULL else 500


class Cost(NamedTuple):
    """Tasks, threads and timers of a process."""

    tasks: int
    threads: int
    timers: int


async def cost(world: World) -> Cost:
    """Count after every job has run once."""
    await world.app.scheduler.drain(*(job.name for job in world.app.scheduler.jobs))
    await asyncio.sleep(0.05)
    scheduled = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    # asyncpg has a timer for each cached statement of each connection.
    timers = [timer for timer in scheduled if not timer.cancelled() and "asyncpg" not in repr(timer)]
    return Cost(len(asyncio.all_tasks()), threading.active_count(), len(timers))


async def add_idle_agents(world: World, numbers: range) -> None:
    """Add agents with a session each, a few at a time."""
    for start in numbers[::50]:
        names = [f"idle-{number}" for number in range(start, start + 50)]
        await asyncio.gather(*(world.admin.call("agent.create", agent_id=name) for name in names))
        await asyncio.gather(
            *(world.admin.call("session.create", session_id=name, purpose="waiting") for name in names)
        )


@pytest.mark.req("MW-13")
async def test_idle_agents_and_sessions_cost_no_task_thread_or_timer(world: World) -> None:
    await add_idle_agents(world, range(100))
    few = await cost(world)
    await add_idle_agents(world, range(100, IDLE))
    many = await cost(world)
    # A poll of a job, or the timeout of a transaction, may be under way.
    assert many.tasks <= few.tasks + 1
    assert many.threads <= few.threads + 1
    assert many.timers <= few.timers + 3
