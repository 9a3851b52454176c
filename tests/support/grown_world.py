"""A tenant that has grown: many of everything that a member can add to one session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from support.world import SESSION

if TYPE_CHECKING:
    from support.world import World

_EVENTS_OF_A_CALL = 100


async def grow(world: World, many: int) -> None:
    """Fill a session, the memory and the window of the planner."""
    planner = world.planner
    await asyncio.gather(*(planner.write(f"key_{number}", f"value {number}") for number in range(many)))
    await asyncio.gather(*(planner.call("memory.set", key=f"key_{number}", value=number) for number in range(many)))
    texts = [f"Message {number} about the retry budget." for number in range(many)]
    await asyncio.gather(*(planner.call("message.add", session_id=SESSION, content=text) for text in texts))
    await planner.call("board.snapshot", session_id=SESSION, label="first")
    await planner.write("key_1", "changed")
    await planner.call("board.snapshot", session_id=SESSION, label="second")
    events = [{"event_id": f"e{number}", "content": f"Decision {number}."} for number in range(many)]
    for start in range(0, many, _EVENTS_OF_A_CALL):
        await planner.call("context.ingest", session_id=SESSION, events=events[start : start + _EVENTS_OF_A_CALL])
