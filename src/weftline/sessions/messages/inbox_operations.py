"""Operation message.inbox: read messages addressed to the caller, and acknowledge earlier ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from weftline.access.model import AgentId
from weftline.kernel.clock import from_micros
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.json_input import NO_METADATA, raw_json
from weftline.kernel.operation import Effect, RateClass, Request, Response, operation
from weftline.kernel.ports import Transactions
from weftline.sessions.messages.model import DIALOG, MESSAGE, Message, MessageHandle, UnreadMessage, readers_of
from weftline.sessions.messages.sql import InboxStore
from weftline.sessions.messages.store import MessageStore
from weftline.sessions.model import SessionId, SessionNotFound, find_session
from weftline.sessions.sql import SessionStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


# Inbox: messages addressed to a principal that it has not acknowledged yet, across its sessions.
#
# A full inbox drops the oldest message of the sender with the most unread ones, so a flood displaces only itself, and
# the latest message of each sender always stays. What leaves the inbox stays in its session.

# Unread messages of one recipient; more only if each is the only one of its sender.
MAX_UNREAD = 500
# Of one answer: a few long messages must not fill the context of a model.
_MAX_CHARACTERS = 40_000


class Delivered(msgspec.Struct, frozen=True):
    """A page of an inbox: its messages, and the number of unread ones by sender."""

    messages: list[tuple[UnreadMessage, Message]]
    by_sender: Counter[str]


class Inbox(msgspec.Struct, frozen=True):
    """The inbox of the caller, and delivery to those of others."""

    actor: Actor
    store: InboxStore
    sessions: SessionStore
    messages: MessageStore

    async def deliver(self, session_id: str, message: Message) -> None:
        """Put a message into its recipient's inbox."""
        if message.recipient_id is not None:
            await self.store.add(session_id, message)

    async def make_room(self, message: Message) -> None:
        """Drop messages if the recipient's inbox has too many.

        Called after the event of the message, which serializes the writers of a tenant: two that drop at the same time
        would choose the same one. One that is being acknowledged cannot be dropped, so the next call drops two.
        """
        if message.recipient_id is None:
            return
        for _ in range(min(2, await self.store.size(message.recipient_id) - MAX_UNREAD)):
            await self.store.drop_from_longest_queue(message.recipient_id)

    async def acknowledge(self, handles: Sequence[MessageHandle]) -> int:
        """Remove messages from the caller's inbox; return how many were in it."""
        return await self.store.acknowledge(self.actor.principal_id, handles)

    async def read(self, session_id: str | None, sender: str | None, limit: int) -> Delivered:
        """Return unread messages that the caller may read now, oldest first, of all senders or of one."""
        if session_id is not None:
            await find_session(session_id, self.actor, self.sessions)
        unread = [each for each in await self._readable() if session_id in (None, each.session_id)]
        counts = Counter(each.sender for each in unread)
        chosen = fair_page([each for each in unread if sender in (None, each.sender)], limit)
        return Delivered(list(_bounded(await self._with_messages(chosen))), counts)

    async def _readable(self) -> list[UnreadMessage]:
        unread = await self.store.unread(self.actor.principal_id)
        found = await self.sessions.find_several({each.session_id for each in unread}) if unread else ()
        admitted = {session.session_id for session in found if session.admits(self.actor)}
        audiences = self.actor.audiences
        return [
            each
            for each in unread
            if each.session_id in admitted and any(pattern in audiences for pattern in readers_of(each.audience))
        ]

    async def _with_messages(self, chosen: Sequence[UnreadMessage]) -> list[tuple[UnreadMessage, Message]]:
        by_session: dict[str, list[int]] = defaultdict(list)
        for each in chosen:
            by_session[each.session_id].append(each.message_id)
        found = {
            (session_id, message.message_id): message
            for session_id, numbers in by_session.items()
            for message in await self.messages.find_several(session_id, numbers)
        }
        return [(each, found[each.handle]) for each in chosen if each.handle in found]


def fair_page(unread: Sequence[UnreadMessage], limit: int) -> list[UnreadMessage]:
    """Return the oldest message of each sender, then the second of each, up to the limit; in the order sent."""
    seen: Counter[str] = Counter()
    ranked: list[tuple[int, int]] = []
    for place, each in enumerate(unread):
        ranked.append((seen[each.sender], place))
        seen[each.sender] += 1
    return [unread[place] for place in sorted(place for _, place in sorted(ranked)[:limit])]


