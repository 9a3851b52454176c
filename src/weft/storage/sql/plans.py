"""Plans of tenants in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.storage.sql.database import SqlStore

if TYPE_CHECKING:
    from weft.capabilities.plans.model import Plan

_SET_PLAN = """
INSERT INTO tenant_plans (tenant, plan, since) VALUES ($1, $2, $3)
ON CONFLICT (tenant) DO UPDATE SET plan = excluded.plan, since = excluded.since
"""


class SqlPlanStore(SqlStore):
    """The plan of one tenant."""

    async def plan(self) -> Plan | None:
        row = await self._tx.one("SELECT plan FROM tenant_plans WHERE tenant = $1", self._tenant)
        return None if row is None else row[0]

    async def set_plan(self, plan: Plan, now: int) -> None:
        await self._tx.run(_SET_PLAN, self._tenant, plan, now)
