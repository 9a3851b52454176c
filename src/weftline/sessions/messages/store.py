"""Messages: the transcript, who observes replies, and the cache of pages."""

from __future__ import annotations

import secrets
from collections import Counter
from itertools import count as numbers_from
from typing import TYPE_CHECKING, Protocol

from msgspec import structs

from weftline.history.sql import add_derivations
from weftline.indexing.collections import SESSIONS
from weftline.indexing.sql import CollectionStore
from weftline.kernel.ports import ValueCache
from weftline.kernel.transaction import SqlStore, batches, placeholders
from weftline.safety.trust.model import decode_label, encode_label
from weftline.sessions.messages.model import (
    DIRECT,
    LAST,
    AudienceCount,
    Message,
    audience_for,
    listed_audiences,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.kernel.transaction import Row, Value
    from weftline.sessions.messages.model import Excerpt, TranscriptRange
    from weftline.sessions.model import Session

_MESSAGE = """
SELECT m.message_id, m.audience, m.visibility, m.sender, m.sender_type, m.recipient_id, m.message_type, m.category,
       m.parent_id, m.sent_at, m.content, m.metadata, m.author, m.trust
FROM messages m
"""
# An audience without members: pads a query to one of these numbers of audiences. Four are enough without teams.
_NOBODY = ""
_AUDIENCE_COUNTS = (4, 12, 48)
# As the indexes of direct messages have it.
_IS_DIRECT = f"substr(audience, 1, {len(DIRECT)}) = '{DIRECT}'"
_BATCH_SIZE = 10
_SEVERAL = f"""
{_MESSAGE} WHERE m.tenant = $1 AND m.session_id = $2 AND m.message_id IN
({placeholders(3, _BATCH_SIZE)})
"""


def _of_audiences(count: int, order: str, *, of_sender: bool, with_direct: bool) -> str:
    """Return the query for one page: read each audience's next ids from its index, merge, and take the first.

    The cost depends on the rows returned and skipped, not on the size of the transcript. ``with_direct`` adds the
    direct messages of one principal: those it sent and received, or only those it sent if it is the sender.
    """
    sender, before = ("AND sender = $5", 5) if of_sender else ("", 4)
    # Numbered in the order in which they first occur.
    names = (f"${number}" for number in numbers_from(before + 1))
    first, most = next(names), next(names)
    conditions = [f"{sender} AND audience = {each}" for each in (first, *(next(names) for _ in range(1, count)))]
    if with_direct and of_sender:
        conditions.append(f"{sender} AND {_IS_DIRECT}")
    elif with_direct:
        side = next(names)
        conditions += [f"AND {column} = {side} AND {_IS_DIRECT}" for column in ("sender", "recipient_id")]
    limit, offset = next(names), next(names)
    numbers = " UNION ALL ".join(
        f"""
        SELECT * FROM (
            SELECT message_id FROM messages
            WHERE tenant = $1 AND session_id = $2 AND message_id > $3 AND message_id <= $4 {condition}
            ORDER BY message_id {order} LIMIT {most}) AS a{place}
        """  # noqa: S608 - constants only
        for place, condition in enumerate(conditions)
    )
    # CROSS JOIN, because SQLite keeps its order: first the few ids, then their messages.
    return f"""
        {_MESSAGE.replace("FROM messages m", "FROM")}
        (SELECT message_id FROM ({numbers}) AS every ORDER BY message_id {order} LIMIT {limit} OFFSET {offset}) AS page
        CROSS JOIN messages m
        WHERE m.tenant = $1 AND m.session_id = $2 AND m.message_id = page.message_id
        ORDER BY m.message_id {order}
        """  # noqa: S608 - constants only


def _of_all(order: str) -> str:
    return f"""
        {_MESSAGE} WHERE m.tenant = $1 AND m.session_id = $2 AND m.message_id > $3 AND m.message_id <= $4
        ORDER BY m.message_id {order} LIMIT $5
        """


_ORDERS = {False: "ASC", True: "DESC"}
_ALL = {newest_first: _of_all(order) for newest_first, order in _ORDERS.items()}
_BY_AUDIENCE = {
    (count, newest_first, of_sender, with_direct): _of_audiences(
        count, order, of_sender=of_sender, with_direct=with_direct
    )
    for count in _AUDIENCE_COUNTS
    for newest_first, order in _ORDERS.items()
    for of_sender in (False, True)
    for with_direct in (False, True)
}
# Loose index scan: one step for each sender, not for each message.
_SENDERS = {
    count: f"""
WITH RECURSIVE senders (sender) AS (
    SELECT MIN(sender) FROM messages WHERE tenant = $1 AND session_id = $2
    UNION ALL
    SELECT (SELECT MIN(m.sender) FROM messages m
            WHERE m.tenant = $1 AND m.session_id = $2 AND m.sender > senders.sender)
    FROM senders WHERE senders.sender IS NOT NULL)
SELECT COUNT(*) FROM senders WHERE senders.sender IS NOT NULL AND (
    EXISTS (
        SELECT 1 FROM messages m WHERE m.tenant = $1 AND m.session_id = $2 AND m.sender = senders.sender
          AND m.audience IN ({placeholders(3, count)}))
    OR EXISTS (
        SELECT 1 FROM messages m WHERE m.tenant = $1 AND m.session_id = $2 AND m.sender = senders.sender
          AND m.audience IN ('{DIRECT}' || senders.sender || ':' || ${count + 3},
                             '{DIRECT}' || ${count + 3} || ':' || senders.sender))
    OR senders.sender = ${count + 3} AND EXISTS (
        SELECT 1 FROM messages WHERE tenant = $1 AND session_id = $2 AND sender = ${count + 3} AND {_IS_DIRECT}))
"""  # noqa: S608 - placeholders
    for count in _AUDIENCE_COUNTS
}
_MOVE_ON = "UPDATE sessions SET message_count = $1, last_message_at = $2 WHERE tenant = $3 AND session_id = $4"
_ADD = """
INSERT INTO messages (tenant, session_id, message_id, audience, visibility, sender, sender_type,
                      recipient_id, message_type, category, parent_id, sent_at, content, metadata, author, trust)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
"""
_TALLIES = {
    count: f"""
SELECT audience, messages, stamp FROM message_audiences
WHERE tenant = $1 AND session_id = $2 AND audience IN ({placeholders(3, count)}) ORDER BY audience
"""  # noqa: S608 - placeholders
    for count in _AUDIENCE_COUNTS
}
_FIRST_SINCE = """
SELECT message_id FROM messages WHERE tenant = $1 AND session_id = $2 AND sent_at >= $3
ORDER BY sent_at, message_id LIMIT 1
"""
_LAST_UNTIL = """
SELECT message_id FROM messages WHERE tenant = $1 AND session_id = $2 AND sent_at <= $3
ORDER BY sent_at DESC, message_id DESC LIMIT 1
"""
_CHANGE_AUDIENCE = """
UPDATE messages SET visibility = $1, audience = $2
WHERE tenant = $3 AND session_id = $4 AND message_id = $5
"""
_REWRITE = """
UPDATE messages SET content = $1, metadata = $2, trust = $3
WHERE tenant = $4 AND session_id = $5 AND message_id = $6
"""
_COUNT = """
INSERT INTO message_audiences (tenant, session_id, audience, messages, stamp) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, session_id, audience) DO UPDATE SET
    messages = message_audiences.messages + excluded.messages
"""
_RESTAMP = "UPDATE message_audiences SET stamp = $1 WHERE tenant = $2 AND session_id = $3 AND audience = $4"


class ReplyObserver(Protocol):
    """Notified of every message that replies to another one, in the same transaction."""

    async def replied(self, session: Session, parent: Message, reply: Message) -> None: ...


class MessagePages(ValueCache, Protocol):
    """Cache of message pages."""


class MessageStore(SqlStore):
    """The messages of the transaction's tenant. Writers must hold the session's lock."""

    async def add(self, session_id: str, message: Message) -> None:
        """Add the next message of a session."""
        await self._tx.run(_MOVE_ON, message.message_id, message.sent_at, self._tenant, session_id)
        await self._tx.run(_ADD, *self._row_of(session_id, message))
        await self._add_derivations(session_id, [message])
        for audience in listed_audiences(message.audience):
            await self._count(session_id, audience, 1)

    async def add_all(self, session_id: str, messages: Sequence[Message]) -> None:
        """Add many messages with their given ids; call ``set_last_message`` afterwards."""
        await self._tx.many(_ADD, [self._row_of(session_id, message) for message in messages])
        await self._add_derivations(session_id, messages)
        listed = Counter(audience for message in messages for audience in listed_audiences(message.audience))
        for audience, number in listed.items():
            await self._count(session_id, audience, number)

    async def set_last_message(self, session_id: str, message_id: int, sent_at: int | None) -> None:
        """Set the last message id of a session and the time of its last message."""
        await self._tx.run(_MOVE_ON, message_id, sent_at, self._tenant, session_id)

    async def _add_derivations(self, session_id: str, messages: Iterable[Message]) -> None:
        """Index what messages declare to be derived from."""
        for message in messages:
            if message.trust is not None and message.trust.derived_from:
                item = f"message:{session_id}/{message.message_id}"
                await add_derivations(self._tx, item, message.trust.derived_from, message.sent_at)

    def _row_of(self, session_id: str, message: Message) -> tuple[Value, ...]:
        row = structs.asdict(message) | {"content": message.content.encode(), "trust": encode_label(message.trust)}
        return self._tenant, session_id, *row.values()

    async def find(self, session_id: str, message_id: int) -> Message | None:
        row = await self._tx.one(
            _MESSAGE + "WHERE m.tenant = $1 AND m.session_id = $2 AND m.message_id = $3",
            self._tenant,
            session_id,
            message_id,
        )
        return None if row is None else _message(row)

    async def find_several(self, session_id: str, message_ids: Sequence[int]) -> Sequence[Message]:
        """Return the messages with these ids that exist, in any order."""
        rows: list[Row] = []
        for batch in batches(message_ids, _BATCH_SIZE):
            rows += await self._tx.all(_SEVERAL, self._tenant, session_id, *batch)
        return [_message(row) for row in rows]

    async def read(self, session_id: str, excerpt: Excerpt) -> Sequence[Message]:
        part = excerpt.part
        audiences, side = _without_direct(excerpt.audiences)
        if side and part.sender not in (None, side):
            # Of another sender's direct messages, the caller may see those between the two.
            audiences, side = (*audiences, audience_for("private", side, "", part.sender)), ""
        first, *others = _padded(audiences)
        rows = await self._tx.all(
            _BY_AUDIENCE[len(others) + 1, part.newest_first, part.sender is not None, bool(side)],
            self._tenant,
            session_id,
            part.after,
            part.until,
            *(() if part.sender is None else (part.sender,)),
            first,
            part.offset + part.limit,
            *others,
            *((side,) if side and part.sender is None else ()),
            part.limit,
            part.offset,
        )
        return [_message(row) for row in rows]

    async def read_any(self, session_id: str, part: TranscriptRange) -> Sequence[Message]:
        """Return messages of any audience, for inspection.

        If newest first, the offset counts from ``until``.
        """
        # Message ids have no gaps, so an offset is arithmetic on the id.
        after, until = part.after, part.until
        if part.newest_first:
            until -= part.offset
        else:
            after += part.offset
        rows = await self._tx.all(_ALL[part.newest_first], self._tenant, session_id, after, until, part.limit)
        return [_message(row) for row in rows]

    async def audience_counts(self, session_id: str, audiences: Sequence[str]) -> Sequence[AudienceCount]:
        """Return the counts of the audiences that have, or once had, messages."""
        padded = _padded(audiences)
        rows = await self._tx.all(_TALLIES[len(padded)], self._tenant, session_id, *padded)
        return [AudienceCount(*row) for row in rows]

    async def between(self, session_id: str, start: int, end: int) -> tuple[int, int]:
        """Return the first and last message id sent in a time range, both ends inclusive."""
        first = await self._tx.one(_FIRST_SINCE, self._tenant, session_id, start)
        last = await self._tx.one(_LAST_UNTIL, self._tenant, session_id, end)
        return LAST if first is None else first[0], 0 if last is None else last[0]

    async def count_senders(self, session_id: str, audiences: Sequence[str]) -> int:
        """Return the number of distinct senders of messages to these audiences."""
        others, side = _without_direct(audiences)
        padded = _padded(others)
        row = await self._tx.one(_SENDERS[len(padded)], self._tenant, session_id, *padded, side)
        return 0 if row is None else int(row[0])

    async def change_audience(self, session_id: str, message: Message, visibility: str, audience: str) -> None:
        """Change the visibility and audience of a message."""
        await self._tx.run(_CHANGE_AUDIENCE, visibility, audience, self._tenant, session_id, message.message_id)
        for changed, by in ((message.audience, -1), (audience, 1)):
            for listed in listed_audiences(changed):
                await self._count(session_id, listed, by)
                await self._restamp(session_id, listed)
        await self._remove_from_index(session_id, message.message_id)

    async def rewrite(self, session_id: str, message: Message) -> None:
        """Replace the content, metadata and trust label of a message, and remove it from the search index."""
        await self._tx.run(
            _REWRITE,
            message.content.encode(),
            message.metadata,
            encode_label(message.trust),
            self._tenant,
            session_id,
            message.message_id,
        )
        for listed in listed_audiences(message.audience):
            await self._restamp(session_id, listed)
        await self._remove_from_index(session_id, message.message_id)

    async def _remove_from_index(self, session_id: str, message_id: int) -> None:
        """Remove a message from its collection; the indexer adds it again with its new ACL."""
        collections = CollectionStore(self._tx)
        await collections.lock(SESSIONS)
        await collections.remove_item(SESSIONS, session_id, str(message_id))

    async def _count(self, session_id: str, audience: str, by: int) -> None:
        await self._tx.run(_COUNT, self._tenant, session_id, audience, by, _new_stamp())

    async def _restamp(self, session_id: str, audience: str) -> None:
        await self._tx.run(_RESTAMP, _new_stamp(), self._tenant, session_id, audience)


def _new_stamp() -> int:
    return secrets.randbits(62)


def _padded(audiences: Sequence[str]) -> tuple[str, ...]:
    """Pad audiences to a number that has statements. No caller is in more teams than the largest has room for."""
    count = next(count for count in _AUDIENCE_COUNTS if count >= len(audiences))
    return (*audiences, *(_NOBODY,) * (count - len(audiences)))


def _without_direct(audiences: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Split off the principal whose direct messages are wanted; empty if none."""
    side = next((each.removeprefix(DIRECT) for each in audiences if each.startswith(DIRECT)), "")
    return tuple(each for each in audiences if not each.startswith(DIRECT)), side


def _message(row: Row) -> Message:
    *plain, content, metadata, author, trust = row
    return Message(*plain, content.decode(), metadata, author, decode_label(trust))  # type: ignore[call-arg]
