"""A task goes from an agent in one installation to an agent in another, with everything it takes to go on.

Ada works in Berlin, Bob in Lisbon; nothing connects the two installations but a file. Run it as often as you like; it
works in a folder of its own:

    python examples/hand_over_a_task.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from weft import Weft
from weft.errors import BundleDamaged

SESSION, TASK = "slow-orders", "find-the-cause"
QUESTION = "who-shortened-it"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        here, bundle = Path(folder), Path(folder) / "handoff.ndjson"
        async with Weft.open(here / "berlin") as berlin, Weft.open(here / "lisbon") as lisbon:
            await ada_works(berlin)
            digest = await ada_hands_over(berlin, bundle)
            await nobody_can_alter_it(lisbon, bundle)
            await lisbon_takes_it(lisbon, bundle, digest)
            await bob_goes_on(lisbon)


async def ada_works(berlin: Weft) -> None:
    """Whatever Ada does is part of the task, and she says what she does not know."""
    heading("Berlin: Ada looks into slow orders")
    await berlin.session.create("Why are orders slow?", session_id=SESSION)
    await berlin.agent.create("ada")
    ada = berlin.acting_as("ada").with_correlation(task_id=TASK)
    await ada.board.write(SESSION, "scope", "Name the change that made orders slow. Change nothing.")
    await ada.board.write(SESSION, "findings", "The price cache was shortened from 300 s to 3 s.")
    await ada.message.add(SESSION, "The database and the network are fine, I checked both.")
    await ada.missing.report(
        SESSION,
        "Who shortened the price cache, and why?",
        severity="blocking",
        blocked_actions=["restore the cache"],
        missing_id=QUESTION,
    )
    done = await ada.records.list(session_id=SESSION, task_id=TASK)
    print("on record for the task:", ", ".join(f"{entry.type} {entry.id}" for entry in done.records))


async def ada_hands_over(berlin: Weft, bundle: Path) -> str:
    """One file holds the board, what was said and what is open; with its history, so that Lisbon can look back too."""
    heading("Berlin: Ada hands over")
    with bundle.open("wb") as file:
        told = await berlin.acting_as("ada").export_to(
            file, scope="handoff", session_id=SESSION, task_id=TASK, recipient="bob", history=True
        )
    print(f"{told.bundle_id}: {told.records} records for bob")
    return told.digest


async def nobody_can_alter_it(lisbon: Weft, bundle: Path) -> None:
    """A file that was changed on the way is refused, with the line that was touched."""
    heading("On the way: somebody makes nine seconds of three")
    try:
        with altered_copy(bundle).open("rb") as file:
            await lisbon.import_from(file)
    except BundleDamaged as refused:
        print("refused:", refused.message)


async def lisbon_takes_it(lisbon: Weft, bundle: Path, digest: str) -> None:
    """Lisbon was told the digest by another way, so it knows that this is Ada's file and no other."""
    heading("Lisbon: the admin takes it in")
    with bundle.open("rb") as file:
        told = await lisbon.import_from(file, expected_digest=digest)
    print(f"the session {told.session_id}: {told.versions} versions, {told.messages} message, {told.records} records")


async def bob_goes_on(lisbon: Weft) -> None:
    """Bob finds the board, what was said and the open question; he answers it and goes on with the same task."""
    heading("Lisbon: Bob goes on")
    await lisbon.agent.create("bob")
    bob = lisbon.acting_as("bob").with_correlation(task_id=TASK)
    for key in (await bob.board.list_keys(SESSION)).keys:
        print(f"{key.key}: {(await bob.board.read(SESSION, key.key)).value}")
    for message in (await bob.message.list(SESSION)).messages:
        print(f"{message.sender} said: {message.content}")
    (gap,) = (await bob.missing.list(session_id=SESSION)).missing
    print(f"open, {gap.severity}: {gap.question}")

    answered = await bob.missing.resolve(gap.missing_id, answer="The release script did: it took seconds for minutes.")
    print(f"{answered.status} by {answered.resolution_refs[0]}")
    await bob.board.write(SESSION, "findings", "The release script reads the cache's minutes as seconds.")
    done = await bob.records.list(session_id=SESSION, task_id=TASK, types=["context_item"])
    print("one task, two installations:", ", ".join(entry.id for entry in done.records))


def altered_copy(bundle: Path) -> Path:
    copy = bundle.with_suffix(".altered")
    copy.write_bytes(bundle.read_bytes().replace(b"to 3 s", b"to 9 s"))
    return copy


def heading(text: str) -> None:
    print(f"\n== {text}")


if __name__ == "__main__":
    asyncio.run(main())
