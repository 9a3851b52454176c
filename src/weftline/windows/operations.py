"""Operations on windows: create, show, list, read, change and delete them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import structs

from weftline.access.model import AgentId, AgentNotFound
from weftline.history.model import BranchNotFound
from weftline.kernel.errors import PermissionDenied, QuotaExceeded, SelfModification
from weftline.kernel.fields import Count, Fraction, Ordinal, ShortText
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, operation
from weftline.sessions.model import (
    NotMember,
    SessionArchived,
    SessionId,
    SessionNotFound,
    find_session,
    lock_active_session,
)
from weftline.state.agent_context.settings import Threshold
from weftline.windows.creation import (
    WindowOptions,
    create_window,
    note_clamp,
    note_shared_clamp,
    parent_window,
)
from weftline.windows.model import (
    Category,
    WindowAgent,
    WindowExists,
    WindowInUse,
    WindowNotFound,
    event_weight,
)
from weftline.windows.service import Windows
from weftline.windows.views import (
    WindowEventView,
    WindowSummary,
    WindowView,
    event_view,
    window_summary,
    window_view,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.windows.model import Window, WindowEvent

_MAX_ANSWER_BYTES = 4 * 1_048_576
_SCAN_PAGE = 200
_operation = partial(operation, tool="context_window", rate=RateClass.SESSION)
read_operation = partial(_operation, permission=Permission.READ, effect=Effect.READ)
write_operation = partial(_operation, permission=Permission.WRITE, effect=Effect.WRITE)
READ_ERRORS = (SessionNotFound, AgentNotFound, PermissionDenied, NotMember, WindowNotFound, BranchNotFound)
WRITE_ERRORS = (*READ_ERRORS, SessionArchived)

ModelTokens = Annotated[
    Ordinal | None,
    msgspec.Meta(description="Context of the model in tokens; by default that of the model in the catalog."),
]
SharedTokens = Annotated[
    Ordinal | None, msgspec.Meta(description="Clamp the window to this many tokens, whatever its model can hold.")
]
ReservedTokens = Annotated[Count | None, msgspec.Meta(description="Tokens kept free for the model's answer.")]
Budgets = Annotated[
    dict[Category, Fraction] | None,
    msgspec.Meta(description="Shares of the window by category, such as DIALOG: 0.5; the others divide the rest."),
]
ModelName = Annotated[ShortText | None, msgspec.Meta(description="The model that reads the window.")]
Autosave = Annotated[bool | None, msgspec.Meta(description="Make automatic checkpoints; true by default.")]
CompactionThreshold = Annotated[
    Threshold | None,
    msgspec.Meta(description="Part of the limit from which the window should be compacted; 0.8 by default."),
]


class CreateWindow(Request):
    """Settings of the new window; what is omitted follows the agent's definition, else its parent's window."""

    session_id: SessionId
    agent_id: WindowAgent = None
    model: ModelName = None
    model_max_tokens: ModelTokens = None
    shared_cw_max_tokens: SharedTokens = None
    reserved_tokens: ReservedTokens = None
    budgets: Budgets = None
    compaction_threshold: CompactionThreshold = None
    autosave: Autosave = None


class UpdateWindow(CreateWindow):
    """Settings to change; omitted ones stay."""


class ShowWindow(Request):
    """The window to show."""

    session_id: SessionId
    agent_id: WindowAgent = None


class ListWindows(Request):
    """The session whose windows to list."""

    session_id: SessionId
    limit: Annotated[int, msgspec.Meta(ge=1, le=200, description="Maximum number of windows.")] = 50
    cursor: Annotated[AgentId | None, msgspec.Meta(description="next_cursor of the previous page.")] = None


class WindowList(Response, omit_defaults=False):
    """Windows by agent id."""

    session_id: str
    windows: list[WindowSummary]
    next_cursor: str | None


class ReadWindowEvents(Request):
    """A page of a window's events."""

    session_id: SessionId
    agent_id: WindowAgent = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=200, description="Maximum number of events.")] = 50
    offset: Annotated[Count, msgspec.Meta(description="Events to skip, oldest first.")] = 0


