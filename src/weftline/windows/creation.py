"""Creates windows: a sub-agent starts with its parent's SYSTEM and CONTEXT events, copied once.

The copies are independent: later events of the parent do not appear, until a refresh brings what changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from weftline.history.model import SYSTEM
from weftline.kernel.identity import PrincipalKind
from weftline.models.language_models.content import ConversationMessage
from weftline.windows.agent_settings import agent_settings
from weftline.windows.model import (
    CLAMP_NOTE,
    INHERITED,
    ORIGIN_MARK,
    Category,
    WindowEvent,
    WindowExists,
    WindowSettings,
    as_read_by,
    content_hash,
    content_key,
    message_tokens,
)

if TYPE_CHECKING:
    from weftline.access.model import Principal
    from weftline.sessions.model import Session
    from weftline.windows.model import Window
    from weftline.windows.service import Windows
    from weftline.windows.window_writer import WindowWriter


class WindowOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a window that a caller gives; None is derived from the agent's definition or its parent's window."""

    model: str | None = None
    model_max_tokens: int | None = None
    shared_cw_max_tokens: int | None = None
    reserved_tokens: int | None = None
    shares: dict[Category, float] | None = None
    compaction_threshold: float | None = None
    autosave: bool | None = None


class Refreshed(NamedTuple):
    """Ids of inherited events that a refresh added, replaced and removed."""

    added: list[str]
    updated: list[str]
    removed: list[str]


async def create_window(service: Windows, session: Session, agent: Principal, options: WindowOptions) -> WindowSettings:
    """Create an agent's window in a session that is locked; raises WindowExists if it has one."""
    parent = await _parent_window(service, session, agent)
    settings = await _derive(service, session, agent, options, parent)
    if not await service.store.add(settings):
        raise WindowExists(f"'{agent.principal_id}' has a window in this session.", resource_id=agent.principal_id)
    await service.lines.create(settings.line_id)
    # An earlier window under this name may have left the agent on a branch.
    await service.checkouts.switch(settings.line_id, agent.principal_id, None)
    window = await service.view(settings, agent)
    readers = [agent.principal_id]
    created = service.event("window.created", session, agent.principal_id, readers, {"limit": window.limit})
    if parent is not None:
        await inherit(service, session, window, parent)
        await note_clamp(service, session, window, parent)
    await service.outbox.publish(created)
    return settings


async def inherit(service: Windows, session: Session, window: Window, parent: Window) -> Refreshed:
    """Bring the copies of the parent's SYSTEM and CONTEXT events up to date."""
    writer = await service.to_write(window, session)
    wanted = {event.event_id: event for event in await _inheritable(service, window, parent)}
    prefix = f"{parent.agent_id}{ORIGIN_MARK}"
    present = {event.event_id: event for event in await service.own_events(window) if event.event_id.startswith(prefix)}
    added = [event for event_id, event in wanted.items() if event_id not in present]
    updated = [
        structs.replace(event, number=present[event_id].number, at=present[event_id].at)
        for event_id, event in wanted.items()
        if event_id in present and not _same(event, present[event_id])
    ]
    removed = [event_id for event_id in present if event_id not in wanted]
    gone = await writer.current(key for event_id in removed for key in (event_id, content_key(event_id)))
    first = writer.owner.last_number + 1
    numbered = [structs.replace(event, number=first + place, at=writer.now) for place, event in enumerate(added)]
    await writer.check_number(len(numbered))
    if numbered or updated or gone:
        before = writer.owner.stored_bytes
        await writer.add([*numbered, *updated], f"inherit from {parent.agent_id}", gone)
        await writer.check_bytes(before)
        writer.content_changed(added=len(added), updated=len(updated), removed=len(removed))
    await writer.publish()
    return Refreshed([event.event_id for event in added], [event.event_id for event in updated], removed)


async def note_clamp(service: Windows, session: Session, window: Window, parent: Window) -> None:
    """Tell the parent, by a note and an event, that a sub-agent's window is smaller than its own."""
    if window.limit >= parent.limit:
        return
    writer = await service.to_write(parent, session)
    note = _clamp_note(window, parent, writer)
    if not await writer.current([note.event_id]):
        await writer.add([note], "note a clamped window")
    await writer.publish()
    data = {"limit": window.limit, "parent_id": parent.agent_id, "parent_limit": parent.limit}
    readers = [window.agent_id, parent.agent_id]
    await service.outbox.publish(service.event("window.clamped", session, window.agent_id, readers, data))


