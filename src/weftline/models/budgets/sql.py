"""Budgets and what was spent of them, in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.kernel.transaction import SqlStore
from weftline.models.budgets.model import AGENT, TEAM, TENANT, Budget, BudgetUse, Spend, period_start

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.kernel.transaction import Row
    from weftline.models.budgets.model import BudgetName, Charge

_SUMS = "tokens, nanodollars, calls, unpriced_calls, near_at, exceeded_at"
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
    RETURNING {_SUMS}
    """  # noqa: S608 - constants
    for table, share, value in zip(_TABLES, ("", ", share"), ("", ", $9"), strict=True)
)
_CORRECT, _SHARE_CORRECT = (
    f"""
    UPDATE {table} SET tokens = tokens + $1, nanodollars = nanodollars + $2, calls = calls + $3,
        unpriced_calls = unpriced_calls + $4
    WHERE tenant = $5 AND subject = $6 AND period = $7 AND starts_at = $8{share} RETURNING {_SUMS}
    """  # noqa: S608 - constants
    for table, share in zip(_TABLES, ("", " AND share = $9"), strict=True)
)
_MARK, _SHARE_MARK = (
    f"UPDATE {table} SET near_at = $1, exceeded_at = $2 "  # noqa: S608 - constants
    f"WHERE tenant = $3 AND subject = $4 AND period = $5 AND starts_at = $6{share}"
    for table, share in zip(_TABLES, ("", " AND share = $7"), strict=True)
)
_SHARE_SPEND = f"SELECT {_SUMS} FROM budget_share_spend {_OF_BUDGET} AND starts_at = $4 AND share = $5"  # noqa: S608
_SHARES = f"""
SELECT share, {_SUMS} FROM budget_share_spend {_OF_BUDGET} AND starts_at = $4
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