class WindowEvents(Response, omit_defaults=False):
    """Events in order of time, at most 4 MiB; ``total_count`` counts all."""

    session_id: str
    agent_id: str
    events: list[WindowEventView]
    count: int
    total_count: int
    has_more: bool


class PopWindowEvent(Request):
    """The window whose newest event to remove."""

    session_id: SessionId
    agent_id: WindowAgent = None


class WindowEventPopped(Response, omit_defaults=False):
    """The event that was removed, null if the window had none; ``count`` events are left."""

    session_id: str
    agent_id: str
    event: WindowEventView | None
    count: int


class DeleteWindow(Request):
    """The window to delete."""

    session_id: SessionId
    agent_id: WindowAgent = None


class WindowDeleted(Response, omit_defaults=False):
    """The window is deleted, with its events and their history."""

    session_id: str
    agent_id: str
    events: int


@write_operation(
    "window.create",
    action="create",
    http="POST /v1/sessions/{session_id}/window",
    status=201,
    errors=(*WRITE_ERRORS, WindowExists, QuotaExceeded),
)
async def create(request: CreateWindow, windows: Windows) -> WindowView:
    """Create an agent's window in a session. A sub-agent's starts with a copy of its parent's SYSTEM and CONTEXT.

    Its limit is that of its own model; if that is smaller than the parent's, the parent gets a note.
    """
    session, _ = await lock_active_session(request.session_id, windows.actor, windows.sessions)
    agent = await windows.agent(session, request.agent_id)
    settings = await create_window(windows, session, agent, _options(request))
    found = await windows.store.find(session.session_id, agent.principal_id)
    return await window_view(windows, await windows.view(found or settings, agent))


@read_operation(
    "window.show", action="show", http="GET /v1/sessions/{session_id}/window", heavy=True, errors=READ_ERRORS
)
async def show(request: ShowWindow, windows: Windows) -> WindowView:
    """Show a window: limit, budgets and use by category, sharing, routes and clamps."""
    return await window_view(windows, await windows.open(request.session_id, request.agent_id))


@read_operation("window.list", action="list", http="GET /v1/sessions/{session_id}/windows", errors=(SessionNotFound,))
async def list_windows(request: ListWindows, windows: Windows) -> WindowList:
    """List the windows of a session that you may open: your own, those of agents below you, as an admin all."""
    session = await find_session(request.session_id, windows.actor, windows.sessions)
    found: list[WindowSummary] = []
    after, more = request.cursor or "", True
    while more and len(found) <= request.limit:
        page = await windows.store.of_session(session.session_id, after, _SCAN_PAGE)
        for settings in page:
            agent = await windows.access.principal(settings.agent_id)
            if agent is not None and await windows.may_open(agent):
                found.append(await window_summary(windows, settings))
        more = len(page) == _SCAN_PAGE
        after = page[-1].agent_id if page else after
    shown = found[: request.limit]
    return WindowList(
        session_id=session.session_id,
        windows=shown,
        next_cursor=shown[-1].agent_id if len(found) > len(shown) else None,
    )


@read_operation(
    "window.events",
    action="events",
    http="GET /v1/sessions/{session_id}/window/events",
    heavy=True,
    errors=READ_ERRORS,
)
async def read_events(request: ReadWindowEvents, windows: Windows) -> WindowEvents:
    """Read the events of a window, oldest first, with those that other agents route to it."""
    window = await windows.open(request.session_id, request.agent_id)
    events = await windows.events(window)
    shown = _within(events[request.offset : request.offset + request.limit])
    return WindowEvents(
        session_id=window.session_id,
        agent_id=window.agent_id,
        events=[event_view(event) for event in shown],
        count=len(shown),
        total_count=len(events),
        has_more=request.offset + len(shown) < len(events),
    )


