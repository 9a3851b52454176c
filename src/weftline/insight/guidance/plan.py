"""The operation `plan.show`: the tenant's plan, its limits, and what is used of them."""

from __future__ import annotations

from typing import Any

import msgspec

from weftline.access.plans.limits import LIMITS
from weftline.access.plans.service import Plans
from weftline.access.sql import PlanStore
from weftline.kernel.identity import HIGHEST_CLEARANCE, Actor
from weftline.kernel.operation import Effect, Request, Response, SessionUse, admin_operation
from weftline.knowledge.sql import DomainStore


class ShowPlan(Request):
    """No parameters."""


class QuotaInfo(Response, kw_only=True, omit_defaults=False):
    """What is used of a limit; ``allowed`` is null if it is unlimited."""

    used: int
    allowed: int | None


class PlanShown(Response, kw_only=True, omit_defaults=False):
    """The tenant's plan. ``limits``: all of them by name, null: unlimited; ``custom``: those set for this tenant alone.

    ``quotas``: what is used, for callers with the highest clearance, who may see every domain.
    """

    plan: str
    limits: dict[str, Any]
    custom: list[str]
    quotas: dict[str, QuotaInfo]


@admin_operation(
    "plan.show", tool="budgets", action="show_plan", http="GET /v1/plan", effect=Effect.READ, session=SessionUse.NONE
)
async def show_plan(request: ShowPlan, actor: Actor, plans: Plans, store: PlanStore, domains: DomainStore) -> PlanShown:
    """Show the tenant's plan: its limits, and how much of them is used. For admins."""
    del request
    allowance, assigned = await plans.allowance(), await store.plan()
    quotas: dict[str, QuotaInfo] = {}
    if actor.clearance >= HIGHEST_CLEARANCE:
        found = await domains.all()
        quotas = {
            "domains": QuotaInfo(used=len(found), allowed=allowance.domains),
            "bytes": QuotaInfo(used=sum(each.bytes for each in found), allowed=allowance.bytes),
        }
    limits = msgspec.to_builtins(allowance)
    return PlanShown(
        plan=allowance.plan,
        limits={name: limits[name] for name in LIMITS},
        custom=[] if assigned is None else sorted(assigned.limits),
        quotas=quotas,
    )
