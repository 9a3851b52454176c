"""Helpers for tests of records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.world import wire_form
from weftline.app.dispatch import CallContext

if TYPE_CHECKING:
    from support.world import Caller
    from weftline.kernel.correlation import Correlation

AT = "2026-05-08T12:30:00Z"


def envelope(context_id: str, **more: Any) -> dict[str, Any]:
    """Return a minimal envelope."""
    return {
        "schema_version": "0.1.0",
        "context_id": context_id,
        "scope": "turn",
        "lifecycle": "draft",
        "created_at": AT,
        **more,
    }


def item(item_id: str, content: Any, **more: Any) -> dict[str, Any]:
    """Return an item with inline content."""
    fields = {"content_mode": "inline", "content": content, "visibility": ["*"]}
    return {"schema_version": "0.1.0", "item_id": item_id, "context_kind": "note", **fields, **more}


async def record_page(caller: Caller, **filters: Any) -> Any:
    return await caller.call("records.list", **filters)


async def all_records(caller: Caller, **filters: Any) -> list[dict[str, Any]]:
    """Return the records of all pages."""
    found: list[dict[str, Any]] = []
    page = await record_page(caller, **filters)
    while True:
        found += page["records"]
        if page["next_after"] is None:
            return found
        page = await record_page(caller, **{**filters, "after": page["next_after"]})


async def ids(caller: Caller, **filters: Any) -> list[str]:
    return [entry["id"] for entry in await all_records(caller, **filters)]


async def event_classes(caller: Caller, **filters: Any) -> list[str]:
    """Return the classes of the events among the records."""
    entries = await all_records(caller, **filters)
    return [entry["record"]["event_type"] for entry in entries if entry["type"] == "context_event"]


async def correlated_call(correlation: Correlation, caller: Caller, operation: str, **raw: Any) -> Any:
    """Call an operation with these correlation ids."""
    context = CallContext(caller.credential, correlation=correlation)
    return wire_form(await caller.app.call(caller.app.registry[operation], raw, context))
