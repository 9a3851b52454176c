"""Operations on pins: pin an item, unpin it, list what is pinned."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec

from weftline.access.sql import AccessStore
from weftline.access.teams import TeamStore
from weftline.history.lines import LineStore
from weftline.indexing.collections import MEMORY, SESSIONS, WHOLE_PLACE, MemoryKey, Source, key_of_item
from weftline.indexing.pins import ItemPlace, PinLimitExceeded, PinnedItem, PinNotFound, Pins, may_pin_for_others
from weftline.kernel.clock import from_micros
from weftline.kernel.errors import InvalidInput, NotFound, PermissionDenied
from weftline.kernel.events import EventType, NewEvent
from weftline.kernel.identity import ANYONE, PRINCIPAL, USER, Actor, Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, Success, operation
from weftline.kernel.outbox import Outbox
from weftline.search.persistent_memory import entry_of_item, is_persistent, item_of_entry, readable_places
from weftline.search.session_cursor import IndexItem
from weftline.search.session_item_text import ItemText, ItemTexts
from weftline.sessions.messages.model import ADMINS, MessageNotFound
from weftline.sessions.messages.operations import MessageId
from weftline.sessions.model import (
    SessionArchived,
    SessionId,
    SessionNotFound,
    find_session,
    lock_active_session,
)
from weftline.sessions.sql import SessionStore
from weftline.state.agent_context.model import (
    OWNER_ERRORS,
    ContextLine,
    EntryAddress,
    MemoryTypeName,
    Owner,
    check_may_use,
    is_shared,
    part_of,
)
from weftline.state.agent_context.push import EntryKey, OfWorkflow
from weftline.state.board.model import KeyNotFound
from weftline.state.board.operations import Key
from weftline.state.memory.model import MemoryNotFound
from weftline.state.memory.sql import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.sessions.model import Session

TOOL = "pins"
_SHOWN_CHARACTERS = 200
_NOT_FOUND: dict[Source, type[NotFound]] = {
    "message": MessageNotFound,
    "board": KeyNotFound,
    "memory": MemoryNotFound,
}


class PinTarget(Request):
    """The item: a message or board key of a session, or a key of your memory."""

    session_id: Annotated[
        SessionId | None, msgspec.Meta(description="The session of the message, board key or session memory.")
    ] = None
    message_id: Annotated[MessageId | None, msgspec.Meta(description="A message of the session.")] = None
    key: Annotated[Key | None, msgspec.Meta(description="A key of the session's board.")] = None
    memory_key: Annotated[
        EntryKey | None,
        msgspec.Meta(
            description="A key of your memory; with session_id of that session's, if it has the key. With memory_type, "
            "a key of your persistent memory."
        ),
    ] = None
    memory_type: Annotated[
        MemoryTypeName | None, msgspec.Meta(description="The memory type of a key of persistent memory.")
    ] = None
    workflow_id: OfWorkflow = None
    owner: Owner = None


class AddPin(PinTarget):
    """The item to pin."""


class RemovePin(PinTarget):
    """The item to unpin."""


class ListPins(Request):
    """Where to look."""

    session_id: Annotated[
        SessionId | None,
        msgspec.Meta(description="Pins of this session and of your memory; without it, of your memory only."),
    ] = None


class PinInfo(Response, kw_only=True):
    """A pinned item; ``text`` is its beginning. ``key``: of the board, or of memory."""

    source: Source
    session_id: str | None = None
    message_id: int | None = None
    key: str | None = None
    memory_type: str | None = None
    owner: str | None = None
    tokens: int
    pinned_by: str
    pinned_at: datetime
    text: str


class PinList(Success, kw_only=True):
    """Pins that you may read, oldest first. ``tokens``: what they add to a prompt."""

    pins: list[PinInfo]
    tokens: int
    limit_tokens: int


class PinRemoved(Success):
    """The item is not pinned any more."""


class PinnedItems(msgspec.Struct, frozen=True):
    """Pins for the caller of one operation: finds items, checks rights, publishes events."""

    actor: Actor
    access: AccessStore
    teams: TeamStore
    sessions: SessionStore
    lines: LineStore
    memories: MemoryStore
    contents: ItemTexts
    pins: Pins
    outbox: Outbox

    async def add(self, target: PinTarget) -> PinInfo:
        """Pin an item for all who may read it."""
        await self._locked_session(target.session_id)
        at, text = await self._open(target)
        is_for_others = at.collection == SESSIONS or target.owner is not None
        if is_for_others and not may_pin_for_others(self.actor.participant):
            raise PermissionDenied(
                "Sub-agents cannot pin for others: a pin is part of the prompts of all who may read the item.",
                hint="Ask the orchestrator that started you to pin it, or pin a key of your own memory.",
            )
        await self._lock_memory(at)
        pin = await self.pins.add(at, text.text)
        await self._publish("pin.added", at)
        return _info(pin, text)

    async def remove(self, target: PinTarget) -> None:
        """Unpin an item: allowed for who pinned it, the creator of its session, and admins.

        They may do so even if the item cannot be read any more, so that it does not count against the limit.
        """
        session = await self._locked_session(target.session_id)
        await self._check_owner(target)
        pin = await self._find(target)
        trusted = {pin.pinned_by, session.created_by if session else None, (target.owner or "").removeprefix(USER)}
        if self.actor.principal_id not in trusted and not self.actor.is_admin:
            if await self._readable(pin.at) is None:
                raise _not_pinned(pin.at)
            raise PermissionDenied(
                f"'{pin.pinned_by}' pinned it: only they, the creator of the session and admins may unpin it.",
                pinned_by=pin.pinned_by,
            )
        await self.pins.store.remove(pin.at)
        await self._publish("pin.removed", pin.at)

    async def list(self, session_id: str | None) -> PinList:
        """List the pins that the caller may read."""
        if session_id is not None:
            await find_session(session_id, self.actor, self.sessions)
        store, owner = self.pins.store, self.actor.principal_id
        found = [
            *(await store.of_place(SESSIONS, session_id) if session_id else ()),
            *await store.of_place(MEMORY, owner),
            *[pin for place in sorted(readable_places(self.actor)) for pin in await store.of_place(MEMORY, place)],
        ]
        shown = [
            _info(pin, text)
            for pin in found
            if pin.at.session_id in {None, session_id} and (text := await self._readable(pin.at)) is not None
        ]
        return PinList(pins=shown, tokens=sum(pin.tokens for pin in shown), limit_tokens=self.pins.limits.tokens)

    async def _locked_session(self, session_id: str | None) -> Session | None:
        if session_id is None:
            return None
        session, _ = await lock_active_session(session_id, self.actor, self.sessions)
        return session

    async def _lock_memory(self, at: ItemPlace) -> None:
        """Lock a memory, so that concurrent pins do not exceed its limit together; a session is locked already."""
        if is_persistent(at.place):
            await self.lines.lock(at.place)
        elif at.collection == MEMORY:
            await self.memories.lock(at.place)

    async def _check_owner(self, target: PinTarget) -> None:
        if target.owner is not None:
            await check_may_use(self.actor, target.owner, self.access, self.teams)

    async def _find(self, target: PinTarget) -> PinnedItem:
        places = list(_places(target, self.actor.principal_id))
        for at in places:
            if (pin := await self.pins.store.find(at)) is not None:
                return pin
        raise _not_pinned(places[0])

    async def _open(self, target: PinTarget) -> tuple[ItemPlace, ItemText]:
        """Return an item with its text; raises if the caller may not read it."""
        await self._check_owner(target)
        places = list(_places(target, self.actor.principal_id))
        for at in places:
            if (text := await self._readable(at)) is not None:
                return at, text
        raise _NOT_FOUND[source_of(places[0])]

    async def _readable(self, at: ItemPlace) -> ItemText | None:
        """Return the current text of an item that the caller may read."""
        text = await self.contents.read(IndexItem(source_of(at), at.place, at.item))
        return text if text is not None and self.actor.matches(_readers(text)) else None

    async def _publish(self, event_type: EventType, at: ItemPlace) -> None:
        event = NewEvent(
            type=event_type,
            session_id=at.session_id,
            subject=at.item,
            actor=self.actor.participant,
            # Names of keys are only for those who may read them, which may change.
            readable_by=(f"{PRINCIPAL}{self.actor.principal_id}", ADMINS),
            data={"source": source_of(at), "place": at.place, "item": at.item},
        )
        await self.outbox.publish(event)


@operation(
    "pin.add",
    tool=TOOL,
    action="add",
    http="POST /v1/pins",
    permission=Permission.WRITE,
    rate=RateClass.MESSAGE,
    effect=Effect.WRITE,
    errors=(
        *OWNER_ERRORS,
        SessionNotFound,
        SessionArchived,
        MessageNotFound,
        KeyNotFound,
        MemoryNotFound,
        PinLimitExceeded,
        PermissionDenied,
    ),
)
async def add_pin(request: AddPin, items: PinnedItems) -> PinInfo:
    """Pin a message, a board key or a key of your memory: it is part of every prompt, whatever the task.

    A pin of a session applies to all who may read the item; it stays when the key is written again.
    """
    return await items.add(request)


@operation(
    "pin.remove",
    tool=TOOL,
    action="remove",
    http="POST /v1/pins/remove",
    destructive=False,
    permission=Permission.WRITE,
    rate=RateClass.MESSAGE,
    effect=Effect.WRITE,
    errors=(*OWNER_ERRORS, SessionNotFound, SessionArchived, PinNotFound, PermissionDenied),
)
async def remove_pin(request: RemovePin, items: PinnedItems) -> PinRemoved:
    """Unpin a message, a board key or a key of your memory. The item itself stays."""
    await items.remove(request)
    return PinRemoved()


@operation(
    "pin.list",
    tool=TOOL,
    action="list",
    http="GET /v1/pins",
    permission=Permission.READ,
    rate=RateClass.MESSAGE,
    effect=Effect.READ,
    errors=(SessionNotFound,),
)
async def list_pins(request: ListPins, items: PinnedItems) -> PinList:
    """List what is pinned in a session and in your memory, with its tokens."""
    return await items.list(request.session_id)


def source_of(at: ItemPlace) -> Source:
    """Return the kind of a pinned item."""
    if at.collection == MEMORY:
        return "memory"
    return "message" if key_of_item(at.item) == at.item else "board"


def _places(target: PinTarget, owner: str) -> Iterator[ItemPlace]:
    """Yield where the item of a request may be."""
    given = [name for name in ("message_id", "key", "memory_key") if getattr(target, name) is not None]
    if len(given) != 1:
        raise InvalidInput("message_id: give exactly one of message_id, key and memory_key", field="message_id")
    if target.memory_type is None and (target.owner is not None or target.workflow_id is not None):
        raise InvalidInput("memory_type: is needed with owner and workflow_id", field="memory_type")
    if target.memory_type is not None and target.memory_key is None:
        raise InvalidInput("memory_key: is needed with memory_type", field="memory_key")
    if target.session_id is None and target.memory_key is None:
        raise InvalidInput(f"session_id: is needed with {given[0]}", field="session_id")
    if target.message_id is not None:
        yield ItemPlace.of_message(target.session_id or "", target.message_id)
    elif target.key is not None:
        yield ItemPlace.of_board_key(target.session_id or "", target.key)
    elif target.memory_type is not None:
        part = part_of(target.memory_type, target.workflow_id, "memory_type")
        root = ContextLine(target.owner or owner, None, None).line_id
        yield ItemPlace(MEMORY, root, item_of_entry(EntryAddress(part, target.memory_key or "")))
    else:
        for session_id in dict.fromkeys((target.session_id, None)):
            yield ItemPlace.of_memory_key(owner, session_id, target.memory_key or "")


def _not_pinned(at: ItemPlace) -> PinNotFound:
    return PinNotFound(f"This {source_of(at)} item is not pinned, or not visible to you.")


def _readers(text: ItemText) -> tuple[str, ...]:
    """Return the ACL of an item."""
    return ANYONE if text.scope == WHOLE_PLACE else msgspec.json.decode(text.scope, type=tuple[str, ...])


def _info(pin: PinnedItem, text: ItemText) -> PinInfo:
    source, memory_type = source_of(pin.at), None
    key = key_of_item(pin.at.item)
    if is_persistent(pin.at.place):
        memory_type, key = entry_of_item(pin.at.item)
    elif source == "memory":
        key = MemoryKey.parse(pin.at.item).key
    return PinInfo(
        source=source,
        session_id=pin.at.session_id,
        message_id=int(pin.at.item) if source == "message" else None,
        key=None if source == "message" else key,
        memory_type=memory_type,
        owner=pin.at.place if is_shared(pin.at.place) else None,
        tokens=pin.tokens,
        pinned_by=pin.pinned_by,
        pinned_at=from_micros(pin.pinned_at),
        text=text.text[:_SHOWN_CHARACTERS],
    )
