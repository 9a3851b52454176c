"""The plan of the caller's tenant, and warnings before one of its quotas is used up."""

from __future__ import annotations

import msgspec

from weftline.access.plans import ALLOWANCES, QUOTA_NEAR, Allowance, DefaultPlan, QuotaUse
from weftline.access.sql import PlanStore
from weftline.kernel.events import TENANT_SUBJECT, AlertPort, AlertSubject, NewEvent, agent_subject
from weftline.kernel.identity import CLEARANCE, HIGHEST_CLEARANCE, PRINCIPAL, TEAM, USER, Actor
from weftline.kernel.outbox import Outbox

# The plan of the caller's tenant.


class Plans(msgspec.Struct, frozen=True):
    """What the tenant of a transaction is allowed."""

    store: PlanStore
    default: DefaultPlan

    async def allowance(self) -> Allowance:
        assigned = await self.store.plan()
        if assigned is None:
            return ALLOWANCES[self.default.plan]
        return assigned.allowance if assigned.limits else ALLOWANCES[assigned.plan]


# Warnings before a quota of the plan is used up: an event and an alert.


class QuotaWarnings(msgspec.Struct, frozen=True):
    """Warns in the transaction that uses more of a quota."""

    actor: Actor
    plans: Plans
    outbox: Outbox
    alerts: AlertPort

    async def note(self, use: QuotaUse, owner: str | None = None, *, lasts: bool = True) -> None:
        """Warn if a change uses up most of a quota; resolve the alert if it frees some of it.

        ``owner``: the agent, user:ID or team:NAME whose quota it is, if not the tenant's. Without ``lasts`` there is an
        event and no alert: nobody frees the quota, it ends with what it is of, such as a window. Called after the check
        of the quota. What is used is not told: it includes what readers may not see.
        """
        if use.is_near == use.was_near:
            return
        allowance = await self.plans.allowance()
        data = {"limit": use.limit, "allowed": use.allowed, "plan": allowance.plan, "part": QUOTA_NEAR}
        subject = _subject(owner)
        if use.is_near:
            readers = [] if owner is None else [_audience(subject)]
            await self.outbox.publish(
                NewEvent(
                    type="quota.near",
                    session_id=None,
                    subject=use.limit,
                    actor=self.actor.participant,
                    readable_by=(f"{CLEARANCE}{HIGHEST_CLEARANCE}", *readers),
                    data=data,
                )
            )
        if not lasts:
            return
        if use.is_near:
            await self.alerts.raise_("quota.near", subject, data, about=use.limit)
        else:
            await self.alerts.clear("quota.near", subject, about=use.limit)


def _subject(owner: str | None) -> AlertSubject:
    if owner is None:
        return TENANT_SUBJECT
    return AlertSubject.parse(owner) if owner.startswith(TEAM) else agent_subject(owner.removeprefix(USER))


def _audience(subject: AlertSubject) -> str:
    return str(subject) if subject.kind == "team" else f"{PRINCIPAL}{subject.name}"
