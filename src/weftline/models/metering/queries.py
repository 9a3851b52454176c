"""What is asked of usage, and what is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.models.metering.model import (
        CallKind,
        UsageKey,
        UsageSums,
    )

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