async def note_shared_clamp(service: Windows, session: Session, owner_id: str, before: int) -> None:
    """Tell all that share a window, and the parent of its owner, that one of them made it smaller."""
    sharing = await service.store.sharing(session.session_id, owner_id)
    settings = next((each for each in sharing if each.agent_id == owner_id), None)
    agent = await service.access.principal(owner_id)
    if settings is None or agent is None or len(sharing) == 1:
        return
    owner = await service.view(settings, agent)
    if owner.limit >= before:
        return
    smallest = min(sharing, key=lambda each: service.limit(each).tokens).agent_id
    writer = await service.to_write(owner, session)
    text = (
        f"The window that {', '.join(each.agent_id for each in sharing)} share holds {owner.limit} tokens now, fewer "
        f"than before ({before}): '{smallest}' can hold no more. Keep it short, and summarise long texts."
    )
    note = _note(f"shared{ORIGIN_MARK}{smallest}{ORIGIN_MARK}{owner.limit}", text, owner, writer)
    if not await writer.current([note.event_id]):
        await writer.add([note], "note a clamped window")
    await writer.publish()
    data = {"limit": owner.limit, "parent_id": owner.agent_id, "parent_limit": before}
    readers = [each.agent_id for each in sharing]
    await service.outbox.publish(service.event("window.clamped", session, smallest, readers, data))
    parent = await parent_window(service, owner)
    if parent is not None and parent.events_of != owner.agent_id:
        await note_clamp(service, session, owner, parent)


async def parent_window(service: Windows, window: Window) -> Window | None:
    """Return the window that another one inherits from, if it still exists."""
    parent_id = window.settings.parent_id
    settings = None if parent_id is None else await service.store.find(window.session_id, parent_id)
    agent = None if parent_id is None else await service.access.principal(parent_id)
    return None if settings is None or agent is None else await service.view(settings, agent)


async def _parent_window(service: Windows, session: Session, agent: Principal) -> Window | None:
    """Return the window of the nearest ancestor that has one in this session."""
    visited = {agent.principal_id}
    parent_id = agent.parent_id
    while parent_id is not None and parent_id not in visited:
        visited.add(parent_id)
        parent = await service.access.principal(parent_id)
        if parent is None or parent.kind is not PrincipalKind.AGENT:
            return None
        settings = await service.store.find(session.session_id, parent_id)
        if settings is not None:
            return await service.view(settings, parent)
        parent_id = parent.parent_id
    return None


async def _derive(
    service: Windows, session: Session, agent: Principal, options: WindowOptions, parent: Window | None
) -> WindowSettings:
    """Return the settings of a new window: as given, else as its definition says, else as its parent's."""
    defined = await agent_settings(agent.principal_id, service.lines)
    above = parent.settings if parent is not None else WindowSettings(session_id="", agent_id="")
    model = options.model or defined.model
    max_tokens = options.model_max_tokens or defined.model_max_tokens
    inherits = model is None and max_tokens is None
    return WindowSettings(
        session_id=session.session_id,
        agent_id=agent.principal_id,
        model=above.model if inherits else model,
        model_max_tokens=above.model_max_tokens if inherits else max_tokens,
        shared_cw_max_tokens=options.shared_cw_max_tokens,
        reserved_tokens=above.reserved_tokens
        if inherits and options.reserved_tokens is None
        else options.reserved_tokens,
        shares=options.shares,
        parent_id=None if parent is None else parent.agent_id,
        compaction_threshold=options.compaction_threshold,
        autosave=options.autosave is not False,
        created_at=service.now,
        updated_at=service.now,
    )


async def _inheritable(service: Windows, window: Window, parent: Window) -> list[WindowEvent]:
    """Return the parent's events that a sub-agent inherits, as they would be in its window."""
    return [
        structs.replace(
            as_read_by(event, window.agent_id),
            event_id=f"{parent.agent_id}{ORIGIN_MARK}{event.event_id}",
            origin=event.origin or event.item_id,
            content_hash=content_hash(event.message),
            as_data=False,
        )
        for event in await service.own_events(parent)
        if event.category in INHERITED and event.message_type != CLAMP_NOTE and event.agent_id != window.agent_id
    ]


def _same(one: WindowEvent, other: WindowEvent) -> bool:
    """Tell whether two copies have the same content, wherever they are in their windows."""

    def content(event: WindowEvent) -> WindowEvent:
        return structs.replace(event, number=0, at=0, item_id="", redacted=False, as_data=False)

    return content(one) == content(other)


def _clamp_note(window: Window, parent: Window, writer: WindowWriter) -> WindowEvent:
    text = (
        f"The window of your sub-agent '{window.agent_id}' holds {window.limit} tokens, fewer than yours "
        f"({parent.limit}). Give it only what it needs, and summaries of long texts."
    )
    return _note(f"clamped{ORIGIN_MARK}{window.agent_id}{ORIGIN_MARK}{window.limit}", text, parent, writer)


def _note(event_id: str, text: str, window: Window, writer: WindowWriter) -> WindowEvent:
    message = ConversationMessage("system", text)
    return WindowEvent(
        event_id=event_id,
        number=writer.owner.last_number + 1,
        category=Category.SYSTEM,
        message=message,
        kind="message",
        at=writer.now,
        author=SYSTEM.participant,
        agent_id=window.agent_id,
        tokens=message_tokens(message),
        message_type=CLAMP_NOTE,
    )
