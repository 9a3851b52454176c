"""Correlation ids of a call, and helpers that find the events carrying them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from weftline.kernel.correlation import Correlation
from weftline.records.event_classes import to_cloud_event
from weftline.sessions.events.model import EventQuery
from weftline.sessions.events.sql import EventStore
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from weftline.app.app import App
    from weftline.kernel.events import StoredEvent

# Native ids of other systems may contain any character.
TURN, TASK, TOOL_CALL = "turn/7;é=,%", "task-😀", "call_1"
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"
_ESCAPED_TURN, _ESCAPED_TASK = (quote(text, safe="") for text in (TURN, TASK))
BAGGAGE = (
    f"user=dana,weftline.turn_id={_ESCAPED_TURN} , "
    f"weftline.task_id={_ESCAPED_TASK};p=1,weftline.tool_call_id={TOOL_CALL}"
)
HEADERS = {"traceparent": TRACEPARENT, "baggage": BAGGAGE}
META = {
    "traceparent": TRACEPARENT,
    "weftline/turn_id": TURN,
    "weftline/task_id": TASK,
    "weftline/tool_call_id": TOOL_CALL,
}
CORRELATION = Correlation(turn_id=TURN, task_id=TASK, tool_call_id=TOOL_CALL, trace_id=TRACE, span_id=SPAN)


async def events_of(app: App, tenant: str, **wanted: str) -> list[StoredEvent]:
    """Return the events with these correlation ids."""
    return list(await app.database.read(Scope(tenant), lambda tx: EventStore(tx).find(EventQuery(**wanted), 0, 1_000)))


async def the_event(app: App, tenant: str = "default", **wanted: str) -> StoredEvent:
    """Return the one event of the turn and the task; check its ids as a CloudEvent."""
    (by_turn,) = await events_of(app, tenant, turn_id=TURN, **wanted)
    (by_task,) = await events_of(app, tenant, task_id=TASK, **wanted)
    assert by_turn == by_task
    cloud_event = to_cloud_event(by_turn, "urn:weftline:here")
    assert (cloud_event.turnid, cloud_event.taskid, cloud_event.toolcallid) == (TURN, TASK, TOOL_CALL)
    assert cloud_event.traceparent == TRACEPARENT
    return by_turn
