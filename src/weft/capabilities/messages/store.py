"""What messages need of storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from weft.kernel.caching import Keeping

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.messages.model import AudienceCount, Excerpt, Message, TranscriptRange
    from weft.capabilities.sessions.model import Session


class MessageStore(Protocol):
    """The messages of the transaction's tenant. Who adds or changes one holds the session's lock."""

    async def add(self, session_id: str, message: Message) -> None:
        """Add the next message of a session."""
        ...

    async def add_all(self, session_id: str, messages: Sequence[Message]) -> None:
        """Add many messages at once, under the numbers they have. Say then where the session goes on."""
        ...

    async def go_on_behind(self, session_id: str, message_id: int, sent_at: int | None) -> None:
        """Give the next message of a session the number behind this one; ``sent_at`` is when the last was sent."""
        ...

    async def find(self, session_id: str, message_id: int) -> Message | None: ...

    async def find_several(self, session_id: str, message_ids: Sequence[int]) -> Sequence[Message]:
        """Return those of the messages that are there, in any order."""
        ...

    async def read(self, session_id: str, excerpt: Excerpt) -> Sequence[Message]: ...

    async def read_any(self, session_id: str, part: TranscriptRange) -> Sequence[Message]:
        """Return messages whatever their audience, for whoever may see all there are.

        Newest first, an offset is counted from ``until``.
        """
        ...

    async def tallies(self, session_id: str, audiences: Sequence[str]) -> Sequence[AudienceCount]:
        """Return the tallies of those audiences that have, or once had, messages."""
        ...

    async def between(self, session_id: str, start: int, end: int) -> tuple[int, int]:
        """Return the numbers of the first and the last message sent in a span of time, both ends included."""
        ...

    async def count_senders(self, session_id: str, audiences: Sequence[str]) -> int:
        """Return how many have sent messages to these audiences."""
        ...

    async def change_audience(self, session_id: str, message: Message, visibility: str, audience: str) -> None:
        """Give a message to another audience."""
        ...


class ReplyObserver(Protocol):
    """Notified of every message that replies to another one, in the same transaction."""

    async def replied(self, session: Session, parent: Message, reply: Message) -> None: ...


class MessagePages(Keeping, Protocol):
    """Pages of messages, kept for those who ask for the same again."""
