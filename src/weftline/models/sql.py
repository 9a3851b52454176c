"""Usage, budgets and learned factors of token estimates in SQL."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import structs

from weftline.kernel.clock import Clock, from_micros, to_micros
from weftline.kernel.transaction import SqlStore, batches, placeholders
from weftline.models.budgets import AGENT, TEAM, TENANT, Budget, BudgetUse, Spend, period_start
from weftline.models.metering import (
    DELETED,
    OTHER,
    SUM_NAMES,
    UNIT_SECONDS,
    UNITS,
    KeptFrom,
    MeteredCall,
    UsageDetail,
    UsageEntry,
    UsageGroup,
    UsageInterval,
    UsageKey,
    UsagePage,
    UsageSums,
    UsageTotals,
    add_to,
    cover,
    floor_to,
    max_rows,
    roll_up,
    units_for,
    widened,
    within_intervals,
    within_limit,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.kernel.transaction import Row, Transaction, Value
    from weftline.models.budgets import BudgetName, Charge
    from weftline.models.metering import Interval, NewUsageEntry, Retention, Unit, UsageQuery


# Budgets and what was spent of them, in SQL.

_SPENT_SUMS = "tokens, nanodollars, calls, unpriced_calls, near_at, exceeded_at"
_BUDGET_COLUMNS = len(Budget.__struct_fields__)


def _use_sql(day: str, month: str) -> str:
    """Return the query of budgets with their sums since the start of the day or month."""
    return f"""
    SELECT b.subject, b.period, b.tokens, b.nanodollars, b.at_limit, b.warn_at, b.set_by, b.set_at,
           b.tree_share, b.agent_share, '', s.tokens, s.nanodollars, s.calls, s.unpriced_calls, s.near_at, s.exceeded_at
    FROM budgets b LEFT JOIN budget_spend s ON s.tenant = $1 AND s.subject = b.subject AND s.period = b.period
      AND s.starts_at = CASE b.period WHEN 'day' THEN CAST({day} AS {{bigint}}) ELSE CAST({month} AS {{bigint}}) END
    WHERE b.tenant = $1
    """  # noqa: S608 - parameters


_USE = _use_sql("$2", "$3")
_PAGE = f"{_USE} AND (b.subject, b.period) > ($4, $5) ORDER BY b.subject, b.period LIMIT $6"


def _above_sql(condition: str) -> str:
    """Return the common table of the principals of a condition with all that are above them."""
    return f"""
    WITH RECURSIVE above (principal_id, parent_id) AS (
        SELECT principal_id, parent_id FROM principals WHERE tenant = $1 AND {condition}
        UNION
        SELECT p.principal_id, p.parent_id FROM above CROSS JOIN principals p
        WHERE p.tenant = $1 AND p.principal_id = above.parent_id)
    """  # noqa: S608 - our own conditions


# What calls of these principals count for, besides the tenant.
_SUBJECTS = f"""
SELECT '{AGENT}' || principal_id FROM above
UNION ALL SELECT '{TEAM}' || m.team FROM above CROSS JOIN team_members m
          WHERE m.tenant = $1 AND m.principal_id = above.principal_id
"""  # noqa: S608 - constants
_BINDING = f"""
{_above_sql("principal_id = $2")} {_use_sql("$3", "$4")}
AND b.subject IN (SELECT '{TENANT}' UNION ALL {_SUBJECTS})
ORDER BY b.subject, b.period
"""
_SUBJECTS_ABOVE = f"{_above_sql('clearance > $2')} {_SUBJECTS}"
_BELOW = """
WITH RECURSIVE below (principal_id) AS (
    SELECT principal_id FROM {first} WHERE tenant = $1 AND {column} = $2
    UNION
    SELECT p.principal_id FROM below CROSS JOIN principals p WHERE p.tenant = $1 AND p.parent_id = below.principal_id)
SELECT principal_id FROM below
"""
_COVERED = {
    AGENT: _BELOW.format(first="principals", column="principal_id"),
    TEAM: _BELOW.format(first="team_members", column="team"),
}
_PARENTS = "SELECT principal_id, parent_id FROM principals WHERE tenant = $1 AND kind = 'agent'"
_PARENTS_ABOVE = f"""
{_above_sql("principal_id = $2")} {_PARENTS} AND principal_id IN (SELECT principal_id FROM above)
"""  # noqa: S608 - constants
_SET = """
INSERT INTO budgets (tenant, subject, period, tokens, nanodollars, at_limit, warn_at, set_by, set_at, tree_share,
                     agent_share)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (tenant, subject, period) DO UPDATE SET tokens = excluded.tokens, nanodollars = excluded.nanodollars,
    at_limit = excluded.at_limit, warn_at = excluded.warn_at, set_by = excluded.set_by, set_at = excluded.set_at,
    tree_share = excluded.tree_share, agent_share = excluded.agent_share
