"""Quota of named snapshots: each counts for the agent whose context it is of, or for who took it."""

from __future__ import annotations

from collections import Counter

import msgspec

from weftline.access.plan_warnings import Plans, QuotaWarnings
from weftline.access.plans import QuotaUse
from weftline.history.line_kinds import AGENT, name_in
from weftline.history.sql import SnapshotIndex
from weftline.kernel.identity import Actor


class SnapshotQuota(msgspec.Struct, frozen=True):
    """Checks the named snapshots of an agent against the tenant's plan."""

    actor: Actor
    index: SnapshotIndex
    plans: Plans
    warnings: QuotaWarnings

    async def check(self, *line_ids: str) -> None:
        """Raise QuotaExceeded if the new snapshots of these lines are too many.

        Called after their event, which serializes the writers of a tenant: two cannot exceed the quota together.
        """
        allowance = await self.plans.allowance()
        if allowance.snapshots is None:
            return
        owners = Counter(snapshot_owner(line_id, self.actor) for line_id in line_ids)
        for owner in sorted(owners):
            count = await self.index.count(owner)
            allowance.check_snapshots(count, owner, new=owners[owner])
            use = QuotaUse("snapshots", allowance.snapshots, count - owners[owner], count)
            await self.warnings.note(use, owner)

    async def note_deleted(self, line_id: str) -> None:
        """Resolve the warning about the snapshots of a line's agent, if there is room again."""
        allowance, owner = await self.plans.allowance(), snapshot_owner(line_id, self.actor)
        if allowance.snapshots is not None:
            count = await self.index.count(owner)
            await self.warnings.note(QuotaUse("snapshots", allowance.snapshots, count + 1, count), owner)


def snapshot_owner(line_id: str, actor: Actor) -> str:
    """Return the agent whose context a line is; for a line of no single agent, such as a board, the caller."""
    return name_in(line_id, AGENT) or actor.principal_id
