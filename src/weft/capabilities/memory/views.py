"""Response fields and cursors of memory entries."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from weft.capabilities.memory.model import START, MemoryCursor, MemoryEntry, ScopeName, scope_name
from weft.kernel.clock import from_micros, to_seconds
from weft.kernel.json_input import NO_METADATA, raw_json
from weft.kernel.operation import Response

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY_CHARACTER = r"[A-Za-z0-9_-]"
Limit = Annotated[int, msgspec.Meta(ge=1, le=200, description="Maximum entries.")]
Cursor = Annotated[
    Annotated[str, msgspec.Meta(max_length=400, pattern=rf"^{KEY_CHARACTER}{{0,100}}\.{KEY_CHARACTER}{{1,255}}\Z")]
    | None,
    msgspec.Meta(description="next_cursor of the previous page."),
]


class EntryView(Response, kw_only=True, omit_defaults=False):
    """Fields of every entry. ``created_at`` and ``expires_at`` are seconds since 1970."""

    scope: ScopeName
    created_at: float
    updated_at: datetime
    expires_at: float | None


class ValueView(EntryView):
    """An entry with its value."""

    value: Any
    metadata: dict[str, Any]


def entry_fields(entry: MemoryEntry) -> dict[str, Any]:
    """Return the fields of an EntryView."""
    return {
        "scope": scope_name(entry.session_id),
        "created_at": to_seconds(entry.created_at),
        "updated_at": from_micros(entry.updated_at),
        "expires_at": None if entry.expires_at is None else to_seconds(entry.expires_at),
    }


def value_fields(entry: MemoryEntry, text: str) -> dict[str, Any]:
    """Return the fields of a ValueView."""
    return {
        **entry_fields(entry),
        "value": raw_json(text),
        "metadata": raw_json(entry.metadata or NO_METADATA),
    }


def parse_cursor(cursor: str | None) -> MemoryCursor:
    if cursor is None:
        return START
    session_id, _, key = cursor.partition(".")
    return MemoryCursor(session_id or None, key)


def next_cursor(found: Sequence[MemoryEntry], shown: Sequence[MemoryEntry]) -> str | None:
    """Return the cursor of the next page, if there is one."""
    if len(found) <= len(shown):
        return None
    return f"{shown[-1].session_id or ''}.{shown[-1].key}"
