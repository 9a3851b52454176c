"""Helpers for tests of records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.world import on_the_wire
from weft.app.dispatch import CallContext

if TYPE_CHECKING:
    from support.world import Caller
    from weft.kernel.correlation import Correlation

AT = "2026-05-08T12:30:00Z"


def envelope(context_id: str, **more: Any) -> dict[str, Any]:
    """Return a small record."""
    return {
        "schema_version": "0.1.0",
        "context_id": context_id,
        "scope": "turn",
        "lifecycle": "draft",
        "created_at": AT,
        **more,
    }


def item(item_id: str, content: Any, **more: Any) -> dict[str, Any]:
    """Return an item that says something."""
    said = {"content_mode": "inline", "content": content, "visibility": ["*"]}
    return {"schema_version": "0.1.0", "item_id": item_id, "context_kind": "note", **said, **more}


async def listed(caller: Caller, **which: Any) -> Any:
    return await caller.call("records.list", **which)


async def everything(caller: Caller, **which: Any) -> list[dict[str, Any]]:
    """Return the records of all pages."""
    found: list[dict[str, Any]] = []
    page = await listed(caller, **which)
    while True:
        found += page["records"]
        if page["next_after"] is None:
            return found
        page = await listed(caller, **{**which, "after": page["next_after"]})


async def ids(caller: Caller, **which: Any) -> list[str]:
    return [entry["id"] for entry in await everything(caller, **which)]


async def told(caller: Caller, **which: Any) -> list[str]:
    """Return the classes of the events among the records."""
    entries = await everything(caller, **which)
    return [entry["record"]["event_type"] for entry in entries if entry["type"] == "context_event"]


async def correlated_call(part: Correlation, caller: Caller, operation: str, **raw: Any) -> Any:
    """Call an operation as a part of something."""
    arrival = CallContext(caller.credential, correlation=part)
    return on_the_wire(await caller.app.call(caller.app.registry[operation], raw, arrival))