"""
_TABLES = ("budget_spend", "budget_share_spend")
_OF_BUDGET = "WHERE tenant = $1 AND subject = $2 AND period = $3"
# Here and below: of a budget, and of a share in it, which is named by one more value.
_CHARGE, _SHARE_CHARGE = (
    f"""
    INSERT INTO {table} (tenant, subject, period, starts_at, tokens, nanodollars, calls, unpriced_calls{share})
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8{value})
    ON CONFLICT (tenant, subject, period, starts_at{share}) DO UPDATE SET tokens = {table}.tokens + excluded.tokens,
        nanodollars = {table}.nanodollars + excluded.nanodollars, calls = {table}.calls + excluded.calls,
        unpriced_calls = {table}.unpriced_calls + excluded.unpriced_calls
    RETURNING {_SPENT_SUMS}
    """  # noqa: S608 - constants
    for table, share, value in zip(_TABLES, ("", ", share"), ("", ", $9"), strict=True)
)
_CORRECT, _SHARE_CORRECT = (
    f"""
    UPDATE {table} SET tokens = tokens + $1, nanodollars = nanodollars + $2, calls = calls + $3,
        unpriced_calls = unpriced_calls + $4
    WHERE tenant = $5 AND subject = $6 AND period = $7 AND starts_at = $8{share} RETURNING {_SPENT_SUMS}
    """  # noqa: S608 - constants
    for table, share in zip(_TABLES, ("", " AND share = $9"), strict=True)
)
_MARK, _SHARE_MARK = (
    f"UPDATE {table} SET near_at = $1, exceeded_at = $2 "  # noqa: S608 - constants
    f"WHERE tenant = $3 AND subject = $4 AND period = $5 AND starts_at = $6{share}"
    for table, share in zip(_TABLES, ("", " AND share = $7"), strict=True)
)
_SHARE_SPEND = f"SELECT {_SPENT_SUMS} FROM budget_share_spend {_OF_BUDGET} AND starts_at = $4 AND share = $5"  # noqa: S608
_SHARES = f"""
SELECT share, {_SPENT_SUMS} FROM budget_share_spend {_OF_BUDGET} AND starts_at = $4
ORDER BY tokens DESC, nanodollars DESC, share LIMIT $5
"""  # noqa: S608 - constants
_FORGET_SHARES = f"DELETE FROM budget_share_spend {_OF_BUDGET} AND substr(share, 1, $4) = $5"  # noqa: S608 - constants


class BudgetStore(SqlStore):
    """Budgets of the transaction's tenant, and what was spent of them."""

    async def set(self, budget: Budget) -> None:
        """Store a budget in place of an earlier one; what was spent stays, and its limits are told of again."""
        await self._tx.run(
            _SET,
            self._tenant,
            budget.subject,
            budget.period,
            budget.tokens,
            budget.nanodollars,
            budget.at_limit,
            budget.warn_at,
            budget.set_by,
            budget.set_at,
            budget.tree_share,
            budget.agent_share,
        )
        for table in _TABLES:
            # New limits are told of again.
            forget = f"UPDATE {table} SET near_at = NULL, exceeded_at = NULL {_OF_BUDGET}"  # noqa: S608 - constants
            await self._tx.run(forget, self._tenant, budget.subject, budget.period)

    async def delete(self, name: BudgetName) -> bool:
        """Delete a budget with what was spent of it; False if there is none."""
        values = self._tenant, name.subject, name.period
        for table in _TABLES:
            await self._tx.run(f"DELETE FROM {table} {_OF_BUDGET}", *values)  # noqa: S608 - constants
        return await self._tx.changed(f"DELETE FROM budgets {_OF_BUDGET}", *values) > 0  # noqa: S608 - constants

    async def find(self, name: BudgetName, at: int) -> BudgetUse | None:
        """Return a budget with the period that a time is in."""
        row = await self._tx.one(
            f"{_USE} AND b.subject = $4 AND b.period = $5", self._tenant, *_starts(at), name.subject, name.period
        )
        return None if row is None else _use(row, at)

    async def page(self, at: int, after: BudgetName | None, limit: int) -> Sequence[BudgetUse]:
        """Return budgets by subject and period, after one."""
        last = ("", "") if after is None else (after.subject, after.period)
        return [_use(row, at) for row in await self._tx.all(_PAGE, self._tenant, *_starts(at), *last, limit)]

    async def binding(self, agent_id: str, at: int) -> Sequence[BudgetUse]:
        """Return the budgets that calls of an agent count for.

        Those are the tenant's, its own, those of the principals above it, and those of its teams and theirs.
        """
        return [_use(row, at) for row in await self._tx.all(_BINDING, self._tenant, agent_id, *_starts(at))]

    async def covered(self, subject: str) -> Sequence[str]:
        """Return the agents whose calls count for a team or an agent."""
        kind, _, name = subject.partition(":")
        rows = await self._tx.all(_COVERED[f"{kind}:"], self._tenant, name)
        return sorted(row[0] for row in rows)

    async def parents(self, agent_id: str | None) -> Mapping[str, str | None]:
        """Return the parents of an agent and of the agents above it; None: of all agents."""
        if agent_id is None:
            return dict(map(tuple, await self._tx.all(_PARENTS, self._tenant)))
        return dict(map(tuple, await self._tx.all(_PARENTS_ABOVE, self._tenant, agent_id)))

    async def spend(self, name: BudgetName, starts_at: int) -> Spend:
        """Return what was spent of a share in a period."""
        row = await self._tx.one(_SHARE_SPEND, self._tenant, name.subject, name.period, starts_at, name.share)
        return Spend() if row is None else _spend(row)

    async def shares(self, name: BudgetName, starts_at: int, limit: int) -> Mapping[str, Spend]:
        """Return what trees and agents spent of a budget with shares, those with the most first."""
        rows = await self._tx.all(_SHARES, self._tenant, name.subject, name.period, starts_at, limit)
        return {share: _spend(sums) for share, *sums in rows}

    async def forget_shares(self, name: BudgetName, kind: str) -> None:
        """Delete what all trees, or all agents, spent of a budget."""
        await self._tx.run(_FORGET_SHARES, self._tenant, name.subject, name.period, len(kind), kind)

    async def subjects_above(self, clearance: int) -> Sequence[str]:
        """Return the subjects that calls of agents with a higher clearance count for."""
        rows = await self._tx.all(_SUBJECTS_ABOVE, self._tenant, clearance)
        return [TENANT, *sorted({row[0] for row in rows})] if rows else []

    async def charge(self, name: BudgetName, starts_at: int, charge: Charge) -> Spend:
        """Add a call and return the new sums, locked until the transaction ends."""
        sql = _SHARE_CHARGE if name.share else _CHARGE
        row = await self._tx.one(sql, self._tenant, name.subject, name.period, starts_at, *charge, *_share(name))
        assert row is not None  # noqa: S101 - an upsert returns its row
        return _spend(row)

    async def correct(self, name: BudgetName, starts_at: int, charge: Charge) -> Spend | None:
        """Change the sums of a period and return them, locked likewise; None if they were deleted."""
        sql = _SHARE_CORRECT if name.share else _CORRECT
        row = await self._tx.one(sql, *charge, self._tenant, name.subject, name.period, starts_at, *_share(name))
        return None if row is None else _spend(row)

    async def mark(self, use: BudgetUse) -> None:
        """Store when admins were told of the limits of a period."""
        await self._tx.run(
            _SHARE_MARK if use.budget.share else _MARK,
            use.spend.near_at,
            use.spend.exceeded_at,
            self._tenant,
            use.budget.subject,
            use.budget.period,
            use.starts_at,
            *_share(use.budget.name),
        )

    async def prune(self, name: BudgetName, before: int) -> None:
        """Delete the sums of periods that began before a time."""
        for table in _TABLES:
            prune = f"DELETE FROM {table} {_OF_BUDGET} AND starts_at < $4"  # noqa: S608 - constants
            await self._tx.run(prune, self._tenant, name.subject, name.period, before)


