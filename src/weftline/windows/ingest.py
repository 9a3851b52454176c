"""Operation context.ingest: adds messages, tool outputs and workflow events to an agent's window."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from weftline.access.audit import AuditTrail
from weftline.access.model import AgentNotFound
from weftline.history.model import BranchNotFound
from weftline.kernel.clock import from_micros, to_micros
from weftline.kernel.errors import ContentTooLarge, InvalidInput, PermissionDenied, QuotaExceeded, SelfModification
from weftline.kernel.fields import Fraction, Name, ShortText, new_id
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, SubmittedText, operation
from weftline.models.language_models.content import ConversationMessage, Role, ToolCall, WireForm
from weftline.models.language_models.wire_forms import check_native, with_parts
from weftline.safety.trust.gate import ContentBlocked
from weftline.safety.trust.model import DerivedFrom, TrustInfo
from weftline.sessions.messages.model import ProtectedCategory
from weftline.sessions.model import NotMember, SessionArchived, SessionId, SessionNotFound
from weftline.windows.model import (
    INLINE_ID,
    MAX_CONTENT_BYTES,
    MAX_EVENTS,
    Category,
    EventDraft,
    EventExists,
    EventId,
    EventKind,
    MessageType,
    WindowAgent,
    WindowNotFound,
    as_read_by,
    self_written,
)
from weftline.windows.service import Windows
from weftline.windows.shared_windows import EventHolds
from weftline.windows.views import shown_trust
from weftline.windows.window_writer import check_size, submitted_texts

# How far the clock of a caller may be ahead.
_CLOCK_SKEW = timedelta(minutes=5)


class NewToolCall(Request):
    """A call of a tool, as the model made it."""

    call_id: Annotated[ShortText, msgspec.Meta(min_length=1, description="The id that its result refers to.")]
    name: Annotated[ShortText, msgspec.Meta(min_length=1, description="The tool.")]
    arguments: Annotated[str, msgspec.Meta(description="JSON text.")] = "{}"


def _new_event_id() -> str:
    return new_id("event")


class NewWindowEvent(Request):
    """An event to add."""

    event_id: EventId = msgspec.field(default_factory=_new_event_id)
    role: Annotated[
        Role | Literal["developer"],
        msgspec.Meta(description="Who speaks; tool for the result of a call; developer is system."),
    ] = "user"
    content: Annotated[
        str | list[dict[str, Any]],
        msgspec.Meta(
            description=f"The text, at most {MAX_CONTENT_BYTES} bytes; or content parts as in the API of form, by "
            "default openai_chat."
        ),
    ] = ""
    name: Annotated[ShortText | None, msgspec.Meta(description="Name of the speaker or tool.")] = None
    tool_calls: Annotated[
        tuple[NewToolCall, ...], msgspec.Meta(max_length=128, description="Calls that an assistant makes.")
    ] = ()
    tool_call_id: Annotated[ShortText | None, msgspec.Meta(description="The call that a tool result answers.")] = None
    form: Annotated[WireForm | None, msgspec.Meta(description="The wire form of native.")] = None
    native: Annotated[
        Any, msgspec.Meta(description="The message as your provider's API has it, if content cannot express it.")
    ] = None
    kind: Annotated[EventKind | None, msgspec.Meta(description="Follows from the role by default.")] = None
    category: Annotated[
        Category | None,
        msgspec.Meta(
            description="By default SYSTEM for system, SYSTEM_OUTPUT for tool, INTERNAL for workflow events, else "
            "DIALOG."
        ),
    ] = None
    importance: Annotated[Fraction | None, msgspec.Meta(description="How much it matters, from 0 to 1.")] = None
    pinned: Annotated[bool, msgspec.Meta(description="Part of every prompt, whatever its age.")] = False
    recipient_id: Annotated[Name | None, msgspec.Meta(description="The agent it is addressed to.")] = None
    message_type: MessageType = "message"
    references: Annotated[
        tuple[ShortText, ...], msgspec.Meta(max_length=100, description="Events and items it refers to.")
    ] = ()
    source_refs: Annotated[
        tuple[ShortText, ...], msgspec.Meta(max_length=100, description="Sources of its content.")
    ] = ()
    derived_from: DerivedFrom = ()
    occurred_at: Annotated[
        Annotated[datetime, msgspec.Meta(tz=True)] | None, msgspec.Meta(description="When it happened; default: now.")
    ] = None
    step: Annotated[Name | None, msgspec.Meta(description="The workflow step it belongs to.")] = None
    reason: Annotated[ShortText | None, msgspec.Meta(description="Why it is added.")] = None

    def message(self) -> ConversationMessage:
        parts = self.content if isinstance(self.content, list) else None
        role: Role = "system" if self.role == "developer" else self.role
        message = ConversationMessage(
            role=role,
            content="" if isinstance(self.content, list) else self.content,
            name=self.name,
            tool_calls=tuple(ToolCall(call.call_id, call.name, call.arguments) for call in self.tool_calls),
            tool_call_id=self.tool_call_id,
            form=self.form,
            native=self.native,
        )
        if parts is None:
            return check_native(message, "native")
        if self.native is not None:
            raise InvalidInput("content: give either content parts or native", field="content")
        return with_parts(message, parts)

    def draft(self) -> EventDraft:
        return EventDraft(
            event_id=self.event_id,
            message=self.message(),
            kind=self.kind,
            category=self.category,
            importance=self.importance,
            pinned=self.pinned,
            recipient_id=self.recipient_id,
            message_type=self.message_type,
            references=self.references,
            source_refs=self.source_refs,
            derived_from=self.derived_from,
            occurred_at=None if self.occurred_at is None else to_micros(self.occurred_at),
            step=self.step,
            reason=self.reason,
        )


class IngestEvents(Request):
    """Events of one agent's conversation, in order."""

    session_id: SessionId
    events: Annotated[
        list[NewWindowEvent], msgspec.Meta(min_length=1, max_length=MAX_EVENTS, description="The events, oldest first.")
    ]
    agent_id: WindowAgent = None


