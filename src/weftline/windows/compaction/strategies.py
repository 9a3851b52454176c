"""Strategies: which events of a window are summarised, in which groups, and to what size."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, NamedTuple

from weftline.safety.trust.model import Trust
from weftline.windows.compaction.model import EventGroup, Layout, binds
from weftline.windows.compaction.tasks import find_tasks, runs
from weftline.windows.model import Category, is_instruction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from weftline.windows.compaction.model import CompactionSource, StrategyName
    from weftline.windows.compaction.tasks import Tasks
    from weftline.windows.model import WindowEvent


# Tool calls with their results: what no border may part.

# A call that is still open after this many further messages is long-running: it stays in full, with its results.
_MAX_MESSAGES_WHILE_OPEN = 8


class CallUnits(NamedTuple):
    """Events by position. ``first`` is the position of the call that an event belongs to, else its own.

    ``unfinished`` are calls without a result, long-running ones, and those answered again later. ``ends`` are the
    positions after which a border is possible. All but the newest of them are the same when events are appended.
    """

    first: Sequence[int]
    unfinished: frozenset[int]
    ends: Sequence[int]

    def whole(self, positions: frozenset[int]) -> frozenset[int]:
        """Return positions with the calls and results that belong to them, or that they are in the midst of.

        A call and its result with an event in between that stays could not be in one group.
        """
        last = {first: at for at, first in enumerate(self.first) if at != first}
        while True:
            units = {self.first[at] for at in positions}
            before = list(accumulate((at in positions for at in range(len(self.first))), initial=0))
            units.update(first for first, end in last.items() if before[end + 1] > before[first])
            found = frozenset(at for at, first in enumerate(self.first) if first in units)
            if found == positions:
                return found
            positions = found


class _OpenCalls:
    """Calls seen so far and their results."""

    def __init__(self) -> None:
        self.unfinished: set[int] = set()
        self._calls: dict[str, int] = {}
        self._open: dict[str, int] = {}
        self._missing: Counter[int] = Counter()
        self._messages = 0
        self._start = 0

    def call_of(self, event: WindowEvent) -> int | None:
        """Return the position of the call that an event answers."""
        call_id = event.message.tool_call_id
        called = self._calls.get(call_id) if call_id is not None and event.message.role == "tool" else None
        if called is None or call_id is None:
            return None
        if self._open.pop(call_id, None) is not None:
            self._missing[called] -= 1
        if called < self._start:
            # Long-running, or answered again: a border may be between the call and this result.
            self.unfinished.add(called)
        return called

    def add(self, at: int, event: WindowEvent) -> None:
        if self._open and event.message.role != "tool":
            self._messages += 1
        for call in event.message.tool_calls:
            self._calls[call.call_id] = self._open[call.call_id] = at
            self._missing[at] += 1

    def may_end(self, at: int) -> bool:
        """Tell whether a border is possible after a position; calls that are open for too long do not prevent it."""
        if self._open and self._messages <= _MAX_MESSAGES_WHILE_OPEN:
            return False
        self.unfinished.update(self._open.values())
        self._open.clear()
        self._messages = 0
        self._start = at + 1
        return True

    @property
    def pending(self) -> set[int]:
        """Return the calls without a result, those too whose id was used again before one came."""
        return {at for at, missing in self._missing.items() if missing}


def call_units(events: Sequence[WindowEvent]) -> CallUnits:
    """Find the calls in a window, what answers them, and where a border is possible."""
    calls = _OpenCalls()
    first = list(range(len(events)))
    ends: list[int] = []
    for at, event in enumerate(events):
        called = calls.call_of(event)
        if called is not None:
            first[at] = called
        calls.add(at, event)
        if calls.may_end(at):
            ends.append(at + 1)
    if events and (not ends or ends[-1] < len(events)):
        ends.append(len(events))
    return CallUnits(first, frozenset(calls.unfinished | calls.pending), ends)


# Segments of a window at borders that do not move when events are appended, and the groups made of them.

SEGMENT_TOKENS = 4_000
# Fewer tokens stay as they are: a summary would hardly be shorter.
MIN_GROUP_TOKENS = 64
# The title of fewer tokens has no times: they would take too much of the room of the summary.
_LEAST_TIMED = 1_000
# A result of a tool keeps what these many next events refer to.
_FOLLOWING = 8
_SECOND_IN_MICROS = 1_000_000


class EventRange(NamedTuple):
    """Events from ``start`` to before ``end``, and the part of their tokens that a summary may take."""

    start: int
    end: int
    share: float
    title: str = ""


def segment_ends(
    events: Sequence[WindowEvent], ends: Iterable[int], start: int = 0, tokens: int = SEGMENT_TOKENS
) -> Iterator[int]:
    """Yield the ends of segments: the possible borders at which at least ``tokens`` have come together."""
    size, last = 0, start
    for end in ends:
        size += sum(event.tokens for event in events[last:end])
        last = end
        if size >= tokens:
            yield end
            size = 0
    if size:
        yield last


def groups_of(source: CompactionSource, segments: Iterable[EventRange], kept: frozenset[int]) -> list[EventGroup]:
    """Return the groups in segments: the runs of events that do not stay."""
    return [group for segment in segments for group in _groups(source, segment, kept)]


def _groups(source: CompactionSource, segment: EventRange, kept: frozenset[int]) -> Iterator[EventGroup]:
    for stays, positions in groupby(range(segment.start, segment.end), kept.__contains__):
        if stays:
            continue
        run = list(positions)
        events = source.events[run[0] : run[-1] + 1]
        tokens = sum(event.tokens for event in events)
        if tokens >= MIN_GROUP_TOKENS:
            yield EventGroup(
                segment.title or title_of(events),
                events,
                max(int(tokens * segment.share), 1),
                # No more than the recent events, so that they are the same when events are appended.
                source.events[run[-1] + 1 : run[-1] + 1 + min(_FOLLOWING, source.keep_recent)],
            )


def title_of(events: Sequence[WindowEvent]) -> str:
    """Return the numbers and times of events as a title; over several days, only their dates; for few, no times."""
    first, last = events[0], events[-1]
    numbers = f"Event {first.number}" if first is last else f"Events {first.number} to {last.number}"
    if sum(event.tokens for event in events) < _LEAST_TIMED:
        return numbers
    begin, end = time_text(first.time), time_text(last.time)
    if begin == end:
        return f"{numbers}, {begin}"
    (begin_day, _, _), (day, _, hour) = begin.partition(" "), end.partition(" ")
    return f"{numbers}, {begin} to {hour}" if begin_day == day else f"{numbers}, {begin_day} to {day}"


def time_text(micros: int) -> str:
    """Return a time as UTC date and minute."""
    return f"{datetime.fromtimestamp(micros // _SECOND_IN_MICROS, UTC):%Y-%m-%d %H:%M}"


# Which events stay in full whatever the strategy.

# A request that took this many events to work on stays in full up to this size: it says what the work was for.
_LONG_WORK = 12
_MAX_REQUEST_TOKENS = 500


def kept_events(source: CompactionSource, units: CallUnits) -> frozenset[int]:
    """Return the positions of events that stay in full, with the calls and results that belong to them."""
    kept = {at for at, event in enumerate(source.events) if _always_stays(event)}
    kept |= units.unfinished
    kept.update(range(_first_recent(source), len(source.events)))
    kept.update(_requests(source.events, source.keep_recent))
    return units.whole(frozenset(kept))


def _first_recent(source: CompactionSource) -> int:
    """Return the position of the first recent event; it only moves forward when events are added."""
    first = max(len(source.events) - source.keep_recent, 0)
    if source.recent_tokens is None:
        return first
    room = source.recent_tokens
    for at in reversed(range(first, len(source.events))):
        room -= source.events[at].tokens
        if room < 0:
            return at + 1
    return first


def _always_stays(event: WindowEvent) -> bool:
    """Tell whether an event is an instruction, pinned, redacted, of another window, or under suspicion."""
    is_suspicious = event.trust is not None and event.trust.trust is Trust.SUSPICIOUS
    return is_instruction(event) or event.pinned or event.redacted or event.routed or is_suspicious


def _requests(events: Sequence[WindowEvent], keep_recent: int) -> Iterator[int]:
    """Yield the newest request of the user, and the earlier ones that were worked on for long.

    Those were once the newest ones and older than the recent events. That they stay then too means that the summaries
    around them do not change when the user says something new.
    """
    until, long_work = len(events), max(keep_recent, _LONG_WORK)
    for at in reversed(range(len(events))):
        if not _is_request(events[at]):
            continue
        took_long = until - at > long_work and events[at].tokens <= _MAX_REQUEST_TOKENS
        if until == len(events) or took_long:
            yield at
        until = at


def _is_request(event: WindowEvent) -> bool:
    return event.message.role == "user" and event.category is Category.DIALOG and not event.routed


# Hierarchical: summaries by minute, hour, day and week; the older, the coarser and the smaller their share.
#
# Levels follow the calendar (UTC): minutes within the hour of the newest event, hours within its day, days within its
# week, weeks before that. So borders move only when an hour, a day or a week ends.

_MINUTE = 60 * 1_000_000
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
# The epoch was a Thursday; weeks begin on Monday.
_EPOCH_DAYS = 3
_LARGEST_SHARE = 0.9
_STEP = 0.25


class _Level(NamedTuple):
    """``share`` is relative to the target. Segments have at least and at most so many tokens."""

    name: str
    share: float
    least: int
    most: int


_LEVELS = (
    _Level("minute", 1.0, 400, 2_000),
    _Level("hour", 0.8, 0, 4_000),
    _Level("day", 0.6, 0, 6_000),
    _Level("week", 0.4, 0, 8_000),
)


class _Bucket(NamedTuple):
    """A minute, hour, day or week, by the number of its level and its own."""

    level: int
    number: int


def hierarchical(source: CompactionSource) -> Layout:
    """Summarise the older events by minute, hour, day and week."""
    units = call_units(source.events)
    parts = list(_parts(source.events, units.ends))
    boost = _boost(source.events, parts)
    segments = [
        EventRange(start, end, _share(source.target, bucket, boost), _title(bucket, source.events[start:end]))
        for start, end, bucket in parts
    ]
    groups = groups_of(source, segments, kept_events(source, units))
    used = Counter(bucket.level for _, _, bucket in parts)
    levels = ", ".join(f"{_count(used[level], level)}" for level in sorted(used))
    return Layout("hierarchical", f"Events are summarised by time: {levels}.", groups)


def _parts(events: Sequence[WindowEvent], ends: Sequence[int]) -> Iterator[tuple[int, int, _Bucket]]:
    """Yield start, end and bucket of the segments."""
    newest = max((event.time for event in events), default=0)
    start = last = tokens = 0
    current: _Bucket | None = None
    for end in ends:
        bucket = _bucket(events[last].time, newest)
        if current is not None and tokens and _is_over(current, bucket, tokens):
            yield start, last, current
            start, tokens, current = last, 0, None
        current = current or bucket
        tokens += sum(event.tokens for event in events[last:end])
        last = end
    if current is not None:
        yield start, last, current


def _is_over(current: _Bucket, bucket: _Bucket, tokens: int) -> bool:
    """Tell whether a segment ends before a bucket; a few quiet minutes are one segment."""
    level = _LEVELS[current.level]
    if bucket.level != current.level or tokens >= level.most:
        return True
    return bucket.number != current.number and tokens >= level.least


def _bucket(at: int, newest: int) -> _Bucket:
    if at // _HOUR == newest // _HOUR:
        return _Bucket(0, at // _MINUTE)
    if at // _DAY == newest // _DAY:
        return _Bucket(1, at // _HOUR)
    if _week(at) == _week(newest):
        return _Bucket(2, at // _DAY)
    return _Bucket(3, _week(at))


def _week(at: int) -> int:
    return (at // _DAY + _EPOCH_DAYS) // 7


def _share(target: float, bucket: _Bucket, boost: float) -> float:
    return min(target * _LEVELS[bucket.level].share * boost, max(_LARGEST_SHARE, target))


def _boost(events: Sequence[WindowEvent], parts: Sequence[tuple[int, int, _Bucket]]) -> float:
    """Return the factor by which all shares grow, because the coarse levels leave room.

    It changes in steps only: between them summaries stay the same when events are appended.
    """
    total, used = 0, 0.0
    for start, end, bucket in parts:
        tokens = sum(event.tokens for event in events[start:end])
        total += tokens
        used += tokens * _LEVELS[bucket.level].share
    return max(total / used // _STEP * _STEP, 1.0) if used else 1.0


def _title(bucket: _Bucket, events: Sequence[WindowEvent]) -> str:
    first, last = (_time(events[at].time) for at in (0, -1))
    if bucket.level == 0:
        return f"{first:%Y-%m-%d %H:%M} to {last:%H:%M}"
    if bucket.level == 1:
        return f"{first:%Y-%m-%d %H}:00 to {first:%H}:59"
    if bucket.level == 2:  # noqa: PLR2004 - days
        return f"{first:%Y-%m-%d}"
    return f"Week from {first - timedelta(days=first.weekday()):%Y-%m-%d}"


def _time(micros: int) -> datetime:
    return datetime.fromtimestamp(micros // 1_000_000, UTC)


def _count(number: int, level: int) -> str:
    return f"{number} by {_LEVELS[level].name}"


# Sliding window: the newest messages in full, the older ones in summaries of equal share.


def sliding_window(source: CompactionSource) -> Layout:
    """Keep the recent messages in full; summarise the others in groups of about the same size."""
    return Layout("sliding_window", f"The newest {source.keep_recent} messages stay in full.", window_groups(source))


def window_groups(source: CompactionSource) -> list[EventGroup]:
    """Return the older events in groups whose borders do not move."""
    units = call_units(source.events)
    return groups_of(source, _segments(source, units), kept_events(source, units))


def _segments(source: CompactionSource, units: CallUnits) -> Iterator[EventRange]:
    start = 0
    for end in segment_ends(source.events, units.ends):
        yield EventRange(start, end, source.target)
        start = end


# Key facts: the older messages as lists of decisions, constraints, requirements and other facts, without prose.


def key_facts(source: CompactionSource) -> Layout:
    """Keep the recent messages in full; replace the others by the facts in them."""
    reason = f"The newest {source.keep_recent} messages stay in full; the others are reduced to their key facts."
    return Layout("key_facts", reason, window_groups(source), facts_only=True)


# Task-scoped: finished tasks are compacted, active ones stay in full.


def task_scoped(source: CompactionSource) -> Layout:
    """Summarise the events of finished tasks, and older events of no task; keep those of active tasks in full."""
    units = call_units(source.events)
    tasks = find_tasks(source.events, units)
    active = {
        at for at, task_id in enumerate(tasks.of_event) if task_id is not None and not tasks.by_id[task_id].is_finished
    }
    kept = units.whole(kept_events(source, units) | active)
    return Layout("task_scoped", _reason(tasks), groups_of(source, _segments_of_tasks(source, units, tasks), kept))


def _segments_of_tasks(source: CompactionSource, units: CallUnits, tasks: Tasks) -> Iterator[EventRange]:
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


# Truncation, the last resort: the newest messages in full, the older ones left out except for their key facts.


def truncation(source: CompactionSource) -> Layout:
    """Keep the recent messages in full; leave the others out."""
    reason = f"The newest {source.keep_recent} messages stay in full; the older ones are left out."
    return Layout("truncation", reason, window_groups(source), facts_only=True)


def truncation_note(events: Sequence[WindowEvent]) -> str:
    """Return what stands for events that were left out."""
    tokens = sum(event.tokens for event in events)
    return f"[{len(events)} events with {tokens:,} tokens left out]"


# Auto: chooses a strategy by what a window holds, and says why in one sentence.

_ONE_DAY = 24 * 3_600 * 1_000_000
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
        days=len({event.time // _ONE_DAY for _, event in older}),
    )


# The strategies by name.

_STRATEGIES: Mapping[StrategyName, Callable[[CompactionSource], Layout]] = {
    "auto": auto,
    "sliding_window": sliding_window,
    "key_facts": key_facts,
    "hierarchical": hierarchical,
    "task_scoped": task_scoped,
}


def lay_out(source: CompactionSource, strategy: StrategyName) -> Layout:
    """Divide a window by a strategy."""
    return _STRATEGIES[strategy](source)
