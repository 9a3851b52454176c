"""What a session learned is kept, taken up by the next one, and taken back when it turns out to be wrong.

Three stories of one agent, each a function. Run it as often as you like; it works in a folder of its own:

    python examples/remember_and_go_back.py
"""

from __future__ import annotations

import asyncio
import tempfile

from weft import Weft
from weft.errors import PermissionDenied, SelfModification, VersionConflict

KNOWLEDGE = "context:researcher:learned_knowledge"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Weft.open(folder) as weft:
            await weft.agent.create("researcher")
            await weft.agent.define("researcher", role="Finds out why orders are slow.")
            researcher = weft.acting_as("researcher")
            await push_what_was_learned(weft, researcher)
            await pull_without_breaking_the_session(weft, researcher)
            await go_back_to_a_known_good_state(weft, researcher)


async def push_what_was_learned(weft: Weft, researcher: Weft) -> None:
    """An agent keeps what it found out, and a later session does not have to find it again."""
    heading("A session learns something, and keeps it")
    await weft.session.create("Why did orders become slow?", session_id="monday")
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

    await weft.session.create("Prevent slow orders", session_id="tuesday")
    await researcher.context.pull("tuesday")
    known = await researcher.context.read("tuesday", memory_type="learned_knowledge", key="cause")
    print("the next session knows:", known.entries[0].value)

    try:
        await researcher.context.push(knowledge=[{"key": "guardrails", "value": "none"}], session_id="tuesday")
    except SelfModification as refused:
        print("and cannot change what it is:", refused.code)


async def pull_without_breaking_the_session(weft: Weft, researcher: Weft) -> None:
    """A session keeps what it pulled until it pulls again; then it has all of the new and nothing of the old."""
    heading("The agent is changed while it works")
    await weft.agent.define("researcher", role="Finds out why orders are slow, and proposes one remedy.")
    held = await researcher.context.read("tuesday")
    print("still at work as:", held.definition.role)
    pulled = await researcher.context.pull("tuesday")
    print(pulled.message)
    print("now at work as:", pulled.context.role)

    try:
        await researcher.context.push(knowledge=[{"key": "cause", "value": "Unknown"}], if_version=1)
    except VersionConflict as conflict:
        changed = [entry["key"] for entry in conflict.context["changed_since"]]
        print(f"made for v1, but it is at v{conflict.context['current_version']}: {changed} changed since")


async def go_back_to_a_known_good_state(weft: Weft, researcher: Weft) -> None:
    """A lead sees who changed what, when and why, and returns to a state that is known to be good."""
    heading("Wrong knowledge is found and taken back")
    await weft.history.snapshot(KNOWLEDGE, "reviewed")
    await researcher.context.push(
        knowledge=[{"key": "cause", "value": "It was the weather."}], session_id="tuesday", reason="Heard it somewhere"
    )
    for entry in (await weft.history.blame(KNOWLEDGE)).entries:
        print(f"{entry.key}: version {entry.version} by {entry.author}, because: {entry.reason}")
    difference = await weft.history.diff(KNOWLEDGE, "reviewed")
    print(difference.modified[0].diff)

    try:
        await researcher.history.rollback(KNOWLEDGE, "reviewed")
    except PermissionDenied as refused:
        print("the agent itself:", refused.message)
    back = await weft.history.rollback(KNOWLEDGE, "reviewed", reason="Not the weather")
    print(f"rolled back: v{back.from_version} -> v{back.version}, keys {back.written}")
    intact = await weft.history.verify(KNOWLEDGE, deep=True)
    print("every hash matches:", intact.intact)


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


if __name__ == "__main__":
    asyncio.run(main())
