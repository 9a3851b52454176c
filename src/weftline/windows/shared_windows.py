"""Operations that connect windows: refresh what a sub-agent inherited, share a window, route categories to others."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import structs

from weftline.access.model import AgentId, AgentNotFound
from weftline.access.teams import TeamName, TeamNotFound
from weftline.history.model import BranchNotFound
from weftline.kernel.errors import Forbidden, InvalidInput, PermissionDenied, QuotaExceeded, SelfModification
from weftline.kernel.fields import Name
from weftline.kernel.identity import HoldReason, Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, operation
from weftline.safety.approvals.model import TooManyApprovals, is_approver
from weftline.safety.approvals.service import Approvals, CallToHold
from weftline.safety.trust.model import TrustPolicies
from weftline.safety.trust.scanner import detection_event
from weftline.sessions.model import NotMember, SessionArchived, SessionId, SessionNotFound, lock_active_session
from weftline.sessions.team_operations import Teams
from weftline.state.agent_context.permissions import find_agent
from weftline.windows.creation import inherit, note_shared_clamp, parent_window
from weftline.windows.model import (
    MAX_EVENTS,
    Category,
    EventId,
    EventNotFound,
    WindowAgent,
    WindowInUse,
    WindowNotFound,
    WindowRoute,
    is_instruction,
)
from weftline.windows.operations import WRITE_ERRORS, check_not_shared, write_operation
from weftline.windows.service import Windows
from weftline.windows.views import RouteView, WindowView, route_view, window_view

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.sessions.model import Session
    from weftline.windows.model import Window, WindowEvent
    from weftline.windows.window_writer import WindowWriter


# Review of recorded events that look like an attack: prompts do not contain them until a human releases them.
#
# What was said is recorded, whatever it says; an event that the tenant's policy would refuse elsewhere is held by its
# label. Weftline asks a human by holding the call ``window.release`` on behalf of who recorded the events.

# Texts that an approval quotes, and events that reviewers are told the ids of.
_QUOTED = 20
_encode = msgspec.json.Encoder(order="deterministic").encode


class EventsHeld(Forbidden):
    """The events look like an attempt to give agents instructions; a human must release them."""

    code = "EVENTS_HELD"
    hint = "A human with the clearance for approvals releases them. Go on with other work; the events are recorded."
    related = ("approvals",)
    hold = "quarantine"


class ReleaseEvents(Request):
    """Events of a window that are held."""

    session_id: SessionId
    event_ids: Annotated[
        list[EventId], msgspec.Meta(min_length=1, max_length=MAX_EVENTS, description="The held events.")
    ]
    agent_id: WindowAgent = None


class EventsReleased(Response, kw_only=True, omit_defaults=False):
    """The events that are released now; those that were not held are not among them."""

    session_id: str
    agent_id: str
    released: list[str]


class EventHolds(msgspec.Struct, frozen=True):
    """Asks humans to release events that are held, on behalf of who recorded them."""

    approvals: Approvals

    async def open(self, writer: WindowWriter, action: str) -> str | None:
        """Hold the call that releases what was just recorded; return the id of the approval.

        None if nothing is held, or too many calls of the caller are: reviewers are told all the same, with the first
        ids, and a human releases the events directly.
        Instructions are not asked about: who may give them is checked, and others read them as content.
        """
        window = writer.window
        held = {name: found for name, found in writer.held.items() if not is_instruction(found[0])}
        if not held:
            return None
        names, events = [*held], [event for event, _ in held.values()]
        request = ReleaseEvents(session_id=window.session_id, event_ids=names, agent_id=window.agent_id)
        found = [each for _, contents in held.values() for each in contents]
        details = {"texts": msgspec.to_builtins(found[:_QUOTED]), "more_texts": max(0, len(found) - _QUOTED)}
        reason = structs.replace(_hold_reason(window, events), details=details)
        # The release is of the caller, not of the credential that recorded: that may be bound to a step, or end.
        caller = structs.replace(self.approvals.actor, step=None, token_id=None, key_id=None)
        approvals = structs.replace(self.approvals, actor=caller)
        call = CallToHold(release_events, request, "quarantine", reason)
        about: dict[str, object] = {"session_id": window.session_id, "items": len(events)}
        approval_id: str | None = None
        try:
            approval_id = about["approval_id"] = (await approvals.hold(call)).approval_id
        except TooManyApprovals:
            about["event_ids"] = names[:_QUOTED]
            await approvals.note_unasked(call, f"{window.session_id}/{window.agent_id}")
        event = detection_event(self.approvals.actor, "quarantine", action, window.agent_id, **about)
        await self.approvals.outbox.publish(event)
        return approval_id


def _hold_reason(window: Window, events: Iterable[WindowEvent]) -> HoldReason:
    """Return why events are held. An approval covers exactly these contents."""
    contents = sorted((event.event_id, hashlib.sha256(_encode(event.message)).hexdigest()) for event in events)
    return HoldReason(
        check=f"window_events:{hashlib.sha256(_encode((window.line_id, contents))).hexdigest()}",
        text=f"{len(contents)} events in the window of '{window.agent_id}' look like an attempt to give agents "
        "instructions.",
    )


@operation(
    "window.release",
    tool="context_window",
    action="release",
    http="POST /v1/sessions/{session_id}/window/release",
    permission=Permission.WRITE,
    rate=RateClass.SESSION,
    effect=Effect.WRITE,
    audited=True,
    errors=(
        SessionNotFound,
        SessionArchived,
        AgentNotFound,
        PermissionDenied,
        NotMember,
        WindowNotFound,
        BranchNotFound,
        EventNotFound,
        EventsHeld,
    ),
)
async def release_events(request: ReleaseEvents, windows: Windows, policies: TrustPolicies) -> EventsReleased:
    """Release events that are held because they look like an attack. Called by an agent, it asks a human."""
    window = await windows.open(request.session_id, request.agent_id)
    writer = await windows.to_write(window)
    held = [event for event in await writer.find(request.event_ids) if event.trust is not None and event.trust.held]
    actor, reason = windows.actor, _hold_reason(window, held)
    is_approved = actor.approval is not None and actor.approval.covers(reason.check)
    if held and not is_approved and not is_approver(actor, await policies.current()):
        error = EventsHeld(reason.text, events=[event.event_id for event in held])
        error.hold_reason = reason
        raise error
    by = actor.participant if actor.approval is None else actor.approval.approved_by
    await writer.release(held, by)
    return EventsReleased(
        session_id=window.session_id, agent_id=window.agent_id, released=[event.event_id for event in held]
    )


_MAX_TARGETS = 50


class RefreshWindow(Request):
    """The sub-agent's window to refresh."""

    session_id: SessionId
    agent_id: WindowAgent = None


