"""A session's transcript for one caller: reading what is visible, and writing under the session's lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import structs

from weftline.history.item_ids import MessageItemId
from weftline.history.line_kinds import check_may_forget
from weftline.indexing.pins import ItemPlace, Pins
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import ContentTooLarge, InvalidInput, PermissionDenied
from weftline.kernel.events import EventType, NewEvent
from weftline.kernel.identity import ANYONE, EVERYONE, TEAM, Actor
from weftline.kernel.json_input import NO_METADATA, encode_json_field
from weftline.kernel.outbox import Outbox
from weftline.records.sql import RecordStore
from weftline.safety.trust.gate import ContentGate, IncomingContent
from weftline.sessions.agent_directory import AgentDirectory
from weftline.sessions.messages.inbox_operations import Inbox
from weftline.sessions.messages.model import (
    DIRECT,
    MAX_CHARACTERS,
    AudienceCount,
    Excerpt,
    Message,
    MessageNotFound,
    TranscriptRange,
    Visibility,
    audience_for,
    audiences_of,
    check_not_protected,
    pins_itself,
    readers_of,
)
from weftline.sessions.messages.store import MessageStore, ReplyObserver
from weftline.sessions.model import Session, find_session, lock_active_session, lock_session
from weftline.sessions.recorder import Recorder, session_envelope
from weftline.sessions.sql import SessionStore
from weftline.sessions.team_operations import Teams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.safety.trust.model import TrustLabel


# Takes the place of a text that was forgotten.
_REMOVED = "[removed]"
_BATCH_SIZE = 100
_MAX_PAGE_BYTES = 4 * 2**20


class MessagePage(NamedTuple):
    """Messages, and whether more follow."""

    messages: Sequence[Message]
    has_more: bool


class MessageDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A message before it has an id, a time and an audience.

    Without a visibility it is public, or direct if it has a recipient or replies to a direct message.
    """

    content: str
    visibility: str | None
    metadata: str
    parent_id: int | None
    recipient_id: str | None
    message_type: str
    category: str
    derived_from: tuple[str, ...] = ()
    # The content is a text of Weftline, made of texts that have passed the gate.
    is_admitted: bool = False


class Transcripts(msgspec.Struct, frozen=True):
    """Opens transcripts for one caller."""

    actor: Actor
    sessions: SessionStore
    messages: MessageStore

    async def to_read(self, session_id: str, *visibilities: Visibility) -> Transcript:
        """Open the visible part of a transcript, optionally only these visibilities."""
        session = await find_session(session_id, self.actor, self.sessions)
        audiences = audiences_of(self.actor, *visibilities)
        return Transcript(session, audiences, await self.messages.audience_counts(session_id, audiences), self.messages)

    async def to_inspect(self, session_id: str) -> Transcript:
        """Open a whole transcript regardless of visibility, for audited inspection by admins."""
        session = await find_session(session_id, self.actor, self.sessions)
        return Transcript(session, (), [AudienceCount("", session.message_count, 0)], self.messages)


@dataclass(slots=True)
class Transcript:
    """The messages of a session that a caller may see."""

    session: Session
    audiences: tuple[str, ...]
    audience_counts: Sequence[AudienceCount]
    messages: MessageStore

    @property
    def size(self) -> int:
        return sum(tally.messages for tally in self.audience_counts)

    @property
    def state(self) -> tuple[str | tuple[str, int, int], ...]:
        """Return a cache key: as long as it is equal, the visible messages are identical."""
        return (self.session.session_id, *((t.audience, t.messages, t.stamp) for t in self.audience_counts))

    async def page(self, part: TranscriptRange) -> MessagePage:
        """Return one page of visible messages; shorter than the limit if it would exceed the size limit."""
        found: list[Message] = []
        size, rest = 0, part
        while True:
            # One more than the limit, to compute has_more.
            wanted = min(_BATCH_SIZE, part.limit + 1 - len(found))
            some = await self._read(structs.replace(rest, limit=wanted))
            found += some
            if len(found) > part.limit or len(some) < wanted:
                return MessagePage(found[: part.limit], has_more=len(found) > part.limit)
            size += sum(message.size for message in some)
            if size > _MAX_PAGE_BYTES:
                return MessagePage(found, has_more=True)
            rest = rest.rest_after(some[-1].message_id)

    async def _read(self, part: TranscriptRange) -> Sequence[Message]:
        session_id, last = self.session.session_id, self.session.message_count
        if not self.size:
            return []
        if self.size == last and part.sender is None:
            return await self.messages.read_any(session_id, structs.replace(part, until=min(part.until, last)))
        filled = tuple(tally.audience for tally in self.audience_counts if tally.messages)
        return await self.messages.read(session_id, Excerpt(filled, part))

    async def count_without_direct_of_others(self) -> int:
        """Return the number of all messages of the session, except direct ones between others."""
        own = sum(tally.messages for tally in self.audience_counts if tally.audience.startswith(DIRECT))
        every = await self.messages.audience_counts(self.session.session_id, (DIRECT,))
        return self.session.message_count - sum(tally.messages for tally in every) + own

    async def newest(self, limit: int) -> Sequence[Message]:
        """Return the latest messages, in the order sent."""
        page = await self.page(TranscriptRange(limit=limit, newest_first=True))
        return list(reversed(page.messages))


