"""Opens windows for one caller, reads their events and adds new ones.

A window is open to its agent, to the agent's ancestors and to admins; to nobody else. A human above the agent with
clearance 3 needs not be a member of its session.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from weftline.access.grants import is_descendant, may_read_as_admin
from weftline.access.model import Principal, actor_for
from weftline.access.plan_warnings import QuotaWarnings
from weftline.access.sql import AccessStore
from weftline.history.lines import LineStore
from weftline.history.model import BranchNotFound, Head
from weftline.history.sql import CheckoutStore
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import PermissionDenied
from weftline.kernel.events import EventType, NewEvent
from weftline.kernel.identity import PERMISSION, PRINCIPAL, SYSTEM_ID, Actor, Permission, PrincipalKind, principal_of
from weftline.kernel.outbox import Outbox
from weftline.models.language_models.catalog import Catalog
from weftline.records.sql import RecordStore
from weftline.safety.trust.gate import ContentGate
from weftline.sessions.model import NotMember, Session, SessionNotFound, find_session, lock_active_session
from weftline.sessions.sql import SessionStore
from weftline.state.agent_context.permissions import EDITOR_CLEARANCE, unknown_agent
from weftline.windows.agent_settings import SettingsCache, compaction_settings
from weftline.windows.budget import budgets_for
from weftline.windows.creation import WindowOptions, create_window
from weftline.windows.line_events import apply_redactions, events_of_line
from weftline.windows.model import (
    DEFAULT_MODEL_TOKENS,
    Category,
    Window,
    WindowLimit,
    WindowNotFound,
    agent_of,
    as_context,
    as_read_by,
    doubtful,
    is_from_above,
    is_from_agent,
    is_instruction,
    left_behind,
    limit_of,
    may_instruct,
    session_of,
    window_line,
)
from weftline.windows.sql import CompactionQueue, EventCache, WindowStore
from weftline.windows.window_writer import WindowWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.models.language_models.content import ConversationMessage
    from weftline.records.schemas import Redaction
    from weftline.state.agent_context.settings import ResolvedCompaction
    from weftline.windows.model import WindowEvent, WindowSettings

# Memory of the compaction settings of an agent, about.
_SETTINGS_BYTES = 500
_ADMINS = f"{PERMISSION}{Permission.ADMIN}"


class Windows(msgspec.Struct, frozen=True):
    """What windows need, built for the caller of one operation."""

    actor: Actor
    access: AccessStore
    sessions: SessionStore
    store: WindowStore
    lines: LineStore
    checkouts: CheckoutStore
    records: RecordStore
    outbox: Outbox
    clock: Clock
    cache: EventCache
    settings: SettingsCache
    compactions: CompactionQueue
    catalog: Catalog
    gate: ContentGate
    quota_warnings: QuotaWarnings

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    async def open(self, session_id: str, agent_id: str | None = None, *, create: bool = False) -> Window:
        """Open an agent's window, by default the caller's own; ``create`` makes it if there is none."""
        session = await self._find_session(session_id, agent_id)
        agent = await self.agent(session, agent_id)
        settings = await self.store.find(session_id, agent.principal_id)
        if settings is None:
            if not create:
                raise no_window(agent.principal_id)
            session, _ = await lock_active_session(session_id, self.actor, self.sessions)
            # Another caller may have made it before the lock.
            settings = await self.store.find(session_id, agent.principal_id)
            settings = settings or await create_window(self, session, agent, WindowOptions())
        return await self.view(settings, agent)

    async def open_own(self, session_id: str, agent_id: str) -> Window:
        """Open an agent's own window on its main line, even while the agent shares another one."""
        session = await self._find_session(session_id, agent_id)
        agent = await self.agent(session, agent_id)
        settings = await self.store.find(session_id, agent.principal_id)
        if settings is None:
            raise no_window(agent.principal_id)
        limit = self.limit(settings)
        return Window(
            settings=settings,
            agent_type=agent.agent_type,
            events_of=agent.principal_id,
            model_tokens=limit.model_tokens,
            reserved=limit.reserved,
            limit=limit.tokens,
            budgets=budgets_for(limit.tokens, settings.shares),
        )

    async def events(self, window: Window) -> Sequence[WindowEvent]:
        """Return the events of a window and those routed to it, in order of time."""
        redactions = await self.records.redactions_in(window.session_id)
        lists = [await self._own_events(window, redactions)]
        routed: dict[str, set[Category]] = {}
        teams = await self._teams(window.agent_id)
        for route in await self.store.routes_to(window.session_id, window.agent_id, window.agent_type, teams):
            routed.setdefault(route.agent_id, set()).add(route.category)
        for agent_id, categories in routed.items():
            if agent_id != window.events_of:
                lists.append(await self._routed(window, agent_id, categories, redactions))
        return list(heapq.merge(*lists, key=lambda event: event.at)) if len(lists) > 1 else lists[0]

    async def _is_used(self, line_id: str) -> bool:
        """Tell whether a line is of the caller's own window, or of the one that it shares."""
        owner, agent_id = agent_of(line_id), self.actor.principal_id
        settings = None if owner == agent_id else await self.store.find(session_of(line_id), agent_id)
        return owner == agent_id or (settings is not None and settings.shares_with == owner)

    async def _teams(self, agent_id: str) -> AbstractSet[str]:
        if agent_id == self.actor.principal_id:
            return self.actor.teams
        agent = await self.access.principal(agent_id)
        return frozenset() if agent is None else (await self.access.memberships(agent)).teams

    async def own_events(self, window: Window) -> Sequence[WindowEvent]:
        """Return the events of a window without those routed to it."""
        return await self._own_events(window, await self.records.redactions_in(window.session_id))

    async def line_events(self, session_id: str, line_id: str, reader: str | None = None) -> Sequence[WindowEvent]:
        """Return the events of one line, as an agent reads them: by default the one whose line it is."""
        return await self._events_of(line_id, await self.records.redactions_in(session_id), reader)

    async def instructions(self, line_id: str | None) -> dict[str, ConversationMessage]:
        """Return the instructions in a line of a window that those above the caller gave it, by the id of the event.

        None, unless the caller is an agent.
        """
        if line_id is None or self.actor.kind is not PrincipalKind.AGENT:
            return {}
        agent_id = self.actor.principal_id
        events = await self.line_events(session_of(line_id), line_id, agent_id)
        return {event.event_id: event.message for event in events if is_from_above(event, agent_id)}

    async def check_keeps_instructions(self, before: str, after: str | None) -> None:
        """Refuse an agent that goes from one line to another, or to none, without instructions from above."""
        given = await self.instructions(before) if await self._is_used(before) else {}
        kept = list((await self.instructions(after)).values()) if given else []
        if any(message not in kept for message in given.values()):
            raise left_behind()

    async def to_write(self, window: Window, session: Session | None = None) -> WindowWriter:
        """Lock the session and the window's line; ``session`` if it is locked already."""
        if session is None:
            session, _ = await lock_active_session(window.session_id, self.actor, self.sessions)
        owner = await self.store.find(window.session_id, window.events_of)
        head = await self.lines.lock(window.line_id)
        if owner is None or (head is None and window.branch is not None):
            raise no_window(window.agent_id)
        return WindowWriter(self, session, window, owner, head or Head.of_new_line(window.line_id), self.now)

    async def lock_session(self, window: Window) -> Session:
        """Lock the session of a window that the caller has opened."""
        agent = await self.access.principal(window.agent_id)
        caller = self.actor
        if agent is not None and await self._supervises(agent):
            caller = await self._actor_of(agent)
        session, _ = await lock_active_session(window.session_id, caller, self.sessions)
        return session

    async def _find_session(self, session_id: str, agent_id: str | None) -> Session:
        """Return a session that admits the caller, or that admits the agent if the caller supervises it."""
        try:
            return await find_session(session_id, self.actor, self.sessions)
        except SessionNotFound:
            agent = None if agent_id is None else await self.access.principal(agent_id)
            if agent is None or not self.actor.may_enter(session_id) or not await self._supervises(agent):
                raise
            return await find_session(session_id, await self._actor_of(agent), self.sessions)

    async def _supervises(self, agent: Principal) -> bool:
        """Tell whether the caller is a human above the agent with the clearance to edit it."""
        actor = self.actor
        is_cleared = actor.kind is PrincipalKind.HUMAN and actor.clearance >= max(EDITOR_CLEARANCE, agent.clearance)
        return is_cleared and await is_descendant(actor.principal_id, agent, self.access)

    async def agent(self, session: Session, agent_id: str | None) -> Principal:
        """Return the agent of a window that the caller may open in a session that admits both."""
        wanted = agent_id or self.actor.principal_id
        agent = await self.access.principal(wanted)
        if agent is None or not await self.may_open(agent):
            if self.actor.is_admin and agent is None:
                raise unknown_agent(wanted)
            raise PermissionDenied(
                "A window is open to its agent, and to the agent's ancestors and admins up to their clearance.",
                hint="Omit agent_id to use your own window, or name an agent below you.",
                related=("context_window",),
            )
        if not await self.admits(session, agent):
            raise NotMember(f"'{wanted}' is not a member of the session.", resource_id=wanted)
        return agent

    async def may_open(self, agent: Principal) -> bool:
        """Tell whether the caller is the agent, or an admin or ancestor of the agent without a lower clearance."""
        if self.actor.principal_id == agent.principal_id or may_read_as_admin(self.actor, agent):
            return True
        is_above = await is_descendant(self.actor.principal_id, agent, self.access)
        return is_above and agent.clearance <= self.actor.clearance

    async def admits(self, session: Session, agent: Principal) -> bool:
        """Tell whether a session admits an agent."""
        return session.admits(await self._actor_of(agent))

    async def _actor_of(self, agent: Principal) -> Actor:
        memberships = await self.access.memberships(agent)
        return actor_for(self.actor.tenant, agent, memberships, permissions=agent.permissions, epoch=0)

    async def view(self, settings: WindowSettings, agent: Principal) -> Window:
        """Return a window with its limit, which is the minimum over those that share it."""
        owner = settings.shares_with or settings.agent_id
        limit, own = await self.shared_limit(settings.session_id, owner), self.limit(settings)
        trunk = window_line(settings.session_id, owner)
        checkout = await self.checkouts.of(trunk, agent.principal_id)
        if checkout is not None and checkout.gone:
            raise BranchNotFound(
                f"The branch '{checkout.branch}' that the agent switched to was deleted.",
                hint="Switch to main or another branch with `history.switch`.",
                resource_id=checkout.branch,
            )
        return Window(
            settings=settings,
            agent_type=agent.agent_type,
            events_of=owner,
            model_tokens=own.model_tokens,
            reserved=own.reserved,
            limit=limit,
            budgets=budgets_for(limit, settings.shares),
            branch=None if checkout is None else checkout.branch,
        )

    def limit(self, settings: WindowSettings) -> WindowLimit:
        """Return the limit of a window by itself."""
        return limit_of(settings, self.catalog)

    async def shared_limit(self, session_id: str, owner: str) -> int:
        """Return the limit of a window that agents may share: the minimum over them."""
        sharing = await self.store.sharing(session_id, owner)
        return min((self.limit(each).tokens for each in sharing), default=DEFAULT_MODEL_TOKENS)

    async def tokens(self, window: Window) -> int:
        """Return the approximate tokens of all events of a window."""
        line = await self.lines.find(window.line_id)
        return 0 if line is None else line.head.weight

    async def threshold(self, window: Window) -> float:
        """Return the part of its limit from which a window should be compacted."""
        return (await self.compaction(window)).threshold

    async def compaction(self, window: Window) -> ResolvedCompaction:
        """Return when and how a window is compacted. Changes of these settings advance the epoch."""
        key = (self.actor.tenant, window.agent_id, self.actor.epoch)
        # Background work has no epoch.
        found = None if self.actor.principal_id == SYSTEM_ID else self.settings.get(key)
        if found is None:
            found = await compaction_settings(window.agent_id, self.lines, self.access)
            if self.actor.principal_id != SYSTEM_ID:
                self.settings.put(key, found, _SETTINGS_BYTES)
        own = window.settings.compaction_threshold
        return found if own is None else found._replace(threshold=own)

    def event(
        self, event_type: EventType, session: Session, agent_id: str, readers: Sequence[str], data: Mapping[str, object]
    ) -> NewEvent:
        """Return an event about an agent's window; only these agents and admins may read it."""
        return NewEvent(
            type=event_type,
            session_id=session.session_id,
            subject=agent_id,
            actor=self.actor.participant,
            readable_by=(*dict.fromkeys(f"{PRINCIPAL}{reader}" for reader in readers), _ADMINS),
            data={"agent_id": agent_id, **data},
        )

    async def _own_events(self, window: Window, redactions: Mapping[str, Redaction]) -> Sequence[WindowEvent]:
        return await self._events_of(window.line_id, redactions, window.agent_id)

    async def _events_of(
        self, line_id: str, redactions: Mapping[str, Redaction], reader: str | None = None
    ) -> Sequence[WindowEvent]:
        line = await self.lines.find(line_id)
        if line is None:
            return []
        found = await events_of_line(self.lines, self.cache, self.actor.tenant, line.head)
        events, owner = apply_redactions(found.events, redactions), agent_of(line_id)
        if reader not in {None, owner}:
            events = [as_read_by(event, reader or owner) for event in events]
        return await self.as_read(events, reader or owner)

    async def as_read(self, events: Sequence[WindowEvent], agent_id: str) -> Sequence[WindowEvent]:
        """Return events as an agent reads them.

        An instruction is data unless one who may define the agent gave it, and if it was given to an agent below.
        """
        given = doubtful(events, agent_id)
        if not given:
            return events
        reader = await self.access.principal(agent_id)
        is_caller = agent_id == self.actor.principal_id
        above = self.actor.ancestors if is_caller else await self._ancestors(agent_id)
        humans = {principal_of(event.author) for event in given if not is_from_agent(event)}
        authors = await self.access.find_principals(sorted(humans)) if humans else {}
        addressed = {event.agent_id for event in given} - {agent_id, *above}
        below = {each for each in addressed if agent_id in await self._ancestors(each)}
        others = {
            event.event_id
            for event in given
            if reader is None or event.agent_id in below or not may_instruct(event, reader, above, authors)
        }
        if not others:
            return events
        return [as_context(event, as_data=True) if event.event_id in others else event for event in events]

    async def _ancestors(self, agent_id: str) -> AbstractSet[str]:
        return {each.principal_id for each in await self.access.ancestors(agent_id)}

    async def _routed(
        self, window: Window, agent_id: str, categories: set[Category], redactions: Mapping[str, Redaction]
    ) -> Sequence[WindowEvent]:
        """Return the events that another agent routes to this window."""
        reader = await self.access.principal(window.agent_id)
        is_superior = reader is not None and await is_descendant(agent_id, reader, self.access)
        events = await self._events_of(window_line(window.session_id, agent_id), redactions)
        return [
            _as_routed(as_read_by(event, window.agent_id), is_superior=is_superior)
            for event in events
            if event.category in categories
        ]


def _as_routed(event: WindowEvent, *, is_superior: bool) -> WindowEvent:
    """Mark an event as routed. Only an ancestor pins and gives instructions; those of others are context."""
    if is_superior:
        return structs.replace(event, routed=True, superior=True)
    event = structs.replace(event, routed=True, pinned=False)
    return as_context(event) if is_instruction(event) else event


def no_window(agent_id: str, hint: str | None = None) -> WindowNotFound:
    return WindowNotFound(
        f"'{agent_id}' has no window in this session.", hint=hint, resource_type="window", resource_id=agent_id
    )
