"""Task-scoped: finished tasks are compacted, active ones stay in full."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from weftline.windows.compaction.model import Layout
from weftline.windows.compaction.strategies.call_units import call_units
from weftline.windows.compaction.strategies.kept_events import kept_events
from weftline.windows.compaction.strategies.segments import EventRange, groups_of, segment_ends
from weftline.windows.compaction.strategies.tasks import find_tasks, runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weftline.windows.compaction.model import CompactionSource
    from weftline.windows.compaction.strategies.call_units import CallUnits
    from weftline.windows.compaction.strategies.tasks import Tasks


def task_scoped(source: CompactionSource) -> Layout:
    """Summarise the events of finished tasks, and older events of no task; keep those of active tasks in full."""
    units = call_units(source.events)
    tasks = find_tasks(source.events, units)
    active = {
        at for at, task_id in enumerate(tasks.of_event) if task_id is not None and not tasks.by_id[task_id].is_finished
    }
    kept = units.whole(kept_events(source, units) | active)
    return Layout("task_scoped", _reason(tasks), groups_of(source, _segments(source, units, tasks), kept))


def _segments(source: CompactionSource, units: CallUnits, tasks: Tasks) -> Iterator[EventRange]:
    """Yield the runs of each task, long ones in several segments."""
    for start, end, task_id in runs(tasks.of_event, units.ends):
        title = "" if task_id is None or not tasks.by_id[task_id].is_named else f"Task {task_id}"
        begin = start
        ends = units.ends[bisect_right(units.ends, start) : bisect_right(units.ends, end)]
        for until in segment_ends(source.events, ends, start):
            yield EventRange(begin, until, source.target, title)
            begin = until


def _reason(tasks: Tasks) -> str:
    finished = sum(task.is_finished for task in tasks.by_id.values())
    if not tasks.by_id:
        return "No tasks were recognised, so that all older messages are summarised."
    noun = "tasks" if any(task.is_named for task in tasks.by_id.values()) else "requests"
    return f"{finished} of {len(tasks.by_id)} {noun} are finished and summarised; the others stay in full."
