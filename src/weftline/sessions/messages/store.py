"""Ports of messages: the transcript, who observes replies, and the cache of pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from weftline.kernel.ports import ValueCache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.sessions.messages.model import (
        AudienceCount,
        Excerpt,
        Message,
        TranscriptRange,
    )
    from weftline.sessions.model import Session


class MessageStore(Protocol):
    """The messages of the transaction's tenant. Writers must hold the session's lock."""

    async def add(self, session_id: str, message: Message) -> None:
        """Add the next message of a session."""
        ...

    async def add_all(self, session_id: str, messages: Sequence[Message]) -> None:
        """Add many messages with their given ids; call ``set_last_message`` afterwards."""
        ...

    async def set_last_message(self, session_id: str, message_id: int, sent_at: int | None) -> None:
        """Set the last message id of a session and the time of its last message."""
        ...

    async def find(self, session_id: str, message_id: int) -> Message | None: ...

    async def find_several(self, session_id: str, message_ids: Sequence[int]) -> Sequence[Message]:
        """Return the messages with these ids that exist, in any order."""
        ...

    async def read(self, session_id: str, excerpt: Excerpt) -> Sequence[Message]: ...

    async def read_any(self, session_id: str, part: TranscriptRange) -> Sequence[Message]:
        """Return messages of any audience, for inspection.

        If newest first, the offset counts from ``until``.
        """
        ...

    async def audience_counts(self, session_id: str, audiences: Sequence[str]) -> Sequence[AudienceCount]:
        """Return the counts of the audiences that have, or once had, messages."""
        ...

    async def between(self, session_id: str, start: int, end: int) -> tuple[int, int]:
        """Return the first and last message id sent in a time range, both ends inclusive."""
        ...

    async def count_senders(self, session_id: str, audiences: Sequence[str]) -> int:
        """Return the number of distinct senders of messages to these audiences."""
        ...

    async def rewrite(self, session_id: str, message: Message) -> None:
        """Replace the content, metadata and trust label of a message, and remove it from the search index."""
        ...

    async def change_audience(self, session_id: str, message: Message, visibility: str, audience: str) -> None:
        """Change the visibility and audience of a message."""
        ...


class ReplyObserver(Protocol):
    """Notified of every message that replies to another one, in the same transaction."""

    async def replied(self, session: Session, parent: Message, reply: Message) -> None: ...


class MessagePages(ValueCache, Protocol):
    """Cache of message pages."""
