"""Recent messages and window events of a session that a caller may read: what a query may refer to."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from weftline.records.record_ids import MessageItemId
from weftline.search.items import speaker_of_event, text_of_event
from weftline.search.passages import admits
from weftline.search.references import RecentItem
from weftline.search.window_events import is_searchable, live_events, own_places
from weftline.sessions.messages.model import Excerpt, TranscriptRange, audiences_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from weftline.search.stores import SearchStores

_MAX_ITEMS = 30
_MAX_CHARACTERS = 8_000
# Of all items together: long messages of one agent must not slow down the searches of others.
MAX_TOTAL_CHARACTERS = 24_000


async def recent_items(session_id: str, window: str | None, stores: SearchStores) -> list[RecentItem]:
    """Return the latest items, newest first: messages, and events of the caller's own window or of the given one."""
    if not await admits(session_id, stores):
        return []
    found = [*await _messages(session_id, stores), *await _events(session_id, window, stores)]
    return list(_bounded(sorted(found, key=lambda item: item.timestamp, reverse=True)[:_MAX_ITEMS]))


def _bounded(items: Iterable[RecentItem]) -> Iterator[RecentItem]:
    """Yield items as long as their texts are within the limit; the last one may be cut."""
    left = MAX_TOTAL_CHARACTERS
    for item in items:
        if left <= 0:
            return
        yield replace(item, text=item.text[:left])
        left -= len(item.text)


async def _messages(session_id: str, stores: SearchStores) -> list[RecentItem]:
    latest = Excerpt(audiences_of(stores.actor), TranscriptRange(limit=_MAX_ITEMS, newest_first=True))
    messages = {
        str(MessageItemId(session_id, each.message_id)): each for each in await stores.messages.read(session_id, latest)
    }
    redacted = await stores.records.redactions(sorted(messages))
    return [
        RecentItem(uri, message.sender, message.content[:_MAX_CHARACTERS], message.sent_at)
        for uri, message in messages.items()
        if uri not in redacted
    ]


async def _events(session_id: str, window: str | None, stores: SearchStores) -> list[RecentItem]:
    places = await own_places(session_id, stores) if window is None else [window]
    return [
        RecentItem(event.item_id, speaker_of_event(event), text_of_event(event)[:_MAX_CHARACTERS], event.time)
        for place in places
        for event in islice(filter(is_searchable, reversed(await live_events(place, stores))), _MAX_ITEMS)
    ]