def _share(name: BudgetName) -> tuple[str, ...]:
    """Return the value that names a share; none for a budget itself."""
    return (name.share,) if name.share else ()


def _starts(at: int) -> tuple[int, int]:
    """Return the starts of the day and the month that a time is in."""
    return period_start("day", at), period_start("month", at)


def _use(row: Row, at: int) -> BudgetUse:
    fields = tuple(row)
    budget = Budget(**dict(zip(Budget.__struct_fields__, fields[:_BUDGET_COLUMNS], strict=True)))
    sums = fields[_BUDGET_COLUMNS:]
    # Without a row nothing was spent yet.
    spend = Spend() if sums[0] is None else _spend(sums)
    return BudgetUse(budget, spend, period_start(budget.period, at))


def _spend(row: Row) -> Spend:
    return Spend(**dict(zip(Spend.__struct_fields__, tuple(row), strict=True)))


# Usage entries and their roll-ups in SQL.
#
# How to read sums: ``totals`` adds up whole intervals from the roll-ups and the entries that are not rolled up yet, in
# one snapshot, so that its sums are exact at any time. A budget of this month is one such call.
#
# How to follow new calls: keep the ``seq`` of the last entry you have seen as your cursor, and commit it in one
# transaction with what you made of the entries. Nothing is skipped: numbers are taken under a lock that is held until
# commit, so who has seen an entry has seen all before it::
#
# entries = await usage.after(cursor, 500) calls = await usage.calls(entries) # each call with all that is known of it,
# its report and score too cursor = entries[-1].seq if entries else cursor
#
# Entries are kept for two days after they were rolled up. What is older is in the roll-ups and, by call, in receipts.

_MICROS = 1_000_000
_DAY = UNIT_SECONDS["day"]
FORGET_BATCH_SIZE = 500
_UNLIMITED = 2**31
# Days that entries are kept for those who follow them.
_ENTRY_DAYS = 2
_KEY = ("kind", "agent_id", "session_id", "step", "model", "teams")
_SUMS = ", ".join(SUM_NAMES)
_ADDED_UP = ", ".join(f"SUM({name})" for name in SUM_NAMES)
_NAMED_SUMS = ", ".join(f"SUM({name}) AS {name}" for name in SUM_NAMES)
_TAKE_NUMBERS = "UPDATE tenants SET usage_seq = usage_seq + $1 WHERE tenant = $2"
# The number is read back by the insert itself. $2 is the number of entries that follow.
_ENTRY_VALUES = ", ".join(
    f"CAST(${place} AS {kind})"
    for place, kind in enumerate(["TEXT", "TEXT", "{bigint}", *["TEXT"] * len(_KEY), *["{bigint}"] * len(SUM_NAMES)], 3)
)
_ADD = f"""
INSERT INTO usage_entries (tenant, seq, entry, call_id, at, {", ".join(_KEY)}, {_SUMS})
SELECT CAST($1 AS TEXT), usage_seq - CAST($2 AS {{bigint}}), {_ENTRY_VALUES} FROM tenants WHERE tenant = $1
"""  # noqa: S608 - our own SQL
_ENTRIES = f"SELECT seq, entry, call_id, at, {', '.join(_KEY)}, {_SUMS} FROM usage_entries WHERE tenant = $1 "  # noqa: S608 - likewise
_AFTER = _ENTRIES + "AND seq > $2 ORDER BY seq LIMIT $3"
_OF_CALLS = _ENTRIES + f"AND session_id = $2 AND call_id IN ({placeholders(3)}) ORDER BY seq"
_CURSOR = "SELECT rolled_up_to, minutes_from, hours_from, days_from FROM usage_cursors WHERE tenant = $1 "
_ADD_CURSOR = "INSERT INTO usage_cursors VALUES ($1, 0, 0, 0, 0, 0) ON CONFLICT DO NOTHING"


