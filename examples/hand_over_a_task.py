"""Hand over a task to an agent in another installation, as one bundle.

Ada works in Berlin, Bob in Lisbon; only a file connects the two installations. The example uses a temporary folder:

    python examples/hand_over_a_task.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from weftline import Weftline
from weftline.errors import BundleDamaged

SESSION, TASK = "slow-orders", "find-the-cause"
QUESTION = "who-shortened-it"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        here, bundle = Path(folder), Path(folder) / "handoff.ndjson"
        async with Weftline.open(here / "berlin") as berlin, Weftline.open(here / "lisbon") as lisbon:
            await ada_works(berlin)
            digest = await ada_hands_over(berlin, bundle)
            await altered_bundle_is_refused(lisbon, bundle)
            await lisbon_imports(lisbon, bundle, digest)
            await bob_continues(lisbon)


async def ada_works(berlin: Weftline) -> None:
    """Ada's calls carry the task id; she also reports what she does not know."""
    heading("Berlin: Ada investigates slow orders")
    await berlin.agent.create("ada")
    await berlin.session.create("Why are orders slow?", session_id=SESSION, members=["ada"])
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
    listed = await ada.records.list(session_id=SESSION, task_id=TASK)
    print("records of the task:", ", ".join(f"{entry.type} {entry.id}" for entry in listed.records))


async def ada_hands_over(berlin: Weftline, bundle: Path) -> str:
    """Export the board, messages and open gaps, with their history."""
    heading("Berlin: Ada hands over")
    with bundle.open("wb") as file:
        exported = await berlin.acting_as("ada").export_to(
            file, scope="handoff", session_id=SESSION, task_id=TASK, recipient="bob", history=True
        )
    print(f"{exported.bundle_id}: {exported.records} records for bob")
    return exported.digest


async def altered_bundle_is_refused(lisbon: Weftline, bundle: Path) -> None:
    """An altered bundle is refused; the error names the line."""
    heading("In transit: somebody changes three seconds to nine")
    try:
        with altered_copy(bundle).open("rb") as file:
            await lisbon.import_from(file)
    except BundleDamaged as refused:
        print("refused:", refused.message)


async def lisbon_imports(lisbon: Weftline, bundle: Path, digest: str) -> None:
    """Import the bundle; the digest came on another channel and proves that this is Ada's file."""
    heading("Lisbon: the admin imports the bundle")
    with bundle.open("rb") as file:
        done = await lisbon.import_from(file, expected_digest=digest)
    print(f"session {done.session_id}: {done.versions} versions, {done.messages} message, {done.records} records")


async def bob_continues(lisbon: Weftline) -> None:
    """Bob reads the board, the messages and the open question; he answers it and continues the task."""
    heading("Lisbon: Bob continues")
    await lisbon.agent.create("bob")
    await lisbon.session.add_members(SESSION, ["bob"])
    bob = lisbon.acting_as("bob").with_correlation(task_id=TASK)
    for key in (await bob.board.list_keys(SESSION)).keys:
        print(f"{key.key}: {(await bob.board.read(SESSION, key.key)).value}")
    for message in (await bob.message.list(SESSION)).messages:
        print(f"{message.sender} wrote: {message.content}")
    (gap,) = (await bob.missing.list(session_id=SESSION)).missing
    print(f"open, {gap.severity}: {gap.question}")

    answered = await bob.missing.resolve(gap.missing_id, answer="The release script: it reads minutes as seconds.")
    print(f"{answered.status} by {answered.resolution_refs[0]}")
    await bob.board.write(SESSION, "findings", "The release script reads minutes as seconds.")
    listed = await bob.records.list(session_id=SESSION, task_id=TASK, types=["context_item"])
    print("one task, two installations:", ", ".join(entry.id for entry in listed.records))


def altered_copy(bundle: Path) -> Path:
    copy = bundle.with_suffix(".altered")
    copy.write_bytes(bundle.read_bytes().replace(b"to 3 s", b"to 9 s"))
    return copy


def heading(text: str) -> None:
    print(f"\n== {text}")


if __name__ == "__main__":
    asyncio.run(main())
