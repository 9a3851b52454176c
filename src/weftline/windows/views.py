"""Responses that show windows and their events."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from msgspec import structs

from weftline.kernel.clock import from_micros, optional_datetime
from weftline.kernel.operation import Response, shared_fields
from weftline.models.language_models.content import ToolCall
from weftline.safety.trust.model import Source, Trust, TrustInfo, TrustLabel, trust_info
from weftline.windows.creation import parent_window
from weftline.windows.model import Category, EventKind, is_instruction

if TYPE_CHECKING:
    from weftline.windows.model import Window, WindowEvent, WindowRoute, WindowSettings
    from weftline.windows.service import Windows


_TOOL_RESULT = TrustLabel(Source.TOOL, Trust.UNTRUSTED)


class CategoryUse(Response, omit_defaults=False):
    """Budget of a category, and the tokens and number of its events. Room that others leave is lent to it."""

    category: Category
    budget: int
    tokens: int
    events: int


class Clamp(Response, omit_defaults=False):
    """A sub-agent's window that is smaller than its parent's, or an agent that makes the window it shares smaller."""

    agent_id: str
    limit: int
    parent_id: str
    parent_limit: int


class RouteView(Response):
    """A route: events of these categories are shown to an agent, to all agents of a type, or to a team."""

    agent_id: str
    category: Category
    to_agent: str | None = None
    to_type: str | None = None
    to_team: str | None = None


class WindowView(Response, omit_defaults=False):
    """A window: ``limit`` is the model's context less the reserved output, and the minimum over its sharers.

    ``tokens`` are those of its events, ``compacted_tokens`` those of what a compaction has left of them in prompts.
    ``context_id`` names its history. ``clamps`` lists where it, or a sub-agent's window, is smaller than its parent's.
    """

    session_id: str
    agent_id: str
    context_id: str
    model: str | None
    model_tokens: int
    reserved_tokens: int
    limit: int
    tokens: int
    compacted_tokens: int
    usage: list[CategoryUse]
    last_number: int
    compaction_threshold: float
    threshold_reached: bool
    parent_id: str | None
    shares_with: str | None
    shared_by: list[str]
    clamps: list[Clamp]
    routes: list[RouteView]
    autosave: bool
    created_at: datetime
    updated_at: datetime


class WindowSummary(Response, omit_defaults=False):
    """A window in a list."""

    agent_id: str
    context_id: str
    limit: int
    tokens: int
    last_number: int
    parent_id: str | None
    shares_with: str | None
    updated_at: datetime


class WindowEventView(Response, kw_only=True):
    """An event of a window, recorded ``at``; ``occurred_at`` if it happened before.

    ``routed``: it is in the window of ``agent_id``; ``redacted``: its content is hidden.

    ``shown_as`` data: it was written as system text by an agent that is not above the reader; prompts only quote it.
    """

    event_id: str
    number: int
    category: Category
    kind: EventKind
    role: str
    content: str
    agent_id: str
    author: str
    at: datetime
    tokens: int
    item_id: str
    occurred_at: datetime | None = None
    step: str | None = None
    reason: str | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    native: Any = None
    importance: float | None = None
    pinned: bool = False
    recipient_id: str | None = None
    message_type: str = "message"
    references: tuple[str, ...] = ()
    source_refs: tuple[str, ...] = ()
    routed: bool = False
    redacted: bool = False
    shown_as: Literal["data"] | None = None
    trust: TrustInfo | None = None


async def window_view(windows: Windows, window: Window) -> WindowView:
    settings = window.settings
    events = await windows.own_events(window)
    tokens, counts = Counter[Category](), Counter[Category]()
    for event in events:
        tokens[event.category] += event.tokens
        counts[event.category] += 1
    threshold = await windows.threshold(window)
    compacted = max(tokens.total() - (await windows.compactions.of_line(window.line_id)).saved, 0)
    sharing = await windows.store.sharing(window.session_id, window.events_of)
    return WindowView(
        session_id=window.session_id,
        agent_id=window.agent_id,
        context_id=window.line_id,
        model=settings.model,
        model_tokens=window.model_tokens,
        reserved_tokens=window.reserved,
        limit=window.limit,
        tokens=tokens.total(),
        compacted_tokens=compacted,
        usage=[
            CategoryUse(category=each, budget=window.budgets[each], tokens=tokens[each], events=counts[each])
            for each in Category
        ],
        last_number=settings.last_number,
        compaction_threshold=threshold,
        threshold_reached=compacted >= threshold * window.limit,
        parent_id=settings.parent_id,
        shares_with=settings.shares_with,
        shared_by=[each.agent_id for each in sharing if each.agent_id != window.events_of],
        clamps=await _clamps(windows, window),
        routes=[route_view(route) for route in await windows.store.routes_from(window.session_id, window.agent_id)],
        autosave=settings.autosave,
        created_at=from_micros(settings.created_at),
        updated_at=from_micros(settings.updated_at),
    )


async def window_summary(windows: Windows, settings: WindowSettings) -> WindowSummary:
    line = await windows.lines.find(settings.line_id)
    return WindowSummary(
        agent_id=settings.agent_id,
        context_id=settings.line_id,
        limit=await windows.shared_limit(settings.session_id, settings.shares_with or settings.agent_id),
        tokens=line.head.weight if line else 0,
        last_number=settings.last_number,
        parent_id=settings.parent_id,
        shares_with=settings.shares_with,
        updated_at=from_micros(settings.updated_at),
    )


def event_view(event: WindowEvent) -> WindowEventView:
    message = event.message
    return WindowEventView(
        event_id=event.event_id,
        number=event.number,
        category=event.category,
        kind=event.kind,
        role=message.role,
        content=message.content,
        agent_id=event.agent_id,
        author=event.author,
        at=from_micros(event.at),
        tokens=event.tokens,
        item_id=event.item_id,
        occurred_at=optional_datetime(event.occurred_at),
        step=event.step,
        reason=event.reason,
        name=message.name,
        tool_calls=message.tool_calls,
        tool_call_id=message.tool_call_id,
        native=message.native,
        importance=event.importance,
        pinned=event.pinned,
        recipient_id=event.recipient_id,
        message_type=event.message_type,
        references=event.references,
        source_refs=event.source_refs,
        routed=event.routed,
        redacted=event.redacted,
        shown_as="data" if event.as_data else None,
        trust=shown_trust(event),
    )


def shown_trust(event: WindowEvent) -> TrustInfo | None:
    """Return the label of an event, unless it only says what the role says: the result of a tool.

    An instruction is in the prompt of its agent at once, so it is not shown as held.
    """
    if event.message.role == "tool" and event.trust == _TOOL_RESULT:
        return None
    info = trust_info(event.trust)
    is_sent = is_instruction(event) and not event.as_data
    return structs.replace(info, held=False) if info is not None and is_sent else info


def route_view(route: WindowRoute) -> RouteView:
    return RouteView(**shared_fields(route, RouteView))


async def _clamps(windows: Windows, window: Window) -> list[Clamp]:
    """Return the clamps that concern a window: its own, then those of its sub-agents."""
    parent = await parent_window(windows, window)
    clamps = [] if parent is None else [_clamp(window.agent_id, window.limit, parent.agent_id, parent.limit)]
    for child in await windows.store.children(window.session_id, window.agent_id):
        limit = await windows.shared_limit(child.session_id, child.shares_with or child.agent_id)
        clamps.append(_clamp(child.agent_id, limit, window.agent_id, window.limit))
    sharing = await windows.store.sharing(window.session_id, window.events_of)
    limits = {each.agent_id: windows.limit(each).tokens for each in sharing}
    owner_limit = limits.get(window.events_of, window.limit)
    clamps += [_clamp(agent_id, limit, window.events_of, owner_limit) for agent_id, limit in limits.items()]
    return [clamp for clamp in clamps if clamp.limit < clamp.parent_limit]


def _clamp(agent_id: str, limit: int, parent_id: str, parent_limit: int) -> Clamp:
    return Clamp(agent_id=agent_id, limit=limit, parent_id=parent_id, parent_limit=parent_limit)