def _adding(table: str, key: Sequence[str]) -> str:
    """Return the statement that adds sums to a row, and creates it if it is not there."""
    values = ", ".join(f"${place}" for place in range(1, len(key) + len(SUM_NAMES) + 1))
    added = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in SUM_NAMES)
    return (
        f"INSERT INTO {table} ({', '.join(key)}, {_SUMS}) VALUES ({values}) "  # noqa: S608 - likewise
        f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {added}"
    )


_INTERVAL = ("tenant", "unit", "start")
_ADD_ROLLUP = _adding("usage_rollups", (*_INTERVAL, *_KEY))
_ADD_TOTAL = _adding("usage_totals", (*_INTERVAL, "kind"))
# The keys of all intervals of a roll-up: those of each unit are a JSON array of starts.
_KEYS = " UNION ALL ".join(
    f"SELECT unit, start, {', '.join(_KEY)} FROM usage_rollups "  # noqa: S608 - likewise
    f"WHERE tenant = $1 AND unit = '{unit}' AND start {{among}}${place}{{end_among}}"
    for place, unit in enumerate(UNITS, 2)
)
# Sums of a deleted session are added to those of all deleted ones.
_NAMELESS_KEY = "unit, start, agent_id, step, model, teams, kind"
_OF_SESSION = f"""
SELECT {_NAMELESS_KEY} FROM usage_rollups WHERE tenant = $1 AND session_id = $2 ORDER BY {_NAMELESS_KEY} LIMIT $3
"""  # noqa: S608 - likewise
_MERGE_SESSION = f"""
INSERT INTO usage_rollups (tenant, {_NAMELESS_KEY}, session_id, {_SUMS})
SELECT tenant, {_NAMELESS_KEY}, '{DELETED}', {_SUMS} FROM usage_rollups
WHERE tenant = $1 AND session_id = $2 AND ({_NAMELESS_KEY}) IN ({_OF_SESSION})
ON CONFLICT (tenant, unit, start, agent_id, session_id, step, model, teams, kind) DO UPDATE SET
    {", ".join(f"{name} = usage_rollups.{name} + excluded.{name}" for name in SUM_NAMES)}
"""  # noqa: S608 - likewise
_DELETE_SESSION = f"""
DELETE FROM usage_rollups WHERE tenant = $1 AND session_id = $2 AND ({_NAMELESS_KEY}) IN ({_OF_SESSION})
"""  # noqa: S608 - likewise
_RENAME_SESSION = f"""
UPDATE usage_entries SET session_id = '{DELETED}' WHERE tenant = $1 AND seq IN (
    SELECT seq FROM usage_entries WHERE tenant = $1 AND session_id = $2 LIMIT $3)
"""  # noqa: S608 - likewise
# Columns of the groupings by name.
_COLUMNS = {
    "tenant": "''",
    "team": "teams",
    "agent": "agent_id",
    "session": "session_id",
    "step": "step",
    "model": "model",
    "kind": "kind",
}
_ROLLUPS, _TOTALS = "usage_rollups", "usage_totals"
# Groupings and filters that need no names, so that totals answer them.
_NAMELESS = frozenset({"tenant", "kind", *UNIT_SECONDS})
# Groupings by names that callers choose.
_MANY_NAMES = frozenset({"agent", "session", "step", "model"})
_UP_TO_CLEARANCE = f"""
agent_id <> '{OTHER}' AND agent_id NOT IN (
    SELECT p.principal_id FROM principals p WHERE p.tenant = $1 AND p.clearance > ${{place}})
"""  # noqa: S608 - a constant
# SQLite stores roll-ups in the order of these columns, and adds up without sorting; PostgreSQL does not sort.
_IN_ORDER = {
    "model": "{sqlite_only}start, {end_sqlite_only}model",
    "step": "{sqlite_only}start, model, {end_sqlite_only}step",
}
_encode = msgspec.json.Encoder().encode


class _Cursor(NamedTuple):
    """How far entries are rolled up, and from when on roll-ups are kept."""

    rolled_up_to: int = 0
    kept: KeptFrom = KeptFrom()


