"""Helpers for compactions: long windows, and what became of their compactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.windows import create, ingest, message
from weftline.storage.sql.database import Scope
from weftline.windows.compaction.sql import CompactionStore

if TYPE_CHECKING:
    from support.world import Caller, World
    from weftline.windows.compaction.model import CompactedView, Compaction
    from weftline.windows.compaction.sql import AppliedCompaction

SMALL_TALK = (
    "We talked for a while about the weather in the mountains and the long road there, which was pleasant but settled "
    "nothing that anybody would need to know again. Everyone agreed that the view was nice and went on with the day. "
)


def conversation(turns: int, first: int = 0, words: str = SMALL_TALK) -> list[dict[str, Any]]:
    """Return messages of the user and the assistant in turn, of about 70 tokens each."""
    return [
        message(f"t{number}", f"Turn {number}. {words}", role="user" if number % 2 == 0 else "assistant")
        for number in range(first, first + turns)
    ]


async def long_window(caller: Caller, turns: int = 100, limit: int = 20_000, **settings: Any) -> str:
    """Make a window with a conversation, and return the id of its line."""
    made = await create(caller, model_max_tokens=limit, reserved_tokens=0, **settings)
    await say(caller, turns)
    return made["context_id"]


async def say(caller: Caller, turns: int, first: int = 0, **what: Any) -> None:
    said = conversation(turns, first, **what)
    for start in range(0, len(said), 100):
        await ingest(caller, *said[start : start + 100])


async def compact(caller: Caller, **options: Any) -> Any:
    return await caller.call("context.compact", session_id=caller.session, **options)


async def compactions(world: World, line_id: str) -> list[Compaction]:
    """Return the compactions of a line, oldest first."""
    found = await world.app.database.read(Scope(world.tenant), lambda tx: CompactionStore(tx).page(line_id, None, 100))
    return [*reversed(found)]


async def current(world: World, line_id: str) -> AppliedCompaction | None:
    return await world.app.database.read(Scope(world.tenant), lambda tx: CompactionStore(tx).current(line_id))


def text_of(view: CompactedView) -> str:
    return "\n".join([*(each.text for each in view.summaries), *(fact.text for fact in view.facts)])
