"""The plan of the caller's tenant."""

from __future__ import annotations

import msgspec

from weftline.access.plans.model import ALLOWANCES, Allowance, DefaultPlan
from weftline.access.sql import PlanStore


class Plans(msgspec.Struct, frozen=True):
    """What the tenant of a transaction is allowed."""

    store: PlanStore
    default: DefaultPlan

    async def allowance(self) -> Allowance:
        assigned = await self.store.plan()
        if assigned is None:
            return ALLOWANCES[self.default.plan]
        return assigned.allowance if assigned.limits else ALLOWANCES[assigned.plan]
