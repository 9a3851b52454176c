"""Inboxes in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.kernel.transaction import SqlStore
from weftline.sessions.messages.model import UnreadMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.sessions.messages.model import Message, MessageHandle

_ADD = """
INSERT INTO inbox (tenant, recipient_id, session_id, message_id, sender, sent_at) VALUES ($1, $2, $3, $4, $5, $6)
"""
# CROSS JOIN, because SQLite keeps its order: first the few unread ids, then their messages.
_UNREAD = """
SELECT i.session_id, i.message_id, i.sender, i.sent_at, i.missed, m.audience
FROM inbox i CROSS JOIN messages m
WHERE i.tenant = $1 AND i.recipient_id = $2
  AND m.tenant = $1 AND m.session_id = i.session_id AND m.message_id = i.message_id
ORDER BY i.sent_at, i.session_id, i.message_id
"""
_COUNT = "SELECT COUNT(*) FROM inbox WHERE tenant = $1 AND recipient_id = $2"
_LONGEST = """
SELECT sender FROM inbox WHERE tenant = $1 AND recipient_id = $2
GROUP BY sender HAVING COUNT(*) > 1 ORDER BY COUNT(*) DESC, sender LIMIT 1
"""
_OLDEST_TWO = """
SELECT session_id, message_id, missed FROM inbox WHERE tenant = $1 AND recipient_id = $2 AND sender = $3
ORDER BY sent_at, session_id, message_id LIMIT 2
"""
_LOCK = """
SELECT 1 FROM inbox WHERE tenant = $1 AND recipient_id = $2 AND session_id = $3 AND message_id = $4
{for_update_unless_locked}
"""
_REMOVE = "DELETE FROM inbox WHERE tenant = $1 AND recipient_id = $2 AND session_id = $3 AND message_id = $4"
_MISS = """
UPDATE inbox SET missed = missed + $1 WHERE tenant = $2 AND recipient_id = $3 AND session_id = $4 AND message_id = $5
"""


class InboxStore(SqlStore):
    """Unread messages of the tenant's principals, by recipient."""

    async def add(self, session_id: str, message: Message) -> None:
        """Add a message to the inbox of its recipient."""
        added = session_id, message.message_id, message.sender, message.sent_at
        await self._tx.run(_ADD, self._tenant, message.recipient_id, *added)

    async def unread(self, recipient_id: str) -> Sequence[UnreadMessage]:
        """Return the messages of an inbox, oldest first."""
        return [UnreadMessage(*row) for row in await self._tx.all(_UNREAD, self._tenant, recipient_id)]

    async def size(self, recipient_id: str) -> int:
        row = await self._tx.one(_COUNT, self._tenant, recipient_id)
        return 0 if row is None else int(row[0])

    async def drop_from_longest_queue(self, recipient_id: str) -> None:
        """Remove the oldest message of the sender with the most, and count it in the next one; never the only one."""
        longest = await self._tx.one(_LONGEST, self._tenant, recipient_id)
        if longest is None:
            return
        oldest = await self._tx.all(_OLDEST_TWO, self._tenant, recipient_id, longest[0])
        # Waits for nobody: a message that is locked is being acknowledged or deleted.
        locked = [await self._tx.one(_LOCK, self._tenant, recipient_id, *handle) for *handle, _ in oldest]
        if len(locked) < 2 or None in locked:  # noqa: PLR2004 - the dropped one and the next
            return
        (*dropped, missed), (*next_one, _) = oldest
        await self._tx.run(_REMOVE, self._tenant, recipient_id, *dropped)
        await self._tx.run(_MISS, missed + 1, self._tenant, recipient_id, *next_one)

    async def acknowledge(self, recipient_id: str, handles: Sequence[MessageHandle]) -> int:
        """Remove messages from an inbox; return how many were in it."""
        # In one order, so that two callers cannot wait for each other.
        ordered = sorted(handles)
        return sum([await self._tx.changed(_REMOVE, self._tenant, recipient_id, *handle) for handle in ordered])
