"""Budgets by category, and which events of a conversation fit into a limit. Pure functions.

Nothing is trimmed while everything fits, and budgets are computed each time: room that a category borrowed returns as
soon as its owner needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.kernel.ports import approximate_tokens
from weftline.windows.model import DEFAULT_SHARES, Category, WindowTooSmall, is_from_user

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.kernel.ports import TokenCounter
    from weftline.windows.model import WindowEvent

LOW_WATER = 0.7
# An event above this part of the limit is shortened rather than all others trimmed.
_LARGEST_PART = 4
_OMITTED = "\n[... {} characters omitted ...]\n"
_MAX_NAMED = 20
# Longer tokens are rare: white space, mostly. It bounds how much of a long text is counted.
_MAX_TOKEN_CHARACTERS = 16


class SizedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its size in tokens. ``calls`` are the tool calls it makes, ``answers`` the one it answers.

    ``fixed``: it cannot be shortened.
    """

    event_id: str
    category: Category
    tokens: int
    is_user: bool = False
    pinned: bool = False
    fixed: bool = False
    calls: tuple[str, ...] = ()
    answers: str | None = None

    @classmethod
    def of(cls, event: WindowEvent, tokens: int | None = None) -> SizedEvent:
        """Return an event with its exact size, or the approximate one that it has."""
        return cls(
            event_id=event.event_id,
            category=event.category,
            tokens=event.tokens if tokens is None else tokens,
            is_user=is_from_user(event),
            pinned=event.pinned,
            fixed=event.message.native is not None or bool(event.message.tool_calls),
            calls=tuple(call.call_id for call in event.message.tool_calls),
            answers=event.message.tool_call_id,
        )


class Fit(msgspec.Struct, frozen=True):
    """Which events fit, in their order. ``shortened`` maps events that are kept in part to their new size."""

    kept: tuple[str, ...]
    trimmed: tuple[str, ...]
    shortened: dict[str, int]
    tokens: int


def budgets_for(limit: int, shares: Mapping[Category, float] | None = None) -> dict[Category, int]:
    """Divide a limit among the categories; the budgets add up to it.

    ``shares`` replace the default ones. Categories without a share divide what the others leave.
    """
    parts = _normalised(shares or {})
    budgets = {category: int(limit * part) for category, part in parts.items()}
    # Round up where the fraction lost is largest.
    lost = sorted(parts, key=lambda category: (budgets[category] - limit * parts[category], category))
    for category in lost[: limit - sum(budgets.values())]:
        budgets[category] += 1
    return budgets


