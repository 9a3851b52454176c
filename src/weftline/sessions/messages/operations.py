"""Operations on messages: add, read, change visibility, inspect."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from weftline.access.model import AgentId
from weftline.access.teams import TeamName, TeamNotFound
from weftline.indexing.pins import PinLimitExceeded
from weftline.kernel.clock import from_micros
from weftline.kernel.errors import ContentTooLarge, InvalidInput, PermissionDenied
from weftline.kernel.fields import Count, Name, Ordinal
from weftline.kernel.identity import TEAM, Permission
from weftline.kernel.json_input import Metadata, metadata_json, raw_json
from weftline.kernel.operation import (
    Effect,
    RateClass,
    Request,
    Response,
    SubmittedText,
    admin_operation,
    admin_write,
    operation,
)
from weftline.kernel.ports import memory_size
from weftline.safety.trust.gate import GATE_ERRORS, submitted
from weftline.safety.trust.model import DerivedFrom, TrustInfo, trust_info
from weftline.sessions.agent_directory import RecipientNotFound
from weftline.sessions.messages.model import (
    DIALOG,
    MAX_CHARACTERS,
    MESSAGE,
    Message,
    MessageNotFound,
    ProtectedCategory,
    TranscriptRange,
    Visibility,
)
from weftline.sessions.messages.store import MessagePages
from weftline.sessions.messages.transcript import MessageDraft, MessagePage, Transcripts, TranscriptWriter
from weftline.sessions.model import SessionArchived, SessionId, SessionNotFound

_FAR = 5_000


class Paged(Protocol):
    """A request with an offset."""

    offset: int


MessageId = Annotated[Ordinal, msgspec.Meta(description="The message's id, unique in its session.")]


class AddMessage(Request):
    """A message for a session."""

    session_id: SessionId
    content: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            description=f"The text, stored unchanged; at most {MAX_CHARACTERS} characters.",
            extra_json_schema={"maxLength": MAX_CHARACTERS},
        ),
    ]
    visibility: Annotated[
        Visibility | None,
        msgspec.Meta(
            description="public: all members; private: you and the recipient, or only you; agent_only: agents of "
            "your type; admin_only: admins, who alone may send these. Default: public, or private with a recipient."
        ),
    ] = None
    team: Annotated[
        TeamName | None, msgspec.Meta(description="Show it only to the members of this team, of which you are one.")
    ] = None
    metadata: Metadata = None
    parent_message_id: Annotated[MessageId | None, msgspec.Meta(description="The message this one replies to.")] = None
    recipient_id: Annotated[
        AgentId | None,
        msgspec.Meta(description="Send it to this member's inbox; only you two see it, unless you set a visibility."),
    ] = None
    message_type: Annotated[Name, msgspec.Meta(description="The kind of message, such as request or result.")] = MESSAGE
    category: Annotated[
        Name,
        msgspec.Meta(
            description="Its part in the conversation, such as CONTEXT or DIALOG; SYSTEM is not for sub-agents."
        ),
    ] = DIALOG
    derived_from: DerivedFrom = ()


class MessageAdded(Response, kw_only=True, omit_defaults=False):
    """The message was added."""

    success: Literal[True] = True
    message_id: int
    timestamp: datetime
    trust: TrustInfo | UnsetType = UNSET


class GetMessages(Request):
    """A page of a transcript."""

    session_id: SessionId
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000, description="Maximum number of messages.")] = 50
    offset: Annotated[Count, msgspec.Meta(description="Messages to skip.")] = 0
    visibility_filter: Annotated[Visibility | None, msgspec.Meta(description="Only messages with this visibility.")] = (
        None
    )
    after_id: Annotated[
        Count, msgspec.Meta(description="Only messages after this id: pass the last one you have seen.")
    ] = 0


class MessageInfo(Response, kw_only=True, omit_defaults=False, gc=False):
    """One message."""

    id: int
    sender: str
    sender_type: str
    content: str
    timestamp: datetime
    visibility: str
    metadata: dict[str, Any]
    parent_message_id: int | None
    agent_id: str
    recipient_id: str | None
    message_type: str
    category: str
    trust: TrustInfo | UnsetType = UNSET


class Messages(Response, kw_only=True, omit_defaults=False):
    """Messages in the order sent; ``total_count`` counts all that match and that you may see."""

    success: Literal[True] = True
    messages: list[MessageInfo]
    count: int
    total_count: int
    has_more: bool


class SetMessageVisibility(Request):
    """A message and its new visibility."""

    session_id: SessionId
    message_id: MessageId
    visibility: Annotated[Visibility, msgspec.Meta(description="The new visibility.")]


class VisibilityChanged(Response, kw_only=True, omit_defaults=False):
    """The visibility was changed and takes effect at once."""

    on_record = ("previous_visibility",)

    success: Literal[True] = True
    message_id: int
    visibility: str
    previous_visibility: str


class InspectMessages(Request):
    """A page of a transcript."""

    session_id: SessionId
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000, description="Maximum number of messages.")] = 50
    offset: Annotated[Count, msgspec.Meta(description="Messages to skip.")] = 0


def skips_far(request: Paged) -> bool:
    """Whether the offset is so large that the query is slow."""
    return request.offset > _FAR


def _texts(request: AddMessage) -> list[SubmittedText]:
    texts = [request.content] if len(request.content) <= MAX_CHARACTERS else []
    texts += [metadata_json(request.metadata)] if request.metadata else []
    return [submitted(text, derived_from=request.derived_from) for text in texts]


@operation(
    "message.add",
    tool="add_message",
    http="POST /v1/sessions/{session_id}/messages",
    status=201,
    permission=Permission.WRITE,
    rate=RateClass.MESSAGE,
    effect=Effect.WRITE,
    errors=(
        SessionNotFound,
        SessionArchived,
        MessageNotFound,
        ContentTooLarge,
        PinLimitExceeded,
        ProtectedCategory,
        PermissionDenied,
        TeamNotFound,
        RecipientNotFound,
        *GATE_ERRORS,
    ),
    content=_texts,
)
async def add_message(request: AddMessage, transcripts: TranscriptWriter) -> MessageAdded:
    """Add a message to a session: for all members, one of them, agents of your type, a team, or only yourself.

    Reply to a message with ``parent_message_id``. A reply to a direct message goes to its other side only.
    """
    draft = MessageDraft(
        content=request.content,
        visibility=_visibility(request),
        metadata=metadata_json(request.metadata),
        parent_id=request.parent_message_id,
        recipient_id=request.recipient_id,
        message_type=request.message_type,
        category=request.category,
        derived_from=request.derived_from,
    )
    message = await transcripts.add(request.session_id, draft)
    return MessageAdded(
        message_id=message.message_id, timestamp=from_micros(message.sent_at), trust=trust_info(message.trust) or UNSET
    )


def _visibility(request: AddMessage) -> str | None:
    if request.team is None:
        return request.visibility
    if request.visibility not in (None, "public"):
        raise InvalidInput("team: not with another visibility; a team's message is for its members", field="team")
    return f"{TEAM}{request.team}"


@operation(
    "message.list",
    tool="get_messages",
    http="GET /v1/sessions/{session_id}/messages",
    permission=Permission.READ,
    rate=RateClass.MESSAGE,
    effect=Effect.READ,
    heavy=skips_far,
    errors=(SessionNotFound,),
)
async def get_messages(request: GetMessages, transcripts: Transcripts, pages: MessagePages) -> Messages:
    """Read the messages of a session that you may see, oldest first.

    Pages are stable while others write, because new messages come last. To poll, pass ``after_id``. A page is shorter
    than ``limit`` if it would exceed about 4 MiB; ``has_more`` is then true.
    """
    visibilities = () if request.visibility_filter is None else (request.visibility_filter,)
    transcript = await transcripts.to_read(request.session_id, *visibilities)
    # With the caller: otherwise the time would tell who else has read this page.
    actor = transcripts.actor
    key = (actor.tenant, actor.principal_id, transcript.state, request.offset, request.limit, request.after_id)
    known: Messages | None = pages.get(key)
    if known is not None:
        return known
    part = TranscriptRange(after=request.after_id, offset=request.offset, limit=request.limit)
    answer = _messages(await transcript.page(part), transcript.size)
    pages.put(key, answer, memory_size(answer))
    return answer


@admin_write(
    "message.set_visibility",
    tool="set_message_visibility",
    http="PUT /v1/sessions/{session_id}/messages/{message_id}/visibility",
    errors=(SessionNotFound, MessageNotFound),
)
async def set_message_visibility(request: SetMessageVisibility, transcripts: TranscriptWriter) -> VisibilityChanged:
    """Change the visibility of a message, such as one that should not be public. For admins; audited."""
    before = await transcripts.change_visibility(request.session_id, request.message_id, request.visibility)
    return VisibilityChanged(
        message_id=before.message_id, visibility=request.visibility, previous_visibility=before.visibility
    )


@admin_operation(
    "message.inspect",
    tool="inspect_messages",
    http="POST /v1/sessions/{session_id}/messages/inspect",
    effect=Effect.READ,
    audited=True,
    errors=(SessionNotFound,),
)
async def inspect_messages(request: InspectMessages, transcripts: Transcripts) -> Messages:
    """Read every message of a session, whatever its visibility. For admins; every use is audited."""
    transcript = await transcripts.to_inspect(request.session_id)
    return _messages(
        await transcript.page(TranscriptRange(offset=request.offset, limit=request.limit)), transcript.size
    )


def _messages(page: MessagePage, total: int) -> Messages:
    shown = message_infos(page.messages)
    return Messages(messages=shown, count=len(shown), total_count=total, has_more=page.has_more)


def message_infos(messages: Sequence[Message]) -> list[MessageInfo]:
    return [message_info(message) for message in messages]


def message_info(message: Message) -> MessageInfo:
    return MessageInfo(
        id=message.message_id,
        sender=message.sender,
        sender_type=message.sender_type,
        content=message.content,
        timestamp=from_micros(message.sent_at),
        visibility=message.visibility,
        metadata=raw_json(message.metadata),
        parent_message_id=message.parent_id,
        agent_id=message.sender,
        recipient_id=message.recipient_id,
        message_type=message.message_type,
        category=message.category,
        trust=trust_info(message.trust) or UNSET,
    )
