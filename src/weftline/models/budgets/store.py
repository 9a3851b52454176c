"""Storage port of budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.models.budgets.model import Budget, BudgetName, BudgetUse, Charge, Spend


class BudgetStore(Protocol):
    """Budgets of the transaction's tenant, and what was spent of them."""

    async def set(self, budget: Budget) -> None:
        """Store a budget in place of an earlier one; what was spent stays, and its limits are told of again."""
        ...

    async def delete(self, name: BudgetName) -> bool:
        """Delete a budget with what was spent of it; False if there is none."""
        ...

    async def find(self, name: BudgetName, at: int) -> BudgetUse | None:
        """Return a budget with the period that a time is in."""
        ...

    async def page(self, at: int, after: BudgetName | None, limit: int) -> Sequence[BudgetUse]:
        """Return budgets by subject and period, after one."""
        ...

    async def binding(self, agent_id: str, at: int) -> Sequence[BudgetUse]:
        """Return the budgets that calls of an agent count for.

        Those are the tenant's, its own, those of the principals above it, and those of its teams and theirs.
        """
        ...

    async def covered(self, subject: str) -> Sequence[str]:
        """Return the agents whose calls count for a team or an agent."""
        ...

    async def parents(self, agent_id: str | None) -> Mapping[str, str | None]:
        """Return the parents of an agent and of the agents above it; None: of all agents."""
        ...

    async def spend(self, name: BudgetName, starts_at: int) -> Spend:
        """Return what was spent of a share in a period."""
        ...

    async def shares(self, name: BudgetName, starts_at: int, limit: int) -> Mapping[str, Spend]:
        """Return what trees and agents spent of a budget with shares, those with the most first."""
        ...

    async def forget_shares(self, name: BudgetName, kind: str) -> None:
        """Delete what all trees, or all agents, spent of a budget."""
        ...

    async def subjects_above(self, clearance: int) -> Sequence[str]:
        """Return the subjects that calls of agents with a higher clearance count for."""
        ...

    async def charge(self, name: BudgetName, starts_at: int, charge: Charge) -> Spend:
        """Add a call and return the new sums, locked until the transaction ends."""
        ...

    async def correct(self, name: BudgetName, starts_at: int, charge: Charge) -> Spend | None:
        """Change the sums of a period and return them, locked likewise; None if they were deleted."""
        ...

    async def mark(self, use: BudgetUse) -> None:
        """Store when admins were told of the limits of a period."""
        ...

    async def prune(self, name: BudgetName, before: int) -> None:
        """Delete the sums of periods that began before a time."""
        ...
