"""Quota of named snapshots: each counts for the agent whose context it is of, or for who took it."""

from __future__ import annotations

import msgspec

from weft.capabilities.history.line_kinds import AGENT, name_in
from weft.capabilities.history.store import SnapshotIndex
from weft.capabilities.plans.service import Plans
from weft.kernel.identity import Actor


class SnapshotQuota(msgspec.Struct, frozen=True):
    """Checks the named snapshots of an agent against the tenant's plan."""

    actor: Actor
    index: SnapshotIndex
    plans: Plans

    async def check(self, *line_ids: str) -> None:
        """Raise QuotaExceeded if the new snapshots of these lines are too many.

        Called after their event, which serializes the writers of a tenant: two cannot exceed the quota together.
        """
        allowance = await self.plans.allowance()
        if allowance.snapshots is None:
            return
        for owner in sorted({snapshot_owner(line_id, self.actor) for line_id in line_ids}):
            allowance.check_snapshots(await self.index.count(owner), owner)


def snapshot_owner(line_id: str, actor: Actor) -> str:
    """Return the agent whose context a line is; for a line of no single agent, such as a board, the caller."""
    return name_in(line_id, AGENT) or actor.principal_id
