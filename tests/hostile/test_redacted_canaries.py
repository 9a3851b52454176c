"""A redacted item against every operation and resource: nobody sees what it was, except an auditor who asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from test_canaries import look_everywhere, settings

from support.canaries import PRIVATE, Canaries, plant_everywhere, principals
from support.full_run import FULL
from support.records import all_records
from support.undone import undo_writes
from support.world import SESSION, outcome, refused
from weftline.app.dispatch import CallContext

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("AC-11")
__all__ = ["settings"]
READERS = ("planner", "analysis", "chief", "admin") if FULL else ("planner", "admin")
# What items of this test are: prefixes of their ids.
KINDS = {"board", "message", "memory", "context", "window"}
# Records show private memories by their digests only.
MEMORIES = {
    "memory:planner/goal/1.1": "memory: global",
    f"memory:planner:{SESSION}/goal/1.1": "memory: of a session",
    f"memory:planner:{PRIVATE}/goal/1.1": "memory: of the private session",
}
AUDITED = {f"board:{SESSION}/open/1.1": "board: open key", f"message:{SESSION}/1": "message: public"}
AUDITOR: dict[str, Any] = {"kind": "human", "permissions": ["read", "audit", "admin"]}


async def redact_all(author: Caller, canaries: Canaries) -> dict[str, str]:
    """Redact everything that the author wrote; return the places by item."""
    written = dict(MEMORIES)
    for session in (SESSION, PRIVATE, None):
        where = {} if session is None else {"session_id": session}
        for entry in await all_records(author, types=["context_item"], **where):
            shown = await author.call("records.show", record_id=entry["id"], with_content=True, **where)
            seen = canaries.seen(str(shown.get("content")))
            # Agents are bound by definitions and layers as they are, and cannot redact them.
            if seen and not entry["id"].startswith(("agent:", "layer:")):
                written[entry["id"]] = seen.pop()
    return {item_id: place for item_id, place in written.items() if await _redact(author, item_id) == "ok"}


async def _redact(author: Caller, item_id: str) -> str:
    return await outcome(author.call("records.redact", item_id=item_id, state="removed", reason="a name"))


async def use_everything(planner: Caller) -> None:
    """Let prompts, searches, pulls and pins read what is redacted afterwards."""
    await planner.call("context.pull", session_id=SESSION)
    await planner.call("context.assemble", session_id=SESSION, task_description="What do the notes say of the page?")
    await planner.call("pin.add", session_id=SESSION, key="open")
    for query in ("canary", "page", "plan"):
        await planner.call("search.query", session_id=SESSION, query=query)


async def test_nobody_but_an_auditor_sees_a_redacted_item(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    callers = await principals(world)
    canaries = await plant_everywhere(world, callers)
    await use_everything(world.planner)
    redacted = await redact_all(world.planner, canaries)
    assert {item_id.partition(":")[0] for item_id in redacted} >= KINDS
    await world.index_sessions()
    auditor = await world.admin.create_agent("auditor", **AUDITOR)
    undo_writes(world, monkeypatch)
    places = Canaries({place: canaries.places[place] for place in redacted.values()}, canaries.ids)
    for name in READERS:
        sights = await look_everywhere(world, CallContext(callers[name].credential), places)
        assert not sights, f"{name} sees what is redacted:\n" + "\n".join(map(str, sights.items()))
    for item_id, place in AUDITED.items():
        revealed = await auditor.call("records.reveal", item_id=item_id, reason="a review")
        assert (revealed["content"], revealed["redaction_state"]) == (canaries.places[place], "removed")
        assert item_id in redacted


async def test_only_an_auditor_reveals_and_the_audit_log_says_so(world: World) -> None:
    await world.planner.write("open", "the safe is behind the mirror")
    await _redact(world.planner, f"board:{SESSION}/open/1.1")
    asked = {"item_id": f"board:{SESSION}/open/1.1", "reason": "a complaint"}
    for caller in (world.planner, world.admin):
        with refused("PERMISSION_DENIED"):
            await caller.call("records.reveal", **asked)
    auditor = await world.admin.create_agent("auditor", **AUDITOR)
    assert (await auditor.call("records.reveal", **asked))["content"] == "the safe is behind the mirror"
    for admin in (world.admin, await world.admin.create_agent("chief2", kind="human", permissions=["read", "admin"])):
        with refused("PERMISSION_DENIED"):
            await admin.call("key.create", agent_id="auditor")
    rows = [each for each in await world.admin.audit() if each["action"] == "records.reveal"]
    (row,) = [each for each in rows if each["target"] == asked["item_id"] and each["actor"].endswith("auditor")]
    assert (row["target"], row["detail"]["reason"]) == (asked["item_id"], "a complaint")
