"""An application without background work, as one-shot commands open it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from support.world import Caller
from weftline.app.app import App

if TYPE_CHECKING:
    from support.world import World


async def test_a_one_shot_application_starts_no_task(world: World) -> None:
    before = asyncio.all_tasks()
    app = App(world.settings, clock=world.clock)
    await app.open(background=False)
    try:
        await world.planner.at(app).write("goal", "answered all the same")
        assert not [task for task in asyncio.all_tasks() - before if task.get_name().startswith("weftline-")]
    finally:
        await app.close()


async def test_events_can_be_awaited_without_background_work(world: World) -> None:
    app = App(world.settings, clock=world.clock)
    await app.open(background=False)
    try:
        planner: Caller = world.planner.at(app)
        after = await world.last_event()
        waiting = asyncio.create_task(planner.events(after=after, wait_seconds=60))
        await asyncio.sleep(0.05)
        # Written by another process, before and while this one listens.
        await world.planner.write("goal", "seen")
        async with asyncio.timeout(60):
            answer = await waiting
        assert [event["subject"] for event in answer["events"]] == ["goal"]
    finally:
        await app.close()