@write_operation(
    "window.pop",
    action="pop",
    http="POST /v1/sessions/{session_id}/window/pop",
    errors=(*WRITE_ERRORS, SelfModification),
)
async def pop_event(request: PopWindowEvent, windows: Windows) -> WindowEventPopped:
    """Remove the newest event of a window and return it, such as an answer to be asked for again.

    Events that other agents route to the window stay. Its history keeps the event.
    """
    session, _ = await lock_active_session(request.session_id, windows.actor, windows.sessions)
    window = await windows.open(request.session_id, request.agent_id)
    writer = await windows.to_write(window, session)
    events = await windows.own_events(window)
    newest = max(events, key=lambda event: event.number, default=None)
    if newest is not None:
        await writer.remove(newest)
    return WindowEventPopped(
        session_id=window.session_id,
        agent_id=window.agent_id,
        event=None if newest is None else event_view(newest),
        count=len(events) - (newest is not None),
    )


@write_operation("window.update", action="update", http="PATCH /v1/sessions/{session_id}/window", errors=WRITE_ERRORS)
async def update(request: UpdateWindow, windows: Windows) -> WindowView:
    """Change the settings of a window, such as its model. Budgets follow the new limit."""
    session, _ = await lock_active_session(request.session_id, windows.actor, windows.sessions)
    before = await windows.open(request.session_id, request.agent_id)
    given = {name: value for name, value in structs.asdict(_options(request)).items() if value is not None}
    if "model" in given and "model_max_tokens" not in given:
        given["model_max_tokens"] = None
    await windows.store.update(structs.replace(before.settings, updated_at=windows.now, **given))
    window = await windows.open(request.session_id, request.agent_id)
    parent = await parent_window(windows, window)
    if parent is not None and window.limit < before.limit:
        await note_clamp(windows, session, window, parent)
    writer = await windows.to_write(window, session)
    await writer.limit_changed(before.limit)
    await note_shared_clamp(windows, session, window.events_of, before.limit)
    return await window_view(windows, window)


@write_operation(
    "window.delete",
    action="delete",
    http="DELETE /v1/sessions/{session_id}/window",
    destructive=True,
    audited=True,
    errors=(*WRITE_ERRORS, WindowInUse, SelfModification),
)
async def delete(request: DeleteWindow, windows: Windows) -> WindowDeleted:
    """Delete a window with its events and their history. Copies in other windows stay."""
    session, _ = await lock_active_session(request.session_id, windows.actor, windows.sessions)
    agent = await windows.agent(session, request.agent_id)
    window = await windows.open_own(session.session_id, agent.principal_id)
    check_not_shared(
        window, [each.agent_id for each in await windows.store.sharing(window.session_id, window.agent_id)]
    )
    lines = [*(branch.head.line_id for branch in await windows.lines.branches(window.line_id)), window.line_id]
    for line_id in lines:
        await windows.check_keeps_instructions(line_id, None)
    events = len(await windows.own_events(window))
    await windows.store.delete(window.session_id, window.agent_id)
    for line_id in lines:
        await windows.lines.erase(line_id)
    await windows.outbox.publish(
        windows.event("window.deleted", session, window.agent_id, [window.agent_id], {"events": events})
    )
    return WindowDeleted(session_id=window.session_id, agent_id=window.agent_id, events=events)


def check_not_shared(window: Window, agents: Sequence[str]) -> None:
    """Refuse to change a window that others use."""
    others = [agent for agent in agents if agent != window.agent_id]
    if others:
        raise WindowInUse(f"{len(others)} agents share the window of '{window.agent_id}'.", agents=others)


def _options(request: CreateWindow) -> WindowOptions:
    return WindowOptions(
        model=request.model,
        model_max_tokens=request.model_max_tokens,
        shared_cw_max_tokens=request.shared_cw_max_tokens,
        reserved_tokens=request.reserved_tokens,
        shares=request.budgets or None,
        compaction_threshold=request.compaction_threshold,
        autosave=request.autosave,
    )


def _within(events: Sequence[WindowEvent]) -> list[WindowEvent]:
    """Return the first events that fit into an answer, at least one."""
    shown: list[WindowEvent] = []
    room = _MAX_ANSWER_BYTES
    for event in events:
        room -= event_weight(event)
        if room < 0 and shown:
            break
        shown.append(event)
    return shown
