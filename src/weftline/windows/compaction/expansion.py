"""Finds the original events of summaries, key facts and event ids."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.windows.compaction.model import CompactedView
    from weftline.windows.model import WindowEvent

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
