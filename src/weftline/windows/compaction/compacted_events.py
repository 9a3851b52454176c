"""Applies a compacted view to the events of a window. Pure: a summary holds only as long as its sources do.

Events that were redacted, removed, changed or marked as suspicious since take the place of the summary again, together
with the others that it stood for. So nothing that was taken out of a window survives in a summary of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.kernel.ports import approximate_tokens
from weftline.safety.trust.model import Trust
from weftline.windows.compaction.digest import facts_text, is_literal, summary_text
from weftline.windows.compaction.model import is_stated
from weftline.windows.model import event_version, is_from_user

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.windows.compaction.model import CompactedView, KeyFact, ShortenedEvent, Summary
    from weftline.windows.model import WindowEvent


class SummaryOfEvents(NamedTuple):
    """A summary in the place of the events that it stands for, with the key facts that it does not contain.

    ``number`` is its place in the view, from 0. ``statements`` are the current decisions, constraints and the like of
    its events, in the text or not: they remain where there is no room for the summary.
    """

    summary: Summary
    number: int
    events: tuple[WindowEvent, ...]
    facts: tuple[KeyFact, ...] = ()
    statements: tuple[KeyFact, ...] = ()

    @property
    def text(self) -> str:
        return summary_text(self.summary, self.facts)

    @property
    def tokens(self) -> int:
        return self.summary.tokens + approximate_tokens(facts_text(self.facts))


class EventInPart(NamedTuple):
    """An event that is shown with a shorter content."""

    event: WindowEvent
    shortened: ShortenedEvent

    @property
    def shown(self) -> WindowEvent:
        message = structs.replace(self.event.message, content=self.shortened.content)
        return structs.replace(self.event, message=message, tokens=self.shortened.tokens)


def compacted(events: Sequence[WindowEvent], view: CompactedView) -> list[WindowEvent | SummaryOfEvents]:
    """Return the events of a window with summaries and shorter contents in the places of what they stand for."""
    return [part.shown if isinstance(part, EventInPart) else part for part in compacted_parts(events, view)]


def compacted_tokens(events: Sequence[WindowEvent], view: CompactedView | None) -> int:
    """Return the approximate tokens of a window with its view applied."""
    if view is None:
        return sum(event.tokens for event in events)
    return sum(part.tokens for part in compacted(events, view))


def compacted_parts(
    events: Sequence[WindowEvent], view: CompactedView
) -> list[WindowEvent | SummaryOfEvents | EventInPart]:
    """Return what a compacted window consists of, in order.

    A summary is in the place of its first event. Events that others route here are never part of one.
    """
    own = {event.event_id: event for event in events if not event.routed}
    covering = _covering(own, view)
    parts = _summaries(own, view, covering)
    shortened = {each.event_id: each for each in view.shortened if _is_unchanged(own, each.event_id, each.version)}
    found: list[WindowEvent | SummaryOfEvents | EventInPart] = []
    placed = -1
    for event in events:
        number = covering.get(event.event_id)
        if event.routed or number is None:
            cut = shortened.get(event.event_id)
            found.append(event if cut is None or event.routed else EventInPart(event, cut))
        elif number != placed and number in parts:
            placed = number
            found.append(parts.pop(number))
    return found


def holding_summaries(events: Iterable[WindowEvent], view: CompactedView) -> list[Summary]:
    """Return the summaries of a view whose sources are as they were."""
    numbers = set(_covering({event.event_id: event for event in events if not event.routed}, view).values())
    return [summary for number, summary in enumerate(view.summaries) if number in numbers]


def _covering(own: dict[str, WindowEvent], view: CompactedView) -> dict[str, int]:
    """Return the number of the summary that stands for each event, by event id."""
    found: dict[str, int] = {}
    for number, summary in enumerate(view.summaries):
        if found.keys().isdisjoint(summary.sources) and _holds(own, summary):
            found |= dict.fromkeys(summary.sources, number)
    invalid = _parted(own.values(), found) | _with_lost_facts(own, view, found)
    newest = _newest_request(own)
    if newest is not None and newest in found:
        invalid.add(found[newest])
    return {event_id: number for event_id, number in found.items() if number not in invalid} if invalid else found


def _holds(own: Mapping[str, WindowEvent], summary: Summary) -> bool:
    for event_id, version in summary.sources.items():
        if not _is_unchanged(own, event_id, version):
            return False
    return bool(summary.sources)


def _is_unchanged(own: Mapping[str, WindowEvent], event_id: str, version: str) -> bool:
    return _is_live(own, event_id) and event_version(own[event_id]) == version


def _is_live(own: Mapping[str, WindowEvent], event_id: str) -> bool:
    event = own.get(event_id)
    if event is None or event.redacted:
        return False
    return event.trust is None or event.trust.trust is not Trust.SUSPICIOUS


def _parted(own: Iterable[WindowEvent], covering: Mapping[str, int]) -> set[int]:
    """Return the summaries that would part a tool call from its result: providers refuse such a conversation."""
    parted: set[int | None] = set()
    calls: dict[str, int | None] = {}
    for event in own:
        message = event.message
        if message.tool_call_id is not None:
            number = covering.get(event.event_id)
            called = calls.get(message.tool_call_id, number)
            if called != number:
                parted |= {number, called}
        for call in message.tool_calls:
            calls[call.call_id] = covering.get(event.event_id)
    return {number for number in parted if number is not None}


def _with_lost_facts(own: Mapping[str, WindowEvent], view: CompactedView, covering: Mapping[str, int]) -> set[int]:
    """Return the summaries that go with a key fact of which a source is gone: the originals have what is left of it."""
    return {
        covering[fact.event_ids[0]]
        for fact in view.facts
        if fact.carried and fact.event_ids and fact.event_ids[0] in covering
        if not all(_is_live(own, event_id) for event_id in fact.sources)
    }


def _newest_request(own: dict[str, WindowEvent]) -> str | None:
    """Return the id of the newest message of the user, which is always shown in full."""
    return next((event_id for event_id, event in reversed(own.items()) if is_from_user(event)), None)


def _summaries(
    own: Mapping[str, WindowEvent], view: CompactedView, covering: Mapping[str, int]
) -> dict[int, SummaryOfEvents]:
    facts: dict[int, list[KeyFact]] = {}
    statements: dict[int, list[KeyFact]] = {}
    for fact in view.facts:
        number = covering.get(fact.event_ids[0]) if fact.event_ids else None
        if number is None:
            continue
        if fact.carried:
            facts.setdefault(number, []).append(fact)
        is_statement = fact.status == "current" and is_stated(fact) and not is_literal(fact)
        if is_statement and all(each in covering for each in fact.event_ids):
            statements.setdefault(number, []).append(fact)
    return {
        number: SummaryOfEvents(
            view.summaries[number],
            number,
            tuple(own[event_id] for event_id in view.summaries[number].sources),
            tuple(facts.get(number, ())),
            tuple(statements.get(number, ())),
        )
        for number in sorted(set(covering.values()))
    }
