"""Storage port of plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from weft.capabilities.plans.model import Plan


class PlanStore(Protocol):
    """The plan of the transaction's tenant."""

    async def plan(self) -> Plan | None:
        """Return the plan; None if the default applies."""
        ...

    async def set_plan(self, plan: Plan, now: int) -> None: ...
