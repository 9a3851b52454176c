"""Warnings before a quota of the plan is used up: an event and an alert."""

from __future__ import annotations

import msgspec

from weft.capabilities.plans.model import QUOTA_NEAR, QuotaUse
from weft.capabilities.plans.service import Plans
from weft.kernel.alerts import TENANT_SUBJECT, AlertPort, agent_subject
from weft.kernel.events import NewEvent, Outbox
from weft.kernel.identity import CLEARANCE, HIGHEST_CLEARANCE, PRINCIPAL, Actor


class QuotaWarnings(msgspec.Struct, frozen=True):
    """Warns in the transaction that uses more of a quota."""

    actor: Actor
    plans: Plans
    outbox: Outbox
    alerts: AlertPort

    async def note(self, use: QuotaUse, agent_id: str | None = None) -> None:
        """Warn if a change uses up most of a quota, of one agent if given; resolve the alert if it frees some of it.

        Called after the check of the quota. What is used is not told: it includes what readers may not see.
        """
        if use.is_near == use.was_near:
            return
        allowance = await self.plans.allowance()
        data = {"limit": use.limit, "allowed": use.allowed, "plan": allowance.plan, "part": QUOTA_NEAR}
        if use.is_near:
            readers = (f"{CLEARANCE}{HIGHEST_CLEARANCE}", *([f"{PRINCIPAL}{agent_id}"] if agent_id else []))
            await self.outbox.publish(
                NewEvent(
                    type="quota.near",
                    session_id=None,
                    subject=use.limit,
                    actor=self.actor.participant,
                    readable_by=readers,
                    data=data,
                )
            )
        subject = TENANT_SUBJECT if agent_id is None else agent_subject(agent_id)
        if use.is_near:
            await self.alerts.raise_("quota.near", subject, data, about=use.limit)
        else:
            await self.alerts.clear("quota.near", subject, about=use.limit)
