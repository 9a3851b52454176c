"""Auto: chooses a strategy by what a window holds, and says why in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.windows.compaction.model import binds
from weftline.windows.compaction.strategies.call_units import call_units
from weftline.windows.compaction.strategies.kept_events import kept_events
from weftline.windows.compaction.strategies.key_facts import key_facts
from weftline.windows.compaction.strategies.sliding_window import sliding_window
from weftline.windows.compaction.strategies.task_scoped import task_scoped
from weftline.windows.compaction.strategies.tasks import find_tasks

if TYPE_CHECKING:
    from weftline.windows.compaction.model import CompactionSource, Layout

_DAY = 24 * 3_600 * 1_000_000
_MIN_TASKS = 2
# Part of the older tokens that finished tasks must hold, and of the room for summaries that key facts must need.
_FINISHED_SHARE = 0.4
_FACT_SHARE = 0.6


class _Content(NamedTuple):
    """What the older events of a window consist of, as parts of their tokens, and over how many days they spread.

    ``fact_share`` is the part of the room for summaries that the key facts of these events would take.
    """

    tool_share: float
    fact_share: float
    finished_share: float
    tasks: int
    finished_tasks: int
    days: int


def auto(source: CompactionSource) -> Layout:
    """Choose the strategy that suits the older events."""
    content = _content(source)
    if content.tasks >= _MIN_TASKS and content.finished_share >= _FINISHED_SHARE:
        layout = task_scoped(source)
        why = f"{content.finished_tasks} of {content.tasks} tasks are finished and hold {content.finished_share:.0%}"
        return _because(layout, f"{why} of the older tokens")
    if content.fact_share >= _FACT_SHARE:
        return _because(key_facts(source), f"key facts need {content.fact_share:.0%} of the room for summaries")
    return _because(sliding_window(source), _mixed(content))


def _mixed(content: _Content) -> str:
    """Say why nothing else suits better."""
    days = "1 day" if content.days == 1 else f"{content.days} days"
    tasks = f"{content.finished_tasks} of {content.tasks} tasks finished" if content.tasks else "no named tasks"
    return f"{content.tool_share:.0%} of the older tokens are results of tools, from {days}, with {tasks}"


def _because(layout: Layout, why: str) -> Layout:
    name = layout.strategy.replace("_", " ")
    return layout._replace(reason=f"{name.capitalize()} was chosen because {why}.")


def _content(source: CompactionSource) -> _Content:
    units = call_units(source.events)
    kept = kept_events(source, units)
    tasks = find_tasks(source.events, units)
    older = [(at, event) for at, event in enumerate(source.events) if at not in kept]
    total = max(sum(event.tokens for _, event in older), 1)
    tool = sum(event.tokens for _, event in older if event.message.role == "tool")
    ids = {event.event_id for _, event in older}
    facts = sum(
        source.count(fact.text)
        for fact in source.facts
        if binds(fact.kind, fact.probability) and fact.event_ids and fact.event_ids[0] in ids
    )
    named = [task for task in tasks.by_id.values() if task.is_named]
    finished = sum(event.tokens for at, event in older if named and tasks.is_finished(at))
    return _Content(
        tool_share=tool / total,
        fact_share=facts / (total * source.target),
        finished_share=finished / total,
        tasks=len(named),
        finished_tasks=sum(task.is_finished for task in named),
        days=len({event.time // _DAY for _, event in older}),
    )
