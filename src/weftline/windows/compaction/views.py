"""Compactions as callers see them: figures, summaries next to their original events, and key facts."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

from weftline.kernel.clock import from_micros, optional_datetime
from weftline.kernel.operation import Response, shared_fields
from weftline.models.language_models.content import ToolCall
from weftline.models.language_models.wire_forms import plain_text
from weftline.safety.trust.model import Source, Trust, TrustInfo, TrustLabel, joined_label
from weftline.windows.compaction.compacted_events import holding_summaries
from weftline.windows.compaction.model import (
    CompactionState,
    CompactionTrigger,
    FactKind,
    FactStatus,
    ModelUsage,
    StrategyName,
    SummaryMethod,
    UsedStrategy,
)
from weftline.windows.model import event_version
from weftline.windows.views import shown_trust

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.windows.compaction.model import CompactedView, Compaction, KeyFact, ShortenedEvent, Summary
    from weftline.windows.model import WindowEvent


# Where a reader finds a key fact now: in the summary, listed next to it, or in an event that stays in full.
FactPlace = Literal["summary", "carried", "event"]
# Characters of an original event that are shown next to its summary; `compaction.expand` has all of them.
_EXCERPT_CHARS = 1_500
_ELLIPSIS = " …"
# Bytes of one page of summaries with their originals, of expanded events, or of facts: about 16,000 tokens.
MAX_PAGE_BYTES = 64 * 1_024
_EVENT_BYTES = 200
_TOOL_RESULT = TrustLabel(Source.TOOL, Trust.UNTRUSTED)
# Key facts that are shown with a summary; `compaction.facts` has all of them.
_MAX_FACTS = 100


class CompactionInfo(Response):
    """A compaction. ``used``: the strategy that was used; ``version``: the hash of the result.

    ``facts``: statements in the covered events, and the names and numbers that their summary lacks; ``carried_facts``
    of them are listed next to the summaries, which do not contain them. ``degraded``: what could not be done as
    configured.
    """

    compaction_id: str
    state: CompactionState
    session_id: str
    agent_id: str
    requested_by: str
    trigger: CompactionTrigger
    strategy: StrategyName
    created_at: datetime
    used: UsedStrategy | None = None
    reason: str = ""
    version: str | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    events_covered: int = 0
    summaries: int = 0
    facts: int = 0
    carried_facts: int = 0
    loss_notes: int = 0
    degraded: tuple[str, ...] = ()
    model: str | None = None
    model_usage: ModelUsage | None = None
    approval_id: str | None = None
    finished_at: datetime | None = None


class FactView(Response):
    """A key fact with its source: who wrote it, in which events. ``place``: where prompts have it now.

    ``trust`` is set if a source is not trusted, such as the result of a tool: then it is data, not an instruction.
    """

    fact_id: str
    kind: FactKind
    text: str
    who: str
    event_ids: tuple[str, ...]
    status: FactStatus = "current"
    superseded_by: str | None = None
    place: FactPlace = "event"
    trust: Trust | None = None


class OriginalEvent(Response):
    """An original event as it is now. ``shortened``: this is its beginning; `compaction.expand` has all of it."""

    event_id: str
    number: int
    role: str
    author: str
    tokens: int
    content: str = ""
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    at: datetime | None = None
    occurred_at: datetime | None = None
    shortened: bool = False
    redacted: bool = False
    trust: TrustInfo | None = None


class SummaryView(Response):
    """A summary next to what it stands for: ``originals``, what it leaves out, and the key facts of these events.

    ``valid`` is false if an original was removed, redacted or changed since: then prompts have the originals again,
    and the text is not shown.
    """

    summary_id: str
    title: str
    method: SummaryMethod
    tokens_before: int
    tokens: int
    text: str = ""
    valid: bool = True
    confidence: float = 1.0
    trust: Trust | None = None
    loss_notes: tuple[str, ...] = ()
    facts: tuple[FactView, ...] = ()
    facts_omitted: int = 0
    originals: tuple[OriginalEvent, ...] = ()
    originals_omitted: int = 0


class ShortenedView(Response):
    """An event that stays in its place with a shorter content."""

    original: OriginalEvent
    tokens: int
    content: str = ""
    valid: bool = True


class LineNow(NamedTuple):
    """The own events of a window now, and what holds of a view for them."""

    events: Mapping[str, WindowEvent]
    view: CompactedView
    holding: frozenset[str]

    @classmethod
    def of(cls, events: Sequence[WindowEvent], view: CompactedView) -> LineNow:
        holding = frozenset(summary.summary_id for summary in holding_summaries(events, view))
        return cls({event.event_id: event for event in events}, view, holding)


def compaction_info(compaction: Compaction) -> CompactionInfo:
    finished = compaction.finished_at
    times = {
        "created_at": from_micros(compaction.created_at),
        "finished_at": None if finished is None else from_micros(finished),
    }
    return CompactionInfo(**(shared_fields(compaction, CompactionInfo) | times))


def fact_view(fact: KeyFact, place: FactPlace, events: Mapping[str, WindowEvent]) -> FactView:
    """Return a key fact with the lowest trust of its sources, if that is not trusted."""
    lowest = joined_label(_label(events[event_id]) for event_id in fact.event_ids if event_id in events)
    trust = None if lowest is None or lowest.trust is Trust.TRUSTED else lowest.trust
    return FactView(**(shared_fields(fact, FactView) | {"place": place, "trust": trust}))


def original_event(event: WindowEvent, *, whole: bool = False) -> OriginalEvent:
    """Return an event as it is now, or its beginning."""
    text = plain_text(event.message)
    cut = not whole and len(text) > _EXCERPT_CHARS
    return OriginalEvent(
        event_id=event.event_id,
        number=event.number,
        role=event.message.role,
        author=event.author,
        tokens=event.tokens,
        content=text[:_EXCERPT_CHARS] + _ELLIPSIS if cut else text,
        name=event.message.name,
        tool_calls=tuple(_excerpt_of_call(call) for call in event.message.tool_calls)
        if not whole
        else event.message.tool_calls,
        at=from_micros(event.at),
        occurred_at=optional_datetime(event.occurred_at),
        shortened=cut,
        redacted=event.redacted,
        trust=shown_trust(event),
    )


def summary_view(summary: Summary, now: LineNow, room: int) -> SummaryView:
    """Return a summary with as many of its originals as the room has bytes for."""
    valid = summary.summary_id in now.holding
    facts = _facts_of(summary, now) if valid else []
    originals = [original_event(now.events[each]) for each in summary.sources if each in now.events]
    shown = within(originals, room)
    return SummaryView(
        summary_id=summary.summary_id,
        title=summary.title,
        method=summary.method,
        tokens_before=summary.tokens_before,
        tokens=summary.tokens,
        text=summary.text if valid else "",
        valid=valid,
        confidence=summary.confidence,
        trust=None if summary.trust is None else summary.trust.trust,
        loss_notes=summary.loss_notes,
        facts=tuple(facts[:_MAX_FACTS]),
        facts_omitted=max(len(facts) - _MAX_FACTS, 0),
        originals=tuple(shown),
        originals_omitted=len(originals) - len(shown),
    )


def shortened_view(shortened: ShortenedEvent, now: LineNow) -> ShortenedView | None:
    """Return a shortened event next to the original; None if that is gone."""
    event = now.events.get(shortened.event_id)
    if event is None:
        return None
    valid = not event.redacted and event_version(event) == shortened.version
    return ShortenedView(
        original=original_event(event),
        tokens=shortened.tokens,
        content=shortened.content if valid else "",
        valid=valid,
    )


def within(events: Iterable[OriginalEvent], room: int) -> list[OriginalEvent]:
    """Return the first events that fit into the room in bytes, at least one."""
    shown: list[OriginalEvent] = []
    for event in events:
        room -= original_bytes(event)
        if room < 0 and shown:
            break
        shown.append(event)
    return shown


def original_bytes(event: OriginalEvent) -> int:
    calls = sum(len(call.arguments.encode()) + _EVENT_BYTES for call in event.tool_calls)
    return _EVENT_BYTES + len(event.content.encode()) + calls


def _facts_of(summary: Summary, now: LineNow) -> list[FactView]:
    """Return the key facts of the events that a summary stands for, unless one of their sources is gone."""
    return [
        fact_view(fact, "carried" if fact.carried else "summary", now.events)
        for fact in now.view.facts
        if fact.event_ids and fact.event_ids[0] in summary.sources and _is_live(fact, now)
    ]


def _is_live(fact: KeyFact, now: LineNow) -> bool:
    found = [now.events.get(event_id) for event_id in fact.sources]
    return all(event is not None and not event.redacted for event in found)


def _label(event: WindowEvent) -> TrustLabel | None:
    return event.trust or (_TOOL_RESULT if event.message.role == "tool" else None)


def _excerpt_of_call(call: ToolCall) -> ToolCall:
    if len(call.arguments) <= _EXCERPT_CHARS:
        return call
    return ToolCall(call.call_id, call.name, call.arguments[:_EXCERPT_CHARS] + _ELLIPSIS)


# Finds the original events of summaries, key facts and event ids.

# Between the event and the number in the id of a key fact.
_FACT_MARK = "#"
# A summary as receipts of prompts name it: its compaction, and its number in the view.
_REF = re.compile(r"compaction:([A-Za-z0-9_-]{1,64})/([0-9]{1,9})")


class Expansion(NamedTuple):
    """Original events in order, and the ids that name nothing, or only events that are gone."""

    events: list[WindowEvent]
    unknown: list[str]


def summary_ref(compaction_id: str, number: int) -> str:
    """Return how receipts of prompts name a summary."""
    return f"compaction:{compaction_id}/{number}"


def named_compactions(ids: Iterable[str]) -> list[str]:
    """Return the compactions of the refs among ids."""
    return list(dict.fromkeys(found[1] for each in ids if (found := _REF.fullmatch(each)) is not None))


def expand_ids(ids: Iterable[str], events: Sequence[WindowEvent], views: Mapping[str, CompactedView]) -> Expansion:
    """Return the events that ids of summaries, key facts and events stand for, each once, in order.

    ``views``: the views to look in, by compaction.
    """
    live = {event.event_id: event for event in events}
    sources = {name: event_ids for each in views.items() for name, event_ids in _sources(*each).items()}
    wanted: set[str] = set()
    unknown: list[str] = []
    for each in dict.fromkeys(ids):
        found = [event_id for event_id in _events_of(each, sources, live) if event_id in live]
        wanted.update(found)
        if not found:
            unknown.append(each)
    return Expansion([event for event in events if event.event_id in wanted], unknown)


def _sources(compaction_id: str, view: CompactedView) -> dict[str, tuple[str, ...]]:
    """Return the source events of everything in a view, by its id."""
    found = {fact.fact_id: fact.event_ids for fact in view.facts}
    for number, summary in enumerate(view.summaries):
        found[summary.summary_id] = found[summary_ref(compaction_id, number)] = tuple(summary.sources)
    return found


def _events_of(name: str, sources: Mapping[str, tuple[str, ...]], live: Mapping[str, WindowEvent]) -> tuple[str, ...]:
    if name in live:
        return (name,)
    # A fact of an event after the cut is not in the view, but its id begins with that of its event.
    return sources.get(name) or (name.partition(_FACT_MARK)[0],)
