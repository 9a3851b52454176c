"""Operation message.inbox: read messages addressed to the caller, and acknowledge earlier ones."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from weftline.access.model import AgentId
from weftline.kernel.clock import from_micros
from weftline.kernel.identity import Actor, Permission
from weftline.kernel.json_input import NO_METADATA, raw_json
from weftline.kernel.operation import Effect, RateClass, Request, Response, operation
from weftline.kernel.ports import Transactions
from weftline.sessions.messages.inbox import Inbox
from weftline.sessions.messages.model import DIALOG, MESSAGE, Message, MessageHandle, UnreadMessage
from weftline.sessions.model import SessionId, SessionNotFound

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