def fit(
    events: Sequence[SizedEvent],
    limit: int,
    budgets: Mapping[Category, int],
    *,
    low_water: float = LOW_WATER,
    longest: int | None = None,
) -> Fit:
    """Return which events of a conversation, oldest first, fit into a limit.

    If not all fit, events are trimmed down to ``low_water`` of the limit, so that the next ones can be appended without
    trimming again. SYSTEM, pinned events and the newest user message stay; a tool call stays or goes with its results.
    ``longest`` is the size above which an event is shortened, by default a quarter of the limit. Raises WindowTooSmall
    if what must stay exceeds the limit.
    """
    total = sum(event.tokens for event in events)
    if total <= limit:
        return Fit(tuple(event.event_id for event in events), (), {}, total)
    shortened = _shortened(events, limit // _LARGEST_PART if longest is None else longest)
    units = _units(events, shortened)
    required = _required(units, events)
    needed = sum(units[at].tokens for at in required)
    if needed > limit:
        raise _too_small([event for at in sorted(required) for event in units[at].events], shortened, limit)
    kept = set(range(len(units)))
    if sum(unit.tokens for unit in units) > limit:
        room = max(int(limit * low_water) - needed, 0)
        kept = required | _chosen(units, required, room, budgets)
    return _fit_of(events, units, kept, shortened)


def required_tokens(events: Sequence[SizedEvent]) -> int:
    """Return the tokens of what is never trimmed: SYSTEM, pinned events and the newest user message."""
    units = _units(events, {})
    return sum(units[at].tokens for at in _required(units, events))


def shorten(text: str, max_tokens: int, count: TokenCounter = approximate_tokens) -> str:
    """Cut the middle out of a text until it has at most ``max_tokens``; begin and end stay."""
    if count(text) <= max_tokens:
        return text
    low, high = 0, min(len(text), max_tokens * _MAX_TOKEN_CHARACTERS)
    while low < high:
        middle = (low + high + 1) // 2
        if count(_without_middle(text, middle)) <= max_tokens:
            low = middle
        else:
            high = middle - 1
    cut = _without_middle(text, low)
    return cut if count(cut) <= max_tokens else ""


class _Unit(msgspec.Struct, frozen=True):
    """Events that are kept or trimmed together: one, or a tool call with its results."""

    events: tuple[SizedEvent, ...]
    tokens: int
    category: Category


def _normalised(shares: Mapping[Category, float]) -> dict[Category, float]:
    """Return shares of all categories that add up to 1."""
    others = {category: part for category, part in DEFAULT_SHARES.items() if category not in shares}
    left = max(1.0 - sum(shares.values()), 0.0) / (sum(others.values()) or 1.0)
    parts = {**shares, **{category: part * left for category, part in others.items()}}
    whole = sum(parts.values())
    if not whole:
        return dict(DEFAULT_SHARES)
    return {category: parts[category] / whole for category in Category}


def _shortened(events: Iterable[SizedEvent], most: int) -> dict[str, int]:
    return {event.event_id: most for event in events if event.tokens > most and _may_shorten(event)}


def _may_shorten(event: SizedEvent) -> bool:
    return event.category is not Category.SYSTEM and not (event.pinned or event.fixed)


def _units(events: Sequence[SizedEvent], shortened: Mapping[str, int]) -> list[_Unit]:
    """Group each tool call with its results; units are ordered by their newest event."""
    group_of_call: dict[str, int] = {}
    groups: list[list[SizedEvent]] = []
    newest: list[int] = []
    for place, event in enumerate(events):
        known = group_of_call.get(event.answers) if event.answers is not None else None
        if known is None:
            known = len(groups)
            groups.append([])
            newest.append(place)
        groups[known].append(event)
        newest[known] = place
        for call_id in event.calls:
            group_of_call[call_id] = known
    order = sorted(range(len(groups)), key=newest.__getitem__)
    return [_unit(groups[at], shortened) for at in order]


def _unit(events: Sequence[SizedEvent], shortened: Mapping[str, int]) -> _Unit:
    if len(events) == 1:
        event = events[0]
        return _Unit((event,), shortened.get(event.event_id, event.tokens), event.category)
    tokens = sum(shortened.get(event.event_id, event.tokens) for event in events)
    # A call and its results count as the category of the newest result, which is usually the largest.
    return _Unit(tuple(events), tokens, events[-1].category)


def _required(units: Sequence[_Unit], events: Sequence[SizedEvent]) -> set[int]:
    """Return the units that must stay."""
    required = [event.event_id for event in events if event.category is Category.SYSTEM or event.pinned]
    required += [event.event_id for event in reversed(events) if event.is_user][:1]
    unit_of = {event.event_id: at for at, unit in enumerate(units) for event in unit.events}
    return {unit_of[event_id] for event_id in required}


def _chosen(units: Sequence[_Unit], required: set[int], room: int, budgets: Mapping[Category, int]) -> set[int]:
    """Choose the newest units of each category within its allotment, then fill what is left, newest first."""
    by_category: dict[Category, list[int]] = {}
    for at in reversed(range(len(units))):
        if at not in required:
            by_category.setdefault(units[at].category, []).append(at)
    needs = {category: sum(units[at].tokens for at in places) for category, places in by_category.items()}
    allotted = _allot(room, needs, budgets)
    chosen: set[int] = set()
    for category, places in by_category.items():
        taken = _leading(units, places, allotted[category])
        chosen |= {*places[:taken]}
        by_category[category] = places[taken:]
    left = room - sum(units[at].tokens for at in chosen)
    return chosen | _fill(units, by_category, left)


def _allot(room: int, needs: Mapping[Category, int], budgets: Mapping[Category, int]) -> dict[Category, int]:
    """Divide room by budget; what a category does not need is lent to the others."""
    allotted: dict[Category, int] = {}
    waiting = dict(needs)
    while waiting:
        whole = sum(budgets.get(category, 0) for category in waiting)
        parts = {
            category: room * budgets.get(category, 0) // whole if whole else room // len(waiting)
            for category in waiting
        }
        content = [category for category, need in waiting.items() if need <= parts[category]]
        if not content:
            return allotted | parts
        for category in content:
            allotted[category] = waiting.pop(category)
            room -= allotted[category]
    return allotted


def _leading(units: Sequence[_Unit], places: Sequence[int], room: int) -> int:
    """Return how many of the first units fit."""
    for taken, at in enumerate(places):
        room -= units[at].tokens
        if room < 0:
            return taken
    return len(places)


def _fill(units: Sequence[_Unit], by_category: Mapping[Category, Sequence[int]], left: int) -> set[int]:
    """Return further units, newest first; a category ends with its first unit that does not fit."""
    added: set[int] = set()
    ended: set[Category] = set()
    for at in sorted((at for places in by_category.values() for at in places), reverse=True):
        category = units[at].category
        if category in ended:
            continue
        if units[at].tokens > left:
            ended.add(category)
            continue
        added.add(at)
        left -= units[at].tokens
    return added


def _fit_of(events: Sequence[SizedEvent], units: Sequence[_Unit], kept: set[int], shortened: Mapping[str, int]) -> Fit:
    stays = {event.event_id for at in kept for event in units[at].events}
    return Fit(
        kept=tuple(event.event_id for event in events if event.event_id in stays),
        trimmed=tuple(event.event_id for event in events if event.event_id not in stays),
        shortened={event_id: size for event_id, size in shortened.items() if event_id in stays},
        tokens=sum(units[at].tokens for at in kept),
    )


def _too_small(required: Sequence[SizedEvent], shortened: Mapping[str, int], limit: int) -> WindowTooSmall:
    sizes = {event.event_id: shortened.get(event.event_id, event.tokens) for event in required}
    system = sum(event.tokens for event in required if event.category is Category.SYSTEM)
    pinned = sum(sizes[event.event_id] for event in required if event.pinned and event.category is not Category.SYSTEM)
    needed = sum(sizes.values())
    named = sorted(required, key=lambda event: -sizes[event.event_id])[:_MAX_NAMED]
    return WindowTooSmall(
        f"The window holds {limit} tokens; SYSTEM ({system}), pinned events ({pinned}) and the newest user message "
        f"({needed - system - pinned}) need {needed}.",
        limit=limit,
        needed=needed,
        system_tokens=system,
        pinned_tokens=pinned,
        events=[event.event_id for event in named],
    )


def _without_middle(text: str, kept: int) -> str:
    head = (kept + 1) // 2
    tail = kept - head
    return text[:head] + _OMITTED.format(len(text) - kept) + (text[-tail:] if tail else "")