class WindowRefreshed(Response, omit_defaults=False):
    """Ids of the inherited events that changed; all others stayed as they were."""

    session_id: str
    agent_id: str
    parent_id: str
    added: list[str]
    updated: list[str]
    removed: list[str]


class JoinWindow(Request):
    """The agent that joins, and the agent whose window it will use."""

    session_id: SessionId
    with_agent_id: Annotated[AgentId, msgspec.Meta(description="The agent whose window to share.")]
    agent_id: WindowAgent = None


class LeaveWindow(Request):
    """The agent that leaves the window it shares."""

    session_id: SessionId
    agent_id: WindowAgent = None


class RouteCategories(Request):
    """Categories of a window, and the agents, types of agents and teams that see them."""

    session_id: SessionId
    categories: Annotated[list[Category], msgspec.Meta(min_length=1, max_length=6, description="What to route.")]
    to_agents: Annotated[
        tuple[AgentId, ...], msgspec.Meta(max_length=_MAX_TARGETS, description="Agents that see it.")
    ] = ()
    to_types: Annotated[
        tuple[Name, ...], msgspec.Meta(max_length=_MAX_TARGETS, description="Roles: all agents of these types see it.")
    ] = ()
    to_teams: Annotated[
        tuple[TeamName, ...], msgspec.Meta(max_length=_MAX_TARGETS, description="Teams of yours whose members see it.")
    ] = ()
    agent_id: WindowAgent = None


class WindowRoutes(Response, omit_defaults=False):
    """All routes from a window."""

    session_id: str
    agent_id: str
    routes: list[RouteView]


@write_operation(
    "window.refresh",
    action="refresh",
    http="POST /v1/sessions/{session_id}/window/refresh",
    errors=(*WRITE_ERRORS, QuotaExceeded),
)
async def refresh(request: RefreshWindow, windows: Windows) -> WindowRefreshed:
    """Copy what changed in the parent's SYSTEM and CONTEXT since a sub-agent's window was made or refreshed."""
    session, _ = await lock_active_session(request.session_id, windows.actor, windows.sessions)
    agent = await windows.agent(session, request.agent_id)
    window = await windows.open_own(session.session_id, agent.principal_id)
    parent = await parent_window(windows, window)
    if parent is None:
        raise WindowNotFound(
            f"The window of '{window.agent_id}' inherits from no other.",
            hint="Only a window that was made while the agent's parent had one in the session can be refreshed.",
            resource_id=window.agent_id,
        )
    changed = await inherit(windows, session, window, parent)
    return WindowRefreshed(
        session_id=window.session_id,
        agent_id=window.agent_id,
        parent_id=parent.agent_id,
        added=changed.added,
        updated=changed.updated,
        removed=changed.removed,
    )


