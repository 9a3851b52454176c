"""Storage port of plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from weftline.access.plans.model import AssignedPlan


class PlanStore(Protocol):
    """The plan of the transaction's tenant."""

    async def plan(self) -> AssignedPlan | None:
        """Return the plan with the tenant's own limits; None if the default applies."""
        ...

    async def set_plan(self, assigned: AssignedPlan, now: int) -> None: ...