def _bounded(delivered: Iterable[tuple[UnreadMessage, Message]]) -> Iterator[tuple[UnreadMessage, Message]]:
    """Yield messages until the limit of characters; at least one."""
    left = _MAX_CHARACTERS
    for each in delivered:
        left -= each[1].size
        if left < 0 and left + each[1].size < _MAX_CHARACTERS:
            return
        yield each


_MAX_SENDERS = 50
Handle = Annotated[
    str,
    msgspec.Meta(
        max_length=120,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}/[1-9][0-9]{0,17}\Z",
        description="Handle of a message: SESSION/ID.",
    ),
]


class ReadInbox(Request):
    """Which messages to return, and which ones the caller has dealt with."""

    session_id: Annotated[
        SessionId | None, msgspec.Meta(description="Only messages of this session; by default of all.")
    ] = None
    sender: Annotated[AgentId | None, msgspec.Meta(description="Only messages of this agent.")] = None
    acknowledge: Annotated[
        tuple[Handle, ...],
        msgspec.Meta(
            max_length=500,
            description="Handles (SESSION/ID) of messages that you have dealt with; they leave the inbox.",
        ),
    ] = ()
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="Maximum messages.")] = 20


class InboxMessage(Response, kw_only=True):
    """A message addressed to you; fields with the default of add_message are omitted.

    ``missed``: earlier ones of this sender that left the full inbox.
    """

    handle: str
    session_id: str
    message_id: int
    sender: str
    content: str
    timestamp: datetime
    visibility: str
    parent_message_id: int | None = None
    message_type: str | UnsetType = UNSET
    category: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    missed: int = 0


class InboxPage(Response, kw_only=True):
    """Unread messages, oldest first; ``unread`` counts all that match.

    ``senders``: unread messages by sender, if not all are shown. ``acknowledged``: how many left the inbox.
    """

    messages: list[InboxMessage]
    unread: int
    senders: dict[str, int] | UnsetType = UNSET
    acknowledged: int = 0


@operation(
    "message.inbox",
    tool="inbox",
    http="POST /v1/inbox",
    permission=Permission.READ,
    rate=RateClass.MESSAGE,
    effect=Effect.OWN_TRANSACTIONS,
    errors=(SessionNotFound,),
)
async def read_inbox(request: ReadInbox, actor: Actor, inboxes: Transactions[Inbox]) -> InboxPage:
    """Read the messages addressed to you, oldest first, from all your sessions; acknowledge earlier ones.

    A message stays until you pass its handle in ``acknowledge``, so nothing is lost if you stop between reading and
    acting. If there are more than ``limit``, the senders take turns.
    """
    if not request.acknowledge:
        return await inboxes.read(actor, lambda inbox: _page(request, inbox, 0))
    handles = [_parse(handle) for handle in dict.fromkeys(request.acknowledge)]

    async def acknowledge(inbox: Inbox) -> InboxPage:
        return await _page(request, inbox, await inbox.acknowledge(handles))

    return await inboxes.write(actor, acknowledge)


async def _page(request: ReadInbox, inbox: Inbox, acknowledged: int) -> InboxPage:
    found = await inbox.read(request.session_id, request.sender, request.limit)
    unread = found.by_sender.total() if request.sender is None else found.by_sender[request.sender]
    complete = len(found.messages) == found.by_sender.total()
    return InboxPage(
        messages=[_shown(unread, message) for unread, message in found.messages],
        unread=unread,
        senders=UNSET if complete else dict(found.by_sender.most_common(_MAX_SENDERS)),
        acknowledged=acknowledged,
    )


def _parse(handle: str) -> MessageHandle:
    session_id, _, number = handle.rpartition("/")
    return session_id, int(number)


def _shown(unread: UnreadMessage, message: Message) -> InboxMessage:
    return InboxMessage(
        handle=f"{unread.session_id}/{unread.message_id}",
        session_id=unread.session_id,
        message_id=unread.message_id,
        sender=message.sender,
        content=message.content,
        timestamp=from_micros(message.sent_at),
        visibility=message.visibility,
        parent_message_id=message.parent_id,
        message_type=UNSET if message.message_type == MESSAGE else message.message_type,
        category=UNSET if message.category == DIALOG else message.category,
        metadata=UNSET if message.metadata == NO_METADATA else raw_json(message.metadata),
        missed=unread.missed,
    )
