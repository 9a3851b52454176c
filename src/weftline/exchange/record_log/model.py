"""Shared parts of the record operations: the tool name, common fields, and content that is stored next to an item."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec

from weftline.kernel.identity import Permission
from weftline.kernel.operation import Effect, RateClass, operation
from weftline.records.refs import Link, content_digest
from weftline.sessions.model import SessionId

if TYPE_CHECKING:
    from weftline.records.model import ContextItem
    from weftline.records.sql import RecordStore

TOOL = "context_records"
read_operation = partial(operation, tool=TOOL, permission=Permission.READ, rate=RateClass.BOARD, effect=Effect.READ)
write_operation = partial(operation, tool=TOOL, permission=Permission.WRITE, rate=RateClass.BOARD, effect=Effect.WRITE)
RecordId = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=500,
        pattern=r"^[^\x00-\x1f\x7f]+\Z",
        description="The record's id, as records.list returns it.",
        extra_json_schema={"examples": ["board:session_a1b2c3d4e5f60718/goal/1.3"]},
    ),
]
OfSession = Annotated[
    SessionId | None, msgspec.Meta(description="Optional check: the record must belong to this session.")
]
# Kinds of content_ref under which an item refers to content that Weftline stores for it: text, or any other JSON.
TEXT_CONTENT, JSON_CONTENT = "content", "content_json"


async def stored_content(item: ContextItem, session_id: str | None, records: RecordStore) -> bytes | None:
    """Return the content stored for an item if it has the digest that the item names.

    Content is looked up by the item, never by its digest: a digest alone must not give access to it.
    """
    ref = item.content_ref
    if not isinstance(ref, Link) or not isinstance(ref.digest, str):
        return None
    content = await records.content(session_id, item.item_id)
    matches = content is not None and ref.digest == content_digest(content)
    return content if matches else None
