"""Every event of a call carries the call's correlation ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.world import SESSION, wire_form
from weftline.app.dispatch import CallContext
from weftline.kernel.correlation import Correlation
from weftline.sessions.events.model import EventQuery
from weftline.sessions.events.sql import EventStore
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from support.world import Caller, World
    from weftline.kernel.events import StoredEvent

TURN = Correlation(turn_id="t1", task_id="k1", run_id="r1", trace_id="ab" * 16, span_id="cd" * 8)
BOARD = f"board:{SESSION}"
ENVELOPE = {
    "schema_version": "0.1.0",
    "context_id": "c1",
    "scope": "turn",
    "lifecycle": "draft",
    "created_at": "2026-11-15T00:00:00Z",
}
# In an order in which each call succeeds.
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("board.write", {"session_id": SESSION, "key": "goal", "value": "ship"}),
    ("board.snapshot", {"session_id": SESSION, "label": "before"}),
    ("board.delete", {"session_id": SESSION, "key": "goal"}),
    ("board.restore_snapshot", {"session_id": SESSION, "label": "before"}),
    ("message.add", {"session_id": SESSION, "content": "Ready."}),
    ("message.set_visibility", {"session_id": SESSION, "message_id": 1, "visibility": "private"}),
    ("memory.set", {"key": "next", "value": "x"}),
    ("memory.delete", {"key": "next"}),
    ("context.push", {"knowledge": [{"key": "cause", "value": "the cache"}], "if_version": 0}),
    ("context.pull", {"session_id": SESSION}),
    ("history.branch", {"context_id": BOARD, "branch": "idea"}),
    ("board.write", {"session_id": SESSION, "key": "goal", "value": "sail", "branch": "idea"}),
    ("history.merge", {"context_id": BOARD, "from_context_id": f"{BOARD}@idea"}),
    ("history.rollback", {"context_id": BOARD, "target_version": "1"}),
    ("missing.report", {"session_id": SESSION, "question": "Why?", "missing_id": "why"}),
    ("missing.request", {"missing_id": "why", "form": "user_question"}),
    ("missing.request", {"missing_id": "why", "form": "retrieval"}),
    ("missing.resolve", {"missing_id": "why", "answer": "So."}),
    ("records.add", {"session_id": SESSION, "records": [ENVELOPE]}),
    ("records.set_lifecycle", {"record_id": "c1", "lifecycle": "injected"}),
    ("records.redact", {"item_id": f"{BOARD}/goal/1.1", "state": "removed", "reason": "a name"}),
    ("bundle.export", {"session_id": SESSION}),
    ("session.create", {"purpose": "another", "session_id": "s2"}),
    ("session.archive", {"session_id": "s2"}),
]


async def call_in_turn(caller: Caller, operation: str, raw: dict[str, Any]) -> Any:
    app = caller.app
    return wire_form(await app.call(app.registry[operation], raw, CallContext(caller.credential, correlation=TURN)))


async def events_after(world: World, seq: int) -> list[StoredEvent]:
    return list(
        await world.app.database.read(Scope(world.tenant), lambda tx: EventStore(tx).find(EventQuery(), seq, 1_000))
    )


@pytest.mark.req("AC-12")
@pytest.mark.req("AC-15", part="operations that exist")
async def test_every_event_of_every_operation_has_the_ids_of_its_call(world: World) -> None:
    for operation, raw in STEPS:
        before = await world.last_event()
        await call_in_turn(world.admin, operation, raw)
        events = await events_after(world, before)
        assert events, f"{operation} publishes no event"
        assert [event.correlation for event in events] == [TURN] * len(events), operation


async def test_correlation_ids_do_not_carry_over_to_the_next_call(world: World) -> None:
    await call_in_turn(world.admin, *STEPS[0])
    before = await world.last_event()
    await world.planner.write("goal", "sail")
    (event,) = await events_after(world, before)
    assert event.correlation == Correlation()
