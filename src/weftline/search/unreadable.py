"""Why chunks that were candidates of a search are not readable any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.indexing.collections.item_ids import MemoryKey, key_of_item
from weftline.search.items import version_of
from weftline.search.passages import admits, read_with_redacted
from weftline.search.persistent_memory import is_persistent, readable_places
from weftline.search.scope import visible_domain
from weftline.search.window_events import event_numbered, is_held_from, open_place

if TYPE_CHECKING:
    from collections.abc import Collection

    from weftline.indexing.collections.model import Chunk
    from weftline.records.vocabulary import OmissionReason
    from weftline.search.stores import SearchStores
    from weftline.state.agent_context.store import PinnedContext


async def unreadable_reasons(
    keys: Collection[tuple[str, int]], held: PinnedContext | None, stores: SearchStores
) -> dict[tuple[str, int], OmissionReason]:
    """Return the reason of each chunk, given as (collection, number); ``held`` is the snapshot that was searched.

    A redacted item is a policy block; one that was replaced, deleted or has expired is a stale source; anything else
    that the caller may not read is a missing permission.
    """
    reasons: dict[tuple[str, int], OmissionReason] = dict.fromkeys(keys, "stale_source")
    for collection in sorted({collection for collection, _ in keys}):
        numbers = sorted(number for each, number in keys if each == collection)
        for chunk in await stores.collections.find(collection, numbers):
            reasons[collection, chunk.number] = await _reason(chunk, held, stores)
    return reasons


async def _reason(chunk: Chunk, held: PinnedContext | None, stores: SearchStores) -> OmissionReason:
    if not await _place_is_readable(chunk, stores):
        return "missing_permission"
    if await read_with_redacted([chunk], stores, held) or await _is_hidden_event(chunk, stores):
        return "policy_block"
    return "missing_permission" if await _is_current(chunk, stores) else "stale_source"


async def _place_is_readable(chunk: Chunk, stores: SearchStores) -> bool:
    match chunk.source:
        case "document":
            return await visible_domain(chunk.place, stores) is not None
        case "memory" if is_persistent(chunk.place):
            return chunk.place in readable_places(stores.actor)
        case "memory":
            session_id = MemoryKey.parse(chunk.item).session_id
            return session_id is None or await admits(session_id, stores)
        case "event":
            return await open_place(chunk.place, stores) is not None
        case _:
            return await admits(chunk.place, stores)


async def _is_hidden_event(chunk: Chunk, stores: SearchStores) -> bool:
    """Return whether it is an event that is redacted, or held from the caller."""
    window = await open_place(chunk.place, stores) if chunk.source == "event" else None
    if window is None:
        return False
    event = event_numbered(await stores.windows.own_events(window), int(chunk.item))
    return event is not None and (event.redacted or is_held_from(event, stores.actor))


async def _is_current(chunk: Chunk, stores: SearchStores) -> bool:
    """Return whether the item still exists in this version, readable or not."""
    match chunk.source:
        case "message":
            return bool(await stores.messages.find_several(chunk.place, [int(chunk.item)]))
        case "board":
            found = await stores.entries.read(chunk.place, [key_of_item(chunk.item)])
            entries = (each.entry for each in found)
            return any(each.lives_at(stores.now) and version_of(each) == chunk.version for each in entries)
        case _:
            return False
