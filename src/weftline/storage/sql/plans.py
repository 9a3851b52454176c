"""Plans of tenants in SQL."""

from __future__ import annotations

from typing import Any

import msgspec

from weftline.access.plans.model import AssignedPlan
from weftline.kernel.transaction import SqlStore

_SET_PLAN = """
INSERT INTO tenant_plans (tenant, plan, limits, since) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant) DO UPDATE SET plan = excluded.plan, limits = excluded.limits, since = excluded.since
"""
_limits = msgspec.json.Decoder(dict[str, Any]).decode


class SqlPlanStore(SqlStore):
    """The plan of one tenant."""

    async def plan(self) -> AssignedPlan | None:
        row = await self._tx.one("SELECT plan, limits FROM tenant_plans WHERE tenant = $1", self._tenant)
        return None if row is None else AssignedPlan(row[0], _limits(row[1]))

    async def set_plan(self, assigned: AssignedPlan, now: int) -> None:
        limits = msgspec.json.encode(assigned.limits).decode()
        await self._tx.run(_SET_PLAN, self._tenant, assigned.plan, limits, now)