class UsageStore(SqlStore):
    """Usage of the transaction's tenant."""

    async def add(self, *entries: NewUsageEntry) -> None:
        """Add entries. Call it last in a transaction, after events were published: it locks the tenant's numbers."""
        if not entries:
            return
        # As for events: the lock on the counter makes entries visible in the order of their numbers.
        await self._tx.run(_TAKE_NUMBERS, len(entries), self._tenant)
        rows: list[tuple[Value, ...]] = [
            (self._tenant, following, each.entry, each.call_id, each.at, *_key_columns(each.key), *each.sums.values)
            for each, following in zip(entries, reversed(range(len(entries))), strict=True)
        ]
        await self._tx.many(_ADD, rows)

    async def after(self, seq: int, limit: int) -> Sequence[UsageEntry]:
        """Return the entries after a number, oldest first."""
        return [_entry(row) for row in await self._tx.all(_AFTER, self._tenant, seq, limit)]

    async def last_seq(self) -> int:
        row = await self._tx.one("SELECT usage_seq FROM tenants WHERE tenant = $1", self._tenant)
        return 0 if row is None else int(row[0])

    async def calls(self, entries: Iterable[UsageEntry]) -> Mapping[str, MeteredCall]:
        """Return the calls that entries belong to, by id."""
        by_session: dict[str, dict[str, None]] = {}
        for each in entries:
            by_session.setdefault(each.key.session_id, {})[each.call_id] = None
        found: dict[str, MeteredCall] = {}
        for session_id, ids in by_session.items():
            for batch in batches(list(ids)):
                for each in map(_entry, await self._tx.all(_OF_CALLS, self._tenant, session_id, *batch)):
                    found[each.call_id] = _with_entry(found.get(each.call_id), each)
        return found

    async def totals(self, query: UsageQuery) -> UsageTotals:
        query, cursor = await self._up_to_clearance(query), await self._cursor()
        units = units_for(query.by)
        since, until = widened(query.since // _MICROS, -(-query.until // _MICROS), cursor.kept, units)
        sums = _SumsQuery(query, self._tenant)
        for interval in cover(since, until, units):
            sums.add_interval(interval)
        sums.add_tail(cursor.rolled_up_to, since, until)
        return _totals(query, (since, until), await self._tx.all(sums.text, *sums.values))

    async def details(self, query: UsageQuery, unit: Unit, limit: int) -> UsagePage:
        """Return the sums by key of the intervals of a query; ``by`` plays no part. A page has about ``limit`` rows."""
        query, cursor = await self._up_to_clearance(query), await self._cursor()
        since, until = widened(query.since // _MICROS, -(-query.until // _MICROS), cursor.kept, (unit,))
        where, values = _filters(query, 5)
        rows = await self._tx.all(
            f"SELECT start, {', '.join(_KEY)}, {_SUMS} FROM usage_rollups WHERE tenant = $1 AND unit = $2 "  # noqa: S608 - our own columns
            f"AND start >= $3 AND start < $4 {where} ORDER BY start LIMIT {limit + 2 * max_rows(unit)}",
            self._tenant,
            unit,
            since,
            until,
            *values,
        )
        # A page ends with an interval. What is beyond it was read to know that it is complete; intervals of earlier
        # versions have more rows.
        cut = rows[limit][0] if len(rows) > limit else None
        end = (
            until
            if cut is None
            else min((start for start, *_ in rows if start > cut), default=cut + UNIT_SECONDS[unit])
        )
        sums: dict[tuple[int, UsageKey], tuple[int, ...]] = {}
        for start, *rest in rows:
            if start < end:
                add_to(sums, (start, _key(rest[: len(_KEY)])), tuple(rest[len(_KEY) :]))
        await self._add_tail_details(query, unit, cursor.rolled_up_to, (since, end), sums)
        details = [
            UsageDetail(start * _MICROS, key, UsageSums.of(added)) for (start, key), added in sorted(sums.items())
        ]
        return UsagePage(details, None if end >= until else end * _MICROS)

    async def roll_up(self, limit: int) -> Sequence[UsageEntry]:
        """Add the next entries to the roll-ups, move the cursor past them, and return them.

        Fewer than ``limit`` where they are of many intervals: each costs the reading of its keys.
        """
        await self._tx.run(_ADD_CURSOR, self._tenant)
        cursor = await self._cursor("{for_update}")
        entries = within_intervals(await self.after(cursor.rolled_up_to, limit))
        if not entries:
            return []
        rollup = roll_up(entries, cursor.kept)
        await self._add_details(rollup.details)
        await self._tx.many(
            _ADD_TOTAL,
            [(self._tenant, *interval, kind, *values) for (interval, kind), values in sorted(rollup.totals.items())],
        )
        await self._tx.run(
            "UPDATE usage_cursors SET rolled_up_to = $1 WHERE tenant = $2", entries[-1].seq, self._tenant
        )
        return entries

    async def prune(self, now: int, retention: Retention, limit: int) -> bool:
        """Delete some of what is past retention; return whether there may be more."""
        await self._tx.run(_ADD_CURSOR, self._tenant)
        cursor = await self._cursor("{for_update}")
        today = floor_to("day", now // _MICROS)
        days = zip(cursor.kept, retention, strict=True)
        kept = KeptFrom(*(from_ if keep is None else max(from_, today - keep * _DAY) for from_, keep in days))
        await self._tx.run(
            "UPDATE usage_cursors SET minutes_from = $1, hours_from = $2, days_from = $3 WHERE tenant = $4",
            *kept,
            self._tenant,
        )
        deleted = [
            await self._prune_entries(cursor.rolled_up_to, now - _ENTRY_DAYS * _DAY * _MICROS, limit),
            *[
                await self._prune_unit(table, unit, start, limit)
                for unit, start in zip(KeptFrom._fields, kept, strict=True)
                for table in (_ROLLUPS, _TOTALS)
            ],
        ]
        more = limit in deleted
        if not more:
            await self._tx.run("UPDATE usage_cursors SET pruned_at = $1 WHERE tenant = $2", today, self._tenant)
        return more

    async def forget_session(self, session_id: str, limit: int) -> bool:
        """Remove the name of a deleted session from some of its sums, which stay; return whether more may have it."""
        await self._tx.run(_ADD_CURSOR, self._tenant)
        # Nothing is rolled up meanwhile.
        await self._cursor("{for_update}")
        await self._tx.run(_MERGE_SESSION, self._tenant, session_id, limit)
        changed = [
            await self._tx.changed(statement, self._tenant, session_id, limit)
            for statement in (_DELETE_SESSION, _RENAME_SESSION)
        ]
        return limit in changed

    async def _cursor(self, lock: str = "") -> _Cursor:
        row = await self._tx.one(_CURSOR + lock, self._tenant)
        return _Cursor() if row is None else _Cursor(row[0], KeptFrom(*row[1:]))

    async def _up_to_clearance(self, query: UsageQuery) -> UsageQuery:
        """Return the query without its limit of clearance if no agent is above it."""
        if query.max_clearance is None:
            return query
        above = await self._tx.one(
            "SELECT 1 FROM principals WHERE tenant = $1 AND clearance > $2 LIMIT 1", self._tenant, query.max_clearance
        )
        return query._replace(max_clearance=None) if above is None else query

    async def _add_tail_details(
        self,
        query: UsageQuery,
        unit: Unit,
        seq: int,
        span: tuple[int, int],
        sums: dict[tuple[int, UsageKey], tuple[int, ...]],
    ) -> None:
        where, values = _filters(query, 5)
        second = f"at / {_MICROS}"
        rows = await self._tx.all(
            f"SELECT {second} - ({second}) % {UNIT_SECONDS[unit]} AS start, {', '.join(_KEY)}, {_ADDED_UP} "  # noqa: S608 - our own columns
            f"FROM usage_entries WHERE tenant = $1 AND seq > $2 AND at >= $3 AND at < $4 {where} "
            f"GROUP BY start, {', '.join(_KEY)}",
            self._tenant,
            seq,
            span[0] * _MICROS,
            span[1] * _MICROS,
            *values,
        )
        for start, *rest in rows:
            add_to(sums, (int(start), _key(rest[: len(_KEY)])), tuple(map(int, rest[len(_KEY) :])))

    async def _add_details(self, details: dict[UsageInterval, dict[UsageKey, tuple[int, ...]]]) -> None:
        known = await self._keys(details)
        rows: list[tuple[Value, ...]] = [
            (self._tenant, *interval, *_key_columns(key), *values)
            for interval, sums in sorted(details.items())
            for key, values in sorted(within_limit(interval.unit, known[interval], sums).items())
        ]
        await self._tx.many(_ADD_ROLLUP, rows)

    async def _keys(self, intervals: Iterable[UsageInterval]) -> Mapping[UsageInterval, Sequence[UsageKey]]:
        """Return the stored keys of intervals, in one query."""
        known: dict[UsageInterval, list[UsageKey]] = {interval: [] for interval in intervals}
        starts = {unit: [each.start for each in known if each.unit == unit] for unit in UNITS}
        rows = await self._tx.all(_KEYS, self._tenant, *(_encode(each).decode() for each in starts.values()))
        for unit, start, *columns in rows:
            known[UsageInterval(unit, start)].append(_key(columns))
        return known

    async def _prune_entries(self, rolled_up_to: int, before: int, limit: int) -> int:
        oldest = await self._tx.all(
            "SELECT seq, at FROM usage_entries WHERE tenant = $1 AND seq <= $2 ORDER BY seq LIMIT $3",
            self._tenant,
            rolled_up_to,
            limit,
        )
        old = [seq for seq, at in takewhile(lambda row: row[1] < before, oldest)]
        if not old:
            return 0
        return await self._tx.changed(
            "DELETE FROM usage_entries WHERE tenant = $1 AND seq <= $2", self._tenant, old[-1]
        )

    async def _prune_unit(self, table: str, unit: str, start: int, limit: int) -> int:
        columns = "start, kind" if table == _TOTALS else "start, agent_id, session_id, step, model, teams, kind"
        return await self._tx.changed(
            f"DELETE FROM {table} WHERE tenant = $1 AND unit = $2 AND ({columns}) IN ("  # noqa: S608 - our own names
            f"SELECT {columns} FROM {table} WHERE tenant = $1 AND unit = $2 AND start < $3 ORDER BY start LIMIT $4)",
            self._tenant,
            unit,
            start,
            limit,
        )


async def tenants_to_roll_up(transaction: Transaction) -> list[str]:
    """Return the tenants with entries that are not rolled up."""
    rows = await transaction.all(
        "SELECT t.tenant FROM tenants t LEFT JOIN usage_cursors c ON c.tenant = t.tenant "
        "WHERE t.usage_seq > COALESCE(c.rolled_up_to, 0) ORDER BY t.tenant"
    )
    return [row[0] for row in rows]


async def tenants_to_prune_usage(transaction: Transaction, now: int) -> list[str]:
    """Return the tenants whose roll-ups were not pruned today."""
    rows = await transaction.all(
        "SELECT tenant FROM usage_cursors WHERE pruned_at < $1 ORDER BY tenant", floor_to("day", now // _MICROS)
    )
    return [row[0] for row in rows]


def _filters(query: UsageQuery, first: int) -> tuple[str, list[Value]]:
    """Return the conditions of a query, and their values from ``$first`` on."""
    columns = {"session_id": query.session_id, "model": query.model, "kind": query.kind}
    given: list[tuple[str, Value]] = [
        (f"{column} = ${{place}}", value) for column, value in columns.items() if value is not None
    ]
    if query.team is not None:
        given.append(("REPLACE(teams, ${place}, '') <> teams", f",{query.team},"))
    if query.agents is not None:
        given.append(("agent_id {{among_texts}}${place}{{end_among_texts}}", _encode(query.agents).decode()))
    if query.max_clearance is not None:
        given.append((_UP_TO_CLEARANCE, query.max_clearance))
    parts = [condition.format(place=place) for place, (condition, _) in enumerate(given, first)]
    return "".join(f" AND {part}" for part in parts), [value for _, value in given]


class _Source(NamedTuple):
    """A table to add up, and which rows of it. ``second`` is their time."""

    table: str
    second: str
    condition: str

    def select(self, columns: str, *, more: str = "") -> str:
        return f"SELECT {columns} FROM {self.table} WHERE {self.condition}{more}"  # noqa: S608 - our own columns


class _SumsQuery:
    """The statement that adds up whole intervals and the entries that are not rolled up, by group.

    It returns a row with the number and the sums of all groups, and rows of the largest groups, or the first intervals,
    without a number: who has made up many names gets no more rows than others.
    """

    def __init__(self, query: UsageQuery, tenant: str) -> None:
        self._query = query
        self._where, values = _filters(query, 2)
        self._values: list[Value] = [tenant, *values]
        self._sources: list[_Source] = []
        filters = (query.agents, query.max_clearance, query.team, query.session_id, query.model)
        self._has_names = any(each is not None for each in filters)

    def add_interval(self, interval: Interval) -> None:
        named = self._query.by not in _NAMELESS or self._has_names
        span = "unit = {0} AND start >= {1} AND start < {2}"
        self._add(_ROLLUPS if named else _TOTALS, "start", span, *interval)

    def add_tail(self, seq: int, since: int, until: int) -> None:
        span = "seq > {0} AND at >= {1} AND at < {2}"
        self._add("usage_entries", f"at / {_MICROS}", span, seq, since * _MICROS, until * _MICROS)

    def _add(self, table: str, second: str, span: str, *bounds: Value) -> None:
        # SQLite counts places by their first appearance, so that filters come before bounds.
        places = [f"${place}" for place, _ in enumerate(bounds, len(self._values) + 1)]
        self._values.extend(bounds)
        self._sources.append(_Source(table, second, f"tenant = $1{self._where} AND {span.format(*places)}"))

    @property
    def values(self) -> list[Value]:
        # Teams are read from lists of them, of which every one counts.
        return [*self._values, _UNLIMITED if self._query.by == "team" else self._query.limit]

    @property
    def text(self) -> str:
        return self._text_of_names() if self._query.by in _MANY_NAMES else self._text_of_groups()

    def _text_of_groups(self) -> str:
        seconds = UNIT_SECONDS.get(self._query.by)  # type: ignore[arg-type]
        parts = []
        for each in self._sources:
            group = (
                _COLUMNS[self._query.by]
                if seconds is None
                else f"CAST({each.second} - ({each.second}) % {seconds} AS TEXT)"
            )
            parts.append(each.select(f"{group} AS grouped, {_NAMED_SUMS}", more=" GROUP BY grouped"))
        order = "total_tokens DESC, grouped" if seconds is None else "LENGTH(grouped), grouped"
        return (
            f"WITH parts AS ({_union(parts)}), "  # noqa: S608 - our own columns
            f"groups AS (SELECT grouped, {_NAMED_SUMS} FROM parts GROUP BY grouped) "
            f"SELECT '' AS grouped, COUNT(*) AS count, {_ADDED_UP} FROM groups UNION ALL "
            f"SELECT grouped, -1, {_SUMS} FROM (SELECT * FROM groups ORDER BY {order} LIMIT ${len(self.values)}) shown"
        )

    def _text_of_names(self) -> str:
        """Find the largest names by one column, then add up all columns of these only: there may be tens of thousands.

        The sums of all names are those that are kept without names, unless only some names count.
        """
        column = _COLUMNS[self._query.by]
        is_shown = f" AND {column} IN (SELECT grouped FROM shown)"  # noqa: S608 - our own columns
        is_sorted = self._query.by in _IN_ORDER
        sized = _union(
            self._by_name(each, "total_tokens") if is_sorted else each.select(f"{column} AS grouped, total_tokens")
            for each in self._sources
        )
        every = _union(self._without_names(each).select(_SUMS) for each in self._sources)
        shown = _union(self._by_name(each, *SUM_NAMES, more=is_shown) for each in self._sources)
        return (
            f"WITH names AS (SELECT grouped, SUM(total_tokens) AS tokens FROM ({sized}) sized GROUP BY grouped), "  # noqa: S608 - likewise
            f"shown AS (SELECT grouped FROM names ORDER BY tokens DESC, grouped LIMIT ${len(self.values)}) "
            f"SELECT '' AS grouped, (SELECT COUNT(*) FROM names) AS count, {_ADDED_UP} FROM ({every}) every_name "
            f"UNION ALL SELECT grouped, -1, {_ADDED_UP} FROM ({shown}) largest GROUP BY grouped"
        )

    def _by_name(self, source: _Source, *sums: str, more: str = "") -> str:
        """Select the sums of the rows with a name, so that few wide rows are left to be sorted."""
        column = _COLUMNS[self._query.by]
        columns = _IN_ORDER.get(self._query.by, column) if source.table == _ROLLUPS else column
        added_up = ", ".join(f"SUM({name}) AS {name}" for name in sums)
        return source.select(f"{column} AS grouped, {added_up}", more=f"{more} GROUP BY {columns}")

    def _without_names(self, source: _Source) -> _Source:
        is_kept = source.table == _ROLLUPS and not self._has_names
        return source._replace(table=_TOTALS) if is_kept else source


def _union(selects: Iterable[str]) -> str:
    return " UNION ALL ".join(selects)


def _totals(query: UsageQuery, span: tuple[int, int], rows: Iterable[Row]) -> UsageTotals:
    sums: dict[str, tuple[int, ...]] = {}
    total, count = UsageSums(), 0
    for name, number, *values in rows:
        if number >= 0:
            count, total = int(number), UsageSums.of(int(value or 0) for value in values)
            continue
        for group in _group_names(query, name):
            add_to(sums, group, tuple(map(int, values)))
    groups = [UsageGroup(name, UsageSums.of(values)) for name, values in sums.items()]
    if query.by in UNIT_SECONDS:
        groups.sort(key=lambda each: each.group)
    else:
        groups.sort(key=lambda each: (-each.sums.total_tokens, each.group))
    left_out = max(0, (len(groups) if query.by == "team" else count) - query.limit)
    return UsageTotals(span[0] * _MICROS, span[1] * _MICROS, groups[: query.limit], total, left_out)


def _group_names(query: UsageQuery, name: str) -> Sequence[str]:
    if query.by == "team":
        return _teams(name) or ("",)
    if query.by in UNIT_SECONDS:
        return (from_micros(int(name) * _MICROS).strftime("%Y-%m-%dT%H:%M:%SZ"),)
    return (name,)


def _with_entry(call: MeteredCall | None, entry: UsageEntry) -> MeteredCall:
    """Return a call with one more entry; the last one names the model."""
    before = UsageSums() if call is None else call.sums
    return MeteredCall(entry.call_id, entry.at, entry.key, before.plus(entry.sums))


def _entry(row: Row) -> UsageEntry:
    seq, entry, call_id, at, *rest = row
    return UsageEntry(seq, entry, call_id, at, _key(rest[: len(_KEY)]), UsageSums.of(rest[len(_KEY) :]))


def _key(columns: Sequence[Any]) -> UsageKey:
    kind, agent_id, session_id, step, model, teams = columns
    return UsageKey(kind, agent_id, session_id, step, model, _teams(teams))


def _key_columns(key: UsageKey) -> tuple[str, ...]:
    *names, teams = key
    return (*names, f",{','.join(teams)}," if teams else "")


def _teams(column: str) -> tuple[str, ...]:
    return tuple(column.strip(",").split(",")) if column else ()


# Learned factors of token estimates: how the usage that agents report differs from what was estimated.

MIN_FACTOR = 0.5
MAX_FACTOR = 2.0
# A prompt of few tokens may be reported with this many more: providers add some to each request.
ADDED_TOKENS = 1_000
# Reports before a factor is used; until then the catalog's applies.
MIN_SAMPLES = 5
# Weight of the newest report. The last ten or so decide, so that a change of tokenizer is noticed.
_WEIGHT = 0.2
# In a smaller prompt, what the provider adds to it decides more than the tokenizer.
_MIN_TOKENS = 200
_MAX_MODELS = 100
_MAX_NAME = 200


class TokenFactor(msgspec.Struct, frozen=True):
    """Reported tokens divided by estimated ones, for one agent and model; ``updated_at`` in microseconds."""

    agent_id: str
    model: str
    factor: float
    samples: int
    updated_at: int


class TokenFactorStore(SqlStore):
    """The learned factors of a tenant."""

    async def find(self, agent_id: str, model: str) -> TokenFactor | None:
        row = await self._tx.one(
            "SELECT agent_id, model, factor, samples, updated_at FROM token_factors "
            "WHERE tenant = $1 AND agent_id = $2 AND model = $3",
            self._tenant,
            agent_id,
            model,
        )
        return None if row is None else TokenFactor(*row)

    async def put(self, factor: TokenFactor) -> None:
        """Store a factor in place of the previous one of its agent and model."""
        await self._tx.run(
            """
            INSERT INTO token_factors (tenant, agent_id, model, factor, samples, updated_at)
            VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (tenant, agent_id, model) DO UPDATE SET
                factor = excluded.factor, samples = excluded.samples, updated_at = excluded.updated_at
            """,
            self._tenant,
            factor.agent_id,
            factor.model,
            factor.factor,
            factor.samples,
            factor.updated_at,
        )

    async def count(self, agent_id: str) -> int:
        """Return the number of models for which an agent has a factor."""
        row = await self._tx.one(
            "SELECT COUNT(*) FROM token_factors WHERE tenant = $1 AND agent_id = $2", self._tenant, agent_id
        )
        return 0 if row is None else int(row[0])


class UsageFactor(msgspec.Struct):
    """Learns factors from reported usage.

    Each agent has its own: what one reports must not make the prompts of others too long for their models.
    """

    factors: TokenFactorStore
    clock: Clock

    async def factor(self, agent_id: str, model: str | None) -> float | None:
        """Return the learned factor of a model; None until enough calls were reported."""
        found = None if model is None else await self.factors.find(agent_id, _factor_key(model))
        return None if found is None or found.samples < MIN_SAMPLES else found.factor

    async def learn(self, agent_id: str, model: str, estimated: int, reported: int) -> TokenFactor | None:
        """Take a report into account: ``estimated`` is the raw count of the prompt, ``reported`` its input tokens.

        Returns None if nothing can be learned from it: it is too small, or too many models were reported.
        """
        if min(estimated, reported) < _MIN_TOKENS:
            return None
        key = _factor_key(model)
        previous = await self.factors.find(agent_id, key)
        if previous is None and await self.factors.count(agent_id) >= _MAX_MODELS:
            return None
        start = previous or TokenFactor(agent_id, key, 1.0, 0, 0)
        learned = updated(start, reported / estimated, to_micros(self.clock.now()))
        await self.factors.put(learned)
        return learned


def updated(previous: TokenFactor, ratio: float, now: int) -> TokenFactor:
    """Return the factor after one more report: the exponentially weighted mean of ratios within the bounds."""
    bounded = min(MAX_FACTOR, max(MIN_FACTOR, ratio))
    # Early reports weigh the same, else the first one would decide for long.
    weight = max(_WEIGHT, 1 / (previous.samples + 1))
    factor = previous.factor + weight * (bounded - previous.factor)
    return structs.replace(previous, factor=factor, samples=previous.samples + 1, updated_at=now)


def _factor_key(model: str) -> str:
    return model.lower()[:_MAX_NAME]