@write_operation(
    "window.join",
    action="join",
    http="POST /v1/sessions/{session_id}/window/join",
    errors=(*WRITE_ERRORS, WindowInUse, QuotaExceeded, SelfModification),
)
async def join(request: JoinWindow, windows: Windows) -> WindowView:
    """Let an agent use another agent's window. Its limit becomes the minimum over all that share it.

    You need access to both windows: as an ancestor of both, or as one of them and ancestor of the other, or as an
    admin. The agent's own window is kept until it leaves.
    """
    session, _ = await lock_active_session(request.session_id, windows.actor, windows.sessions)
    window = await windows.open(session.session_id, request.agent_id, create=True)
    other = await windows.open(session.session_id, request.with_agent_id)
    if other.events_of == window.agent_id:
        raise InvalidInput("with_agent_id: an agent cannot join its own window", field="with_agent_id")
    check_not_shared(
        window, [each.agent_id for each in await windows.store.sharing(window.session_id, window.agent_id)]
    )
    return await _share(windows, session, window, other.events_of)


@write_operation(
    "window.leave",
    action="leave",
    http="POST /v1/sessions/{session_id}/window/leave",
    errors=(*WRITE_ERRORS, SelfModification),
)
async def leave(request: LeaveWindow, windows: Windows) -> WindowView:
    """Let an agent leave the window it shares and use its own again. The others' limit is computed again."""
    session, _ = await lock_active_session(request.session_id, windows.actor, windows.sessions)
    window = await windows.open(session.session_id, request.agent_id)
    return await _share(windows, session, window, None)


@write_operation(
    "window.route",
    action="route",
    http="POST /v1/sessions/{session_id}/window/routes",
    errors=(*WRITE_ERRORS, TeamNotFound, QuotaExceeded),
)
async def route(request: RouteCategories, windows: Windows, teams: Teams) -> WindowRoutes:
    """Show categories of a window to other agents, roles or teams. Nothing is copied: they see them in theirs.

    SYSTEM events of an agent that is no ancestor of the reader appear there as CONTEXT.
    """
    session, _ = await lock_active_session(request.session_id, windows.actor, windows.sessions)
    window = await windows.open(session.session_id, request.agent_id, create=True)
    for agent_id in request.to_agents:
        await _check_participant(windows, session, agent_id)
    for team in request.to_teams:
        await teams.find(team)
    for each in _routes(request, window):
        await windows.store.add_route(each)
    return await _routed(windows, session, window)


@write_operation(
    "window.unroute", action="unroute", http="POST /v1/sessions/{session_id}/window/unroute", errors=WRITE_ERRORS
)
async def unroute(request: RouteCategories, windows: Windows) -> WindowRoutes:
    """Stop showing categories of a window to other agents, roles or teams."""
    session, _ = await lock_active_session(request.session_id, windows.actor, windows.sessions)
    window = await windows.open(session.session_id, request.agent_id)
    for each in _routes(request, window):
        await windows.store.remove_route(each)
    return await _routed(windows, session, window)


async def _share(windows: Windows, session: Session, window: Window, owner: str | None) -> WindowView:
    """Set whose window an agent uses, and tell all that share it before or after."""
    used = sorted({window.events_of, owner or window.agent_id})
    changed = structs.replace(window.settings, shares_with=owner, updated_at=windows.now)
    if window.agent_id == windows.actor.principal_id:
        after = await windows.view(changed, await find_agent(window.agent_id, windows.access))
        await windows.check_keeps_instructions(window.line_id, after.line_id)
    before = {agent_id: await windows.shared_limit(session.session_id, agent_id) for agent_id in used}
    await windows.store.update(changed)
    for agent_id, limit in before.items():
        settings, agent = (
            await windows.store.find(session.session_id, agent_id),
            await windows.access.principal(agent_id),
        )
        if settings is not None and settings.shares_with is None and agent is not None:
            writer = await windows.to_write(await windows.view(settings, agent), session)
            await writer.limit_changed(limit)
            await note_shared_clamp(windows, session, agent_id, limit)
    return await window_view(windows, await windows.open(session.session_id, window.agent_id))


async def _check_participant(windows: Windows, session: Session, agent_id: str) -> None:
    agent = await windows.access.principal(agent_id)
    if agent is None or not await windows.admits(session, agent):
        raise NotMember(f"'{agent_id}' is not a member of the session.", resource_id=agent_id)


def _routes(request: RouteCategories, window: Window) -> list[WindowRoute]:
    targets = [
        *({"to_agent": agent} for agent in request.to_agents),
        *({"to_type": agent_type} for agent_type in request.to_types),
        *({"to_team": team} for team in request.to_teams),
    ]
    if not targets:
        raise InvalidInput(
            "to_agents: name at least one agent, a type in to_types, or a team in to_teams", field="to_agents"
        )
    return [
        WindowRoute(
            session_id=window.session_id,
            agent_id=window.agent_id,
            category=category,
            **target,
        )
        for category in request.categories
        for target in targets
    ]


async def _routed(windows: Windows, session: Session, window: Window) -> WindowRoutes:
    routes = await windows.store.routes_from(window.session_id, window.agent_id)
    data = {"routes": len(routes)}
    await windows.outbox.publish(windows.event("window.changed", session, window.agent_id, [window.agent_id], data))
    return WindowRoutes(
        session_id=window.session_id, agent_id=window.agent_id, routes=[route_view(each) for each in routes]
    )
