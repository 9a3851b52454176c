"""The storage port of metering.

How to read sums: ``totals`` adds up whole intervals from the roll-ups and the entries that are not rolled up yet, in
one snapshot, so that its sums are exact at any time. A budget of this month is one call::

    await usage.totals(UsageQuery(by="tenant", since=start_of_month, agents=("writer",)))

How to follow new calls: keep the ``seq`` of the last entry you have seen as your cursor, and commit it in one
transaction with what you made of the entries. Nothing is skipped: numbers are taken under a lock that is held until
commit, so who has seen an entry has seen all before it::

    entries = await usage.after(cursor, 500)
    calls = await usage.calls(entries)        # each call with all that is known of it, its report and score too
    cursor = entries[-1].seq if entries else cursor

Entries are kept for two days after they were rolled up. What is older is in the roll-ups and, by call, in receipts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.models.metering.model import (
        CallKind,
        MeteredCall,
        NewUsageEntry,
        Unit,
        UsageEntry,
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


class UsageStore(Protocol):
    """Usage of the transaction's tenant."""

    async def add(self, *entries: NewUsageEntry) -> None:
        """Add entries. Call it last in a transaction, after events were published: it locks the tenant's numbers."""
        ...

    async def after(self, seq: int, limit: int) -> Sequence[UsageEntry]:
        """Return the entries after a number, oldest first."""
        ...

    async def last_seq(self) -> int: ...

    async def calls(self, entries: Iterable[UsageEntry]) -> Mapping[str, MeteredCall]:
        """Return the calls that entries belong to, by id."""
        ...

    async def totals(self, query: UsageQuery) -> UsageTotals: ...

    async def details(self, query: UsageQuery, unit: Unit, limit: int) -> UsagePage:
        """Return the sums by key of the intervals of a query; ``by`` plays no part. A page has about ``limit`` rows."""
        ...

    async def roll_up(self, limit: int) -> Sequence[UsageEntry]:
        """Add the next entries to the roll-ups, move the cursor past them, and return them.

        Fewer than ``limit`` where they are of many intervals: each costs the reading of its keys.
        """
        ...

    async def prune(self, now: int, retention: Retention, limit: int) -> bool:
        """Delete some of what is past retention; return whether there may be more."""
        ...

    async def forget_session(self, session_id: str, limit: int) -> bool:
        """Remove the name of a deleted session from some of its sums, which stay; return whether more may have it."""
        ...
