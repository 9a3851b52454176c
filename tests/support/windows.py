"""Helpers to add events to windows and to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from support.world import Caller


def message(event_id: str, content: str = "text", **what: Any) -> dict[str, Any]:
    return {"event_id": event_id, "content": content, **what}


async def ingest(caller: Caller, *events: dict[str, Any], **where: Any) -> Any:
    return await caller.call("context.ingest", session_id=caller.session, events=list(events), **where)


async def window_events(caller: Caller, **which: Any) -> Any:
    return await caller.call("window.events", session_id=caller.session, **which)


async def contents(caller: Caller, **which: Any) -> list[str]:
    """Return the contents of the events in a window, oldest first."""
    return [event["content"] for event in (await window_events(caller, **which))["events"]]


async def create(caller: Caller, agent_id: str | None = None, **settings: Any) -> Any:
    return await caller.call("window.create", session_id=caller.session, agent_id=agent_id, **settings)


async def show(caller: Caller, agent_id: str | None = None) -> Any:
    return await caller.call("window.show", session_id=caller.session, agent_id=agent_id)


async def published(caller: Caller, event_type: str) -> list[dict[str, Any]]:
    """Return the data of the events of a type that a caller may read."""
    events = (await caller.events(session_id=caller.session))["events"]
    return [event["data"] for event in events if event["type"] == event_type]
