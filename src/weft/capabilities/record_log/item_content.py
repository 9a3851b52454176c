"""What recorded items say that is too long for their records: it is kept beside them, and found by the item alone."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from weft.capabilities.records.refs import Link

if TYPE_CHECKING:
    from weft.capabilities.records.model import ContextItem
    from weft.capabilities.records.store import RecordStore

# Under these kinds an item names content that Weft keeps for it: as text, or as JSON of any other kind.
TEXT_KEPT, JSON_KEPT = "content", "content_json"


async def content_of(item: ContextItem, session_id: str | None, records: RecordStore) -> bytes | None:
    """Return what was kept with an item, if it is what the item names; a digest alone finds nothing."""
    ref = item.content_ref
    if not isinstance(ref, Link) or not isinstance(ref.digest, str):
        return None
    content = await records.content(session_id, item.item_id)
    is_meant = content is not None and ref.digest == f"sha256:{hashlib.sha256(content).hexdigest()}"
    return content if is_meant else None