class IngestedEvent(Response, kw_only=True, omit_defaults=False):
    """An event of the window; ``added`` is false if it was there already.

    ``shown_as`` data: you wrote it as your own system text, which is not yours to write; prompts only quote it.
    """

    event_id: str
    number: int
    category: Category
    tokens: int
    added: bool
    shown_as: Literal["data"] | UnsetType = UNSET
    trust: TrustInfo | UnsetType = UNSET


class Ingested(Response, kw_only=True, omit_defaults=False):
    """The events, and how full the window is.

    ``trust`` of an event: why it is labelled; ``held``: no prompt of others contains it until a human releases it, for
    which ``approval_id`` waits.
    """

    success: Literal[True] = True
    session_id: str
    agent_id: str
    events: list[IngestedEvent]
    tokens: int
    limit: int
    approval_id: str | UnsetType = UNSET


def _texts(request: IngestEvents) -> list[SubmittedText]:
    texts: list[SubmittedText] = []
    for event in request.events:
        with contextlib.suppress(InvalidInput):  # raised again where the session is known
            draft = event.draft()
            check_size(draft)
            texts += submitted_texts(draft)
    return texts


def _check_ids(request: IngestEvents) -> None:
    """Refuse the ids of messages that are given inline: an event with one would stand for that message."""
    for place, event in enumerate(request.events):
        if event.event_id.startswith(INLINE_ID):
            raise InvalidInput(
                f"events[{place}].event_id: ids that begin with '{INLINE_ID}' are those of messages given inline",
                hint="Choose another event_id. To send a conversation inline, pass it to `context.assemble`.",
                field=f"events[{place}].event_id",
            )


def _check_times(request: IngestEvents, now: int) -> None:
    """Refuse times that no recorded event can have: before computers kept them, and after now."""
    for place, event in enumerate(request.events):
        time = event.occurred_at
        if time is not None and not from_micros(0) <= time <= from_micros(now) + _CLOCK_SKEW:
            raise InvalidInput(
                f"events[{place}].occurred_at: {time.isoformat()} is not between 1970 and now",
                hint="Give the time at which the event happened, or leave it out for now.",
                field=f"events[{place}].occurred_at",
            )


@operation(
    "context.ingest",
    tool="ingest_event",
    http="POST /v1/sessions/{session_id}/ingest",
    permission=Permission.WRITE,
    rate=RateClass.MESSAGE,
    effect=Effect.WRITE,
    errors=(
        SessionNotFound,
        SessionArchived,
        AgentNotFound,
        PermissionDenied,
        NotMember,
        ProtectedCategory,
        SelfModification,
        EventExists,
        ContentTooLarge,
        QuotaExceeded,
        BranchNotFound,
        WindowNotFound,
        ContentBlocked,
    ),
    content=_texts,
)
async def ingest_events(request: IngestEvents, windows: Windows, audit: AuditTrail, holds: EventHolds) -> Ingested:
    """Add events of your conversation to your window: messages, tool calls and their results, workflow events.

    Idempotent by event_id: sending an event again changes nothing. The window is made with its first event. System
    text comes from your definition: your own system events are refused, or data if you add others with them.
    """
    window = await windows.open(request.session_id, request.agent_id, create=True)
    writer = await windows.to_write(window)
    last = writer.owner.last_number
    _check_ids(request)
    _check_times(request, windows.now)
    stored = await writer.ingest([event.draft() for event in request.events], quote=True)
    events = await windows.as_read([as_read_by(event, window.agent_id) for event in stored], window.agent_id)
    if any(event.as_data and event.number > last for event in events):
        await audit.note_violation("context.ingest", self_written(), window.session_id)
    approval_id = await holds.open(writer, "context.ingest")
    await writer.publish()
    return Ingested(
        session_id=window.session_id,
        agent_id=window.agent_id,
        events=[
            IngestedEvent(
                event_id=event.event_id,
                number=event.number,
                category=event.category,
                tokens=event.tokens,
                added=event.number > last,
                shown_as="data" if event.as_data else UNSET,
                trust=shown_trust(event) or UNSET,
            )
            for event in events
        ],
        tokens=writer.head.weight,
        limit=window.limit,
        approval_id=approval_id or UNSET,
    )