class TranscriptWriter(msgspec.Struct, frozen=True):
    """Adds messages and changes their visibility, for one caller."""

    actor: Actor
    sessions: SessionStore
    messages: MessageStore
    outbox: Outbox
    clock: Clock
    observer: ReplyObserver
    teams: Teams
    pins: Pins
    directory: AgentDirectory
    inbox: Inbox
    gate: ContentGate
    records: RecordStore

    async def add(self, session_id: str, draft: MessageDraft) -> Message:
        """Add a message; the session's lock serialises ids and timestamps."""
        await self._check(draft)
        session, _ = await lock_active_session(session_id, self.actor, self.sessions)
        parent = await self._find_parent(session_id, draft.parent_id)
        message = await self._admitted(self._message(session, await self._addressed(session, draft, parent)), draft)
        check_not_protected(message, self.actor)
        await self.messages.add(session_id, message)
        await self.inbox.deliver(session_id, message)
        if pins_itself(message, self.actor.participant):
            await self.pins.add(ItemPlace.of_message(session_id, message.message_id), message.content)
        added = self._added(session, message)
        await self.outbox.publish(added)
        await self._record_task(session, message, added.readable_by)
        await self.inbox.make_room(message)
        if parent is not None:
            await self.observer.replied(session, parent, message)
        return message

    async def _record_task(self, session: Session, message: Message, readable_by: tuple[str, ...]) -> None:
        """Record the envelope of a task that a message ends, if the session asks for it."""
        if "task" not in session.config.envelopes or message.message_type not in session.config.task_message_types:
            return
        ids = [each for each in (message.parent_id, message.message_id) if each is not None]
        items = (str(MessageItemId(session.session_id, each)) for each in ids)
        envelope = session_envelope("task", session, self.actor, self.clock.now(), items)
        recorder = Recorder(self.actor, self.records, self.outbox, self.clock)
        await recorder.add(envelope, session, readable_by=readable_by)

    async def _admitted(self, message: Message, draft: MessageDraft) -> Message:
        """Pass content and metadata through the gate; both have one label."""
        if draft.is_admitted:
            return message
        item = str(message.message_id)
        contents = [IncomingContent("message", item, message.content, derived_from=draft.derived_from)]
        if message.metadata != NO_METADATA:
            contents.append(IncomingContent("message", item, message.metadata, derived_from=draft.derived_from))
        (content, *metadata), label = await self.gate.admit_together(contents)
        if label is None:
            return message
        return structs.replace(message, content=content, metadata=(*metadata, message.metadata)[0], trust=label)

    async def change_visibility(self, session_id: str, message_id: int, visibility: Visibility) -> Message:
        """Change the visibility of any message of the session; return the message as it was."""
        # Allowed in archived sessions too, so that a message can still be hidden there.
        session, _ = await lock_session(session_id, self.actor, self.sessions)
        message = await self.messages.find(session_id, message_id)
        if message is None:
            raise message_not_found(message_id)
        audience = audience_for(visibility, message.sender, message.sender_type, message.recipient_id)
        if audience != message.audience:
            await self.messages.change_audience(session_id, message, visibility, audience)
            # Earlier events of the message get the new audience as well.
            await self.outbox.readdress("message.added", session_id, str(message_id), readers_of(audience))
            changed = structs.replace(message, visibility=visibility, audience=audience)
            await self.outbox.publish(self._changed(session, changed, message.audience))
        return message

    async def erase(self, session_id: str, message_id: int) -> None:
        """Remove the text of a message, in archived sessions too; its number, sender and time stay."""
        message = await self._to_forget(session_id, message_id)
        await self.messages.rewrite(session_id, structs.replace(message, content=_REMOVED, metadata=NO_METADATA))
        await self.pins.forget(ItemPlace.of_message(session_id, message_id))

    async def relabel(self, session_id: str, message_id: int, label: TrustLabel | None) -> None:
        """Give a message another trust label, in archived sessions too."""
        message = await self._to_forget(session_id, message_id)
        await self.messages.rewrite(session_id, structs.replace(message, trust=label))

    async def _to_forget(self, session_id: str, message_id: int) -> Message:
        check_may_forget(self.actor)
        await lock_session(session_id, self.actor, self.sessions)
        message = await self.messages.find(session_id, message_id)
        if message is None:
            raise message_not_found(message_id)
        return message

    async def _check(self, draft: MessageDraft) -> None:
        if len(draft.content) > MAX_CHARACTERS:
            raise ContentTooLarge(
                f"content: {len(draft.content)} characters; a message has at most {MAX_CHARACTERS}.",
                field="content",
                limit_characters=MAX_CHARACTERS,
            )
        encode_json_field("content", draft.content)
        if draft.visibility == "admin_only" and not self.actor.is_admin:
            raise PermissionDenied("A message with the visibility 'admin_only' needs the permission 'admin'.")
        if draft.visibility is not None and draft.visibility.startswith(TEAM):
            await self.teams.find(draft.visibility.removeprefix(TEAM))

    async def _addressed(self, session: Session, draft: MessageDraft, parent: Message | None) -> MessageDraft:
        """Return a draft with its visibility, and with its recipient, who must be able to read it."""
        if draft.visibility is None:
            recipient_id = draft.recipient_id
            if recipient_id is None and parent is not None:
                recipient_id = parent.other_side(self.actor.principal_id)
            visibility = "public" if recipient_id is None else "private"
            draft = structs.replace(draft, visibility=visibility, recipient_id=recipient_id)
        if draft.recipient_id is not None:
            recipient = await self.directory.member(session, draft.recipient_id)
            if not self._message(session, draft).visible_to(recipient):
                raise InvalidInput(
                    f"visibility: '{draft.recipient_id}' cannot read a message with the visibility "
                    f"'{draft.visibility}'; omit it to send a direct message",
                    field="visibility",
                )
        return draft

    async def _find_parent(self, session_id: str, parent_id: int | None) -> Message | None:
        if parent_id is None:
            return None
        parent = await self.messages.find(session_id, parent_id)
        if parent is None or not parent.visible_to(self.actor):
            raise message_not_found(parent_id)
        return parent

    def _message(self, session: Session, draft: MessageDraft) -> Message:
        sender, sender_type, visibility = self.actor.principal_id, self.actor.agent_type, draft.visibility or "public"
        return Message(
            message_id=session.message_count + 1,
            audience=audience_for(visibility, sender, sender_type, draft.recipient_id),
            visibility=visibility,
            sender=sender,
            sender_type=sender_type,
            recipient_id=draft.recipient_id,
            message_type=draft.message_type,
            category=draft.category,
            parent_id=draft.parent_id,
            # Clocks of several servers differ; timestamps of a transcript must not go backwards.
            sent_at=max(to_micros(self.clock.now()), session.last_message_at or 0),
            content=draft.content,
            metadata=draft.metadata,
            author=self.actor.participant,
        )

    def _changed(self, session: Session, message: Message, old_audience: str) -> NewEvent:
        """Return the event for the old and the new audience; the old one learns only the message id."""
        data = {"message_id": message.message_id, "visibility": message.visibility}
        readers = {*readers_of(old_audience), *message.readers}
        return self._event("message.visibility_changed", session, message, readers, data)

    def _added(self, session: Session, message: Message) -> NewEvent:
        return self._event(
            "message.added",
            session,
            message,
            {*message.readers},
            {
                "message_id": message.message_id,
                "agent_id": message.sender,
                "recipient_id": message.recipient_id,
                "message_type": message.message_type,
                "category": message.category,
                "visibility": message.visibility,
                "parent_message_id": message.parent_id,
            },
        )

    def _event(
        self, event_type: EventType, session: Session, message: Message, readable_by: set[str], data: dict[str, Any]
    ) -> NewEvent:
        return NewEvent(
            type=event_type,
            session_id=session.session_id,
            subject=str(message.message_id),
            actor=self.actor.participant,
            readable_by=ANYONE if EVERYONE in readable_by else tuple(sorted(readable_by)),
            data=data,
        )


def message_not_found(message_id: int) -> MessageNotFound:
    return MessageNotFound(
        f"There is no message {message_id} in this session.", resource_type="message", resource_id=message_id
    )
