"""Persistent memory of an agent: push, pull, conflicts, and rollback.

The example uses a temporary folder:

    python examples/persistent_memory.py
"""

from __future__ import annotations

import asyncio
import tempfile

from weftline import Weftline
from weftline.errors import PermissionDenied, SelfModification, VersionConflict

KNOWLEDGE = "context:researcher:learned_knowledge"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Weftline.open(folder) as weftline:
            await weftline.agent.create("researcher")
            await weftline.agent.define("researcher", role="Finds out why orders are slow.")
            researcher = weftline.acting_as("researcher")
            await push_and_pull(weftline, researcher)
            await change_the_definition(weftline, researcher)
            await roll_back(weftline, researcher)


async def push_and_pull(weftline: Weftline, researcher: Weftline) -> None:
    """One session pushes what it learned; the next one pulls it."""
    heading("Push and pull")
    await weftline.session.create("Why did orders become slow?", session_id="monday", members=["researcher"])
    print((await researcher.context.pull("monday")).message)
    pushed = await researcher.context.push(
        knowledge=[
            {"key": "cause", "value": "The price cache went from 300 s to 3 s on Tuesday."},
            {"key": "checked", "value": ["the database", "the network", "the price cache"]},
            {"key": "report", "value": "# Slow orders\n\nThe cache is cold.", "memory_type": "work_artifacts"},
        ],
        session_id="monday",
        reason="Found it",
        step="investigate",
    )
    print(f"pushed: v{pushed.previous_version} -> v{pushed.version}", [entry.key for entry in pushed.changed])

    await weftline.session.create("Prevent slow orders", session_id="tuesday", members=["researcher"])
    await researcher.context.pull("tuesday")
    known = await researcher.context.read(session_id="tuesday", memory_type="learned_knowledge", key="cause")
    print("the next session knows:", known.entries[0].value)

    try:
        await researcher.agent.define("researcher", guardrails=[])
    except SelfModification as refused:
        print("an agent cannot change its definition:", refused.code)


async def change_the_definition(weftline: Weftline, researcher: Weftline) -> None:
    """A session keeps its snapshot until it pulls again; versions are never mixed."""
    heading("Change the definition while a session is running")
    await weftline.agent.define("researcher", role="Finds out why orders are slow, and proposes one remedy.")
    snapshot = await researcher.context.read(session_id="tuesday")
    print("role before the pull:", snapshot.definition.role)
    pulled = await researcher.context.pull("tuesday")
    print(pulled.message)
    print("role after the pull:", pulled.context.role)

    try:
        await researcher.context.push(knowledge=[{"key": "cause", "value": "Unknown"}], if_version=1)
    except VersionConflict as conflict:
        changed = [entry["key"] for entry in conflict.context["changed_since"]]
        print(f"conflict: based on v1, current v{conflict.context['current_version']}, changed since: {changed}")


async def roll_back(weftline: Weftline, researcher: Weftline) -> None:
    """An admin finds a wrong change by blame and diff, and rolls it back."""
    heading("Roll back wrong knowledge")
    await weftline.history.snapshot(KNOWLEDGE, "reviewed")
    await researcher.context.push(
        knowledge=[{"key": "cause", "value": "It was the weather."}], session_id="tuesday", reason="Heard it somewhere"
    )
    for entry in (await weftline.history.blame(KNOWLEDGE)).entries:
        print(f"{entry.key}: version {entry.version} by {entry.author}, because: {entry.reason}")
    difference = await weftline.history.diff(KNOWLEDGE, "reviewed")
    print(difference.modified[0].diff)

    try:
        await researcher.history.rollback(KNOWLEDGE, "reviewed")
    except PermissionDenied as refused:
        print("the agent itself is refused:", refused.message)
    rolled_back = await weftline.history.rollback(KNOWLEDGE, "reviewed", reason="Not the weather")
    print(f"rolled back: v{rolled_back.from_version} -> v{rolled_back.version}, keys {rolled_back.written}")
    verified = await weftline.history.verify(KNOWLEDGE, deep=True)
    print("every hash matches:", verified.intact)


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


if __name__ == "__main__":
    asyncio.run(main())
