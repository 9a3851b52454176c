"""Metering: one entry for each assembly, reported model call and score; roll-ups of them by minute, hour and day."""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import add
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, get_args

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence


# Usage entries, their sums, and the keys they are rolled up by.

# ``assembly``: a prompt of an agent, and the model call it was assembled for. ``compaction``: a call of Weftline's own
# language model to compact a window. ``proxy``: a call that an agent made through the model proxy.
CallKind = Literal["assembly", "compaction", "proxy"]
CALL_KINDS: tuple[CallKind, ...] = get_args(CallKind)
# ``call``: the call itself. ``report``: what the provider reported for it, later. ``score``: how much of its prompt was
# useful. ``move``: its figures moved to another model, because the report named another one than the assembly.
EntryKind = Literal["call", "report", "score", "move"]
Unit = Literal["minute", "hour", "day"]
UNITS: tuple[Unit, ...] = get_args(Unit)
UNIT_SECONDS: dict[Unit, int] = {"minute": 60, "hour": 3_600, "day": 86_400}
# In place of names: beyond the number that an interval keeps, and of deleted sessions. No name has parentheses.
OTHER = "(other)"
DELETED = "(deleted)"
NANOS = 1_000_000_000
_DIGITS = 4


class UsageSums(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Figures that add up. All are whole numbers, so that every order of additions gives the same sums.

    ``total_tokens`` and ``cost_nanos`` are the best known: what the provider reported for calls with a report, prompt
    and answer; what was expected of the prompt for the others. A call whose model has no price is one of
    ``unpriced_calls`` and adds no cost. ``input_tokens`` to ``cache_write_tokens`` and ``reported_cost_nanos`` are the
    provider's. ``naive_baseline_tokens`` are those of the conversation alone, ``document_tokens`` those of the whole
    documents with evidence in the prompt. Money is in billionths of a US dollar, durations are in microseconds,
    ``quality`` in millionths.

    ``capacity_tokens`` are those that the windows can hold. ``sent_tokens``, ``useful_tokens`` and ``overhead_tokens``
    (of layers) are those of ``scored_calls``, of which ``estimated_calls`` were scored without an answer.
    """

    calls: int = 0
    failed_calls: int = 0
    reported_calls: int = 0
    unpriced_calls: int = 0
    total_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    naive_baseline_tokens: int = 0
    document_tokens: int = 0
    engine_assembled_tokens: int = 0
    cached_tokens: int = 0
    capacity_tokens: int = 0
    cost_nanos: int = 0
    expected_cost_nanos: int = 0
    naive_cost_nanos: int = 0
    reported_cost_nanos: int = 0
    gather_micros: int = 0
    retrieve_micros: int = 0
    plan_micros: int = 0
    render_micros: int = 0
    timed_calls: int = 0
    provider_micros: int = 0
    graded_calls: int = 0
    quality: int = 0
    scored_calls: int = 0
    estimated_calls: int = 0
    sent_tokens: int = 0
    useful_tokens: int = 0
    overhead_tokens: int = 0

    def plus(self, other: UsageSums) -> UsageSums:
        return UsageSums.of(a + b for a, b in zip(self.values, other.values, strict=True))

    def negated(self) -> UsageSums:
        return UsageSums.of(-value for value in self.values)

    @property
    def values(self) -> tuple[int, ...]:
        return msgspec.structs.astuple(self)

    @staticmethod
    def of(values: Iterable[int]) -> UsageSums:
        return UsageSums(**dict(zip(SUM_NAMES, values, strict=True)))

    @property
    def savings_ratio(self) -> float:
        return savings_ratio(self.naive_baseline_tokens, self.engine_assembled_tokens)

    @property
    def savings_ratio_with_documents(self) -> float:
        return savings_ratio(self.naive_baseline_tokens + self.document_tokens, self.engine_assembled_tokens)

    @property
    def efficiency(self) -> float | None:
        """Return useful over sent tokens, layers counted apart; None if no call was scored."""
        sent = self.sent_tokens - self.overhead_tokens
        return round(self.useful_tokens / sent, _DIGITS) if self.scored_calls and sent > 0 else None


SUM_NAMES: tuple[str, ...] = UsageSums.__struct_fields__


class UsageKey(NamedTuple):
    """Whose usage it is. ``step`` is the step of a task that the caller was in, ``model`` may be empty.

    ``teams`` are those of the agent at the time of the call, sorted.
    """

    kind: CallKind
    agent_id: str
    session_id: str = ""
    step: str = ""
    model: str = ""
    teams: tuple[str, ...] = ()


class NewUsageEntry(NamedTuple):
    """What to add to the sums of the minute, hour and day of ``at``: the time of the call, also for a late report."""

    entry: EntryKind
    call_id: str
    at: int
    key: UsageKey
    sums: UsageSums


class UsageEntry(NamedTuple):
    """An entry as it is stored. Numbers of a tenant ascend in the order of commits."""

    seq: int
    entry: EntryKind
    call_id: str
    at: int
    key: UsageKey
    sums: UsageSums


class MeteredCall(NamedTuple):
    """A call with everything that is known of it: the sums of its entries. ``call_id`` is the id of its receipt."""

    call_id: str
    at: int
    key: UsageKey
    sums: UsageSums


def savings_ratio(baseline: int, sent: int) -> float:
    """Return the part of a baseline that was not sent; negative if more was sent."""
    return round(1 - sent / baseline, _DIGITS) if baseline else 0.0


def nanos(cost: float | None) -> int:
    """Return US dollars as stored; an unknown price adds nothing."""
    return 0 if cost is None else round(cost * NANOS)


def dollars(cost_nanos: int) -> float:
    return cost_nanos / NANOS


def floor_to(unit: Unit, second: int) -> int:
    return second - second % UNIT_SECONDS[unit]


# Covers a span of time with whole days, hours and minutes, as far as roll-ups of them are kept.

_COARSEST_FIRST: tuple[Unit, ...] = ("day", "hour", "minute")


class Interval(NamedTuple):
    """Whole units from ``start`` to ``end`` (seconds, exclusive)."""

    unit: Unit
    start: int
    end: int


class KeptFrom(NamedTuple):
    """The first seconds of which roll-ups are kept; each is the start of a day."""

    minute: int = 0
    hour: int = 0
    day: int = 0


def units_for(by: GroupBy) -> tuple[Unit, ...]:
    """Return the units that a grouping can be made of, coarsest first."""
    return _COARSEST_FIRST[_COARSEST_FIRST.index(by) :] if by in UNIT_SECONDS else _COARSEST_FIRST


def widened(since: int, until: int, kept: KeptFrom, units: tuple[Unit, ...]) -> tuple[int, int]:
    """Return a span in seconds, widened to whole units that are kept; what is not kept at all is cut off."""
    coarsest = units[0]
    since = max(since, getattr(kept, coarsest))
    until = max(since, until)
    return _floor(since, kept, units), -_floor(-until, kept, units, at=until)


def cover(since: int, until: int, units: tuple[Unit, ...]) -> Iterator[Interval]:
    """Yield the intervals of a widened span, with as few units as possible."""
    if since >= until:
        return
    unit, finer = units[0], units[1:]
    if not finer:
        yield Interval(unit, since, until)
        return
    start, end = -floor_to(unit, -since), floor_to(unit, until)
    if start >= end:
        yield from cover(since, until, finer)
        return
    yield from cover(since, start, finer)
    yield Interval(unit, start, end)
    yield from cover(end, until, finer)


def _floor(second: int, kept: KeptFrom, units: tuple[Unit, ...], at: int | None = None) -> int:
    """Return the second rounded down to the finest unit that is kept of the time ``at``."""
    when = second if at is None else at
    finest = next((unit for unit in reversed(units) if getattr(kept, unit) <= when), units[0])
    return floor_to(finest, second)


# What is asked of usage, and what is answered.

GroupBy = Literal["tenant", "team", "agent", "session", "step", "model", "kind", "minute", "hour", "day"]
LATEST = 2**62


class UsageQuery(NamedTuple):
    """What to add up. Times are in microseconds; the interval is widened to whole minutes.

    Where minutes are past retention, it is widened to hours or days. ``agents``: only of these. ``max_clearance``: not
    of agents with a higher clearance; if there are such, nothing of what is summed up as (other) either. ``limit``: how
    many groups, those with the most tokens or the first intervals.
    """

    by: GroupBy = "tenant"
    since: int = 0
    until: int = LATEST
    agents: tuple[str, ...] | None = None
    team: str | None = None
    session_id: str | None = None
    model: str | None = None
    kind: CallKind | None = None
    max_clearance: int | None = None
    limit: int = 1_000


class UsageGroup(NamedTuple):
    """Sums of one group: a name, or the start of an interval in ISO 8601. Empty: calls without one."""

    group: str
    sums: UsageSums


class UsageTotals(NamedTuple):
    """Sums by group, and over all groups; an agent of several teams counts in each, but once in ``total``.

    ``since`` and ``until`` are the interval that was added up; ``left_out``: how many groups are beyond the limit.
    """

    since: int
    until: int
    groups: Sequence[UsageGroup]
    total: UsageSums
    left_out: int = 0


class UsageDetail(NamedTuple):
    """Sums of one key in one interval, which begins at ``start`` (microseconds)."""

    start: int
    key: UsageKey
    sums: UsageSums


class UsagePage(NamedTuple):
    """Details of whole intervals, oldest first; ``next_since`` is where the next page begins, if there is one."""

    details: Sequence[UsageDetail]
    next_since: int | None


class Retention(NamedTuple):
    """How many days roll-ups are kept; None: for ever."""

    minutes: int | None
    hours: int | None
    days: int | None


# Adds entries up by interval and key, and keeps the number of keys of an interval within its limit.

K = TypeVar("K")

_MICROS = 1_000_000
# Keys of an interval with all their names. What decides is the time of a month's report, which reads those of 30 days.
MAX_KEYS: dict[Unit, int] = {"minute": 20, "hour": 100, "day": 500}
# Where its interval is full, a key is folded: without the session, then without everything but the agent and its teams.
# Keys of each level, as part of MAX_KEYS. One agent has at most half of the keys that have more than its name, so that
# it cannot take the names of all others.
_LEVELS = (1.0, 0.5, 2.0)
_SHARED_LEVELS = 2
# Intervals of one roll-up: the keys of each have to be read.
MAX_INTERVALS = 12


class UsageInterval(NamedTuple):
    """One minute, hour or day."""

    unit: Unit
    start: int


class Rollup(NamedTuple):
    """Sums to add: of each interval by key, and over all keys by kind."""

    details: dict[UsageInterval, dict[UsageKey, tuple[int, ...]]]
    totals: dict[tuple[UsageInterval, str], tuple[int, ...]]


def max_rows(unit: Unit) -> int:
    """Return how many keys an interval has at most: those of all levels, and (other) of each kind."""
    return sum(_limit(unit, level) for level in range(len(_LEVELS))) + len(CALL_KINDS)


def within_intervals(entries: Sequence[UsageEntry]) -> Sequence[UsageEntry]:
    """Return the first entries, up to the number of intervals that are rolled up at once; at least one."""
    seen: set[UsageInterval] = set()
    for place, each in enumerate(entries):
        seen.update(_intervals(each))
        if place and len(seen) > MAX_INTERVALS:
            return entries[:place]
    return entries


def roll_up(entries: Iterable[UsageEntry], kept: KeptFrom) -> Rollup:
    """Add entries up; intervals that are past retention are left out."""
    details: defaultdict[UsageInterval, dict[UsageKey, tuple[int, ...]]] = defaultdict(dict)
    totals: dict[tuple[UsageInterval, str], tuple[int, ...]] = {}
    for each in entries:
        values = each.sums.values
        for interval in _intervals(each):
            if interval.start < getattr(kept, interval.unit):
                continue
            add_to(details[interval], each.key, values)
            add_to(totals, (interval, each.key.kind), values)
    return Rollup(dict(details), totals)


def within_limit(
    unit: Unit, known: Collection[UsageKey], sums: dict[UsageKey, tuple[int, ...]]
) -> dict[UsageKey, tuple[int, ...]]:
    """Fold the keys that are beyond the limits of an interval."""
    if len(known) + len(sums) <= MAX_KEYS[unit] // 2:
        return sums
    keys, folded = _Keys(unit, known), dict[UsageKey, tuple[int, ...]]()
    for key, values in sums.items():
        add_to(folded, keys.place(key), values)
    return folded


def add_to(sums: dict[K, tuple[int, ...]], key: K, values: tuple[int, ...]) -> None:
    """Add figures to the sums of a key."""
    known = sums.get(key)
    sums[key] = values if known is None else tuple(map(add, known, values))


class _Keys:
    """The keys of an interval, counted by level, and by level and agent."""

    def __init__(self, unit: Unit, known: Collection[UsageKey]) -> None:
        self._unit: Unit = unit
        self._stored = set(known)
        self._counts = Counter(_level(key) for key in known)
        self._by_agent = Counter((_level(key), key.agent_id) for key in known)

    def place(self, key: UsageKey) -> UsageKey:
        """Return the key itself, or the first that it is folded into and that has room."""
        for level, each in enumerate(_folded(key)):
            if each in self._stored:
                return each
            if self._has_room(level, key.agent_id):
                self._stored.add(each)
                self._counts[level] += 1
                self._by_agent[level, key.agent_id] += 1
                return each
        return UsageKey(key.kind, OTHER, OTHER, OTHER, OTHER, (OTHER,))

    def _has_room(self, level: int, agent_id: str) -> bool:
        limit = _limit(self._unit, level)
        share = limit // 2 if level < _SHARED_LEVELS else limit
        return self._counts[level] < limit and self._by_agent[level, agent_id] < share


def _intervals(entry: UsageEntry) -> Iterator[UsageInterval]:
    second = entry.at // _MICROS
    return (UsageInterval(unit, floor_to(unit, second)) for unit in UNITS)


def _limit(unit: Unit, level: int) -> int:
    return int(MAX_KEYS[unit] * _LEVELS[level])


def _folded(key: UsageKey) -> tuple[UsageKey, ...]:
    return key, key._replace(session_id=OTHER), key._replace(session_id=OTHER, step=OTHER, model=OTHER)


def _level(key: UsageKey) -> int:
    """Return how far a stored key is folded. Agents and sessions cannot be named (other), steps and models may be."""
    if key.agent_id == OTHER:
        return len(_LEVELS)
    if key.session_id != OTHER:
        return 0
    return 2 if key.step == key.model == OTHER else 1
