"""Budgets in effect: which bind a call, what it adds to them, and what happens at their limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec
from msgspec import structs

from weftline.kernel.clock import DAY_MICROS, Clock, from_micros, to_micros
from weftline.kernel.events import AlertPort, AlertSubject, EventType, NewEvent
from weftline.kernel.guards import warn_caller
from weftline.kernel.identity import HIGHEST_CLEARANCE, PERMISSION, PRINCIPAL, Actor, Permission
from weftline.kernel.outbox import Outbox
from weftline.models.budgets import (
    AGENT,
    TEAM,
    BudgetUse,
    Charge,
    budget_exceeded,
    budget_text,
    period_start,
    shares_of,
    utc_text,
)
from weftline.models.sql import BudgetStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.models.budgets import Budget, BudgetExceeded, BudgetName, Period, Spend


# Budgets in effect: which bind a call, what it adds to them, and what happens at their limits.

# Events, and conditions of alerts.
BudgetAlert = Literal["budget.near", "budget.exceeded"]
_ALERTS: tuple[BudgetAlert, ...] = get_args(BudgetAlert)
_ADMINS = f"{PERMISSION}{Permission.ADMIN}"
# Sums of earlier periods are kept for usage that is reported late.
_KEPT_MICROS: dict[Period, int] = {"day": 40 * DAY_MICROS, "month": 400 * DAY_MICROS}


class Budgets(msgspec.Struct, frozen=True):
    """Budgets of the caller's tenant in one transaction."""

    actor: Actor
    store: BudgetStore
    outbox: Outbox
    clock: Clock
    alerts: AlertPort

    async def binding(self, agent_id: str) -> Sequence[BudgetUse]:
        """Return the budgets that calls of an agent count for, and its shares in them.

        Raises BudgetExceeded if one of them refuses more.
        """
        uses = await self.store.binding(agent_id, self._now)
        uses = [*uses, *await self.shares(uses, agent_id)]
        for use in uses:
            if use.is_reached and use.budget.at_limit == "refuse":
                raise await self._exceeded(use)
        return uses

    async def shares(self, uses: Sequence[BudgetUse], agent_id: str) -> list[BudgetUse]:
        """Return the shares of an agent and of its tree in these budgets."""
        divided = [use for use in uses if use.budget.parts]
        parents = await self.store.parents(agent_id) if divided else {}
        found: list[BudgetUse] = []
        for use in divided:
            for name in shares_of(agent_id, use.budget.subject, parents).values():
                share = use.budget.part(name)
                if share is not None:
                    found.append(BudgetUse(share, await self.store.spend(share.name, use.starts_at), use.starts_at))
        return found

    async def charge(self, budgets: Sequence[Budget], charge: Charge, at: int) -> list[BudgetUse]:
        """Add a call to its budgets; raises BudgetExceeded if it would exceed one that refuses.

        Then the transaction must be rolled back. The sums are locked until it ends, so calls at the same time cannot
        exceed a budget together.
        """
        uses = [await self._charged(budget, charge, at) for budget in sorted(budgets, key=lambda each: each.name)]
        for use in uses:
            if use.is_over and use.budget.at_limit == "refuse":
                raise await self._exceeded(_without(use, charge))
        for use in uses:
            await self._tell(use)
        return uses

    async def charge_made(self, agent_id: str, charge: Charge) -> None:
        """Add a call that an agent has made already: it counts also for budgets that refuse more."""
        at = self._now
        uses = await self.store.binding(agent_id, at)
        uses = [*uses, *await self.shares(uses, agent_id)]
        for budget in sorted((use.budget for use in uses), key=lambda each: each.name):
            await self._tell(await self._charged(budget, charge, at))

    async def correct(self, names: Sequence[BudgetName], correction: Charge, at: int) -> None:
        """Correct what a call at a time was estimated to spend."""
        for name in sorted(names):
            spend = await self.store.correct(name, period_start(name.period, at), correction)
            found = None if spend is None else await self._find(name, spend, at)
            # A late report does not open an alert about a period that is over.
            if found is not None and found.resets_at > self.clock.now():
                await self._tell(found)

    async def _find(self, name: BudgetName, spend: Spend, at: int) -> BudgetUse | None:
        """Return a budget, or a share in one, with what was spent; None if it was deleted."""
        found = await self.store.find(name, at)
        if found is None or not name.share:
            return found
        share = found.budget.part(name.share)
        return None if share is None else BudgetUse(share, spend, found.starts_at)

    async def tell_refused(self, error: BudgetExceeded) -> None:
        """Tell admins, once in a period, that a budget refuses calls."""
        use = error.use
        if use is None or use.spend.exceeded_at is not None:
            return
        spend = await self.store.charge(use.budget.name, use.starts_at, Charge(0, 0))
        if spend.exceeded_at is None:
            await self._publish("budget.exceeded", use._replace(spend=spend))

    async def subjects_with_spend(self, uses: Sequence[BudgetUse], agent_id: str | None = None) -> frozenset[str]:
        """Return those spenders whose spend the caller, who is above ``agent_id``, may know: the others are for admins.

        Nobody is told what agents with a higher clearance spend, nor a sum that includes it.
        """
        own = {f"{AGENT}{self.actor.principal_id}", f"{AGENT}{agent_id}"}
        asked = {use.budget.spender for use in uses}
        known = asked if self.actor.is_admin else asked & own
        if not known or self.actor.clearance >= HIGHEST_CLEARANCE:
            return frozenset(known)
        return frozenset(known - set(await self.store.subjects_above(self.actor.clearance)))

    async def _charged(self, budget: Budget, charge: Charge, at: int) -> BudgetUse:
        starts_at = period_start(budget.period, at)
        spend = await self.store.charge(budget.name, starts_at, charge)
        # The first call of a period, unless a larger one was refused in it before.
        if spend.calls == charge.calls and spend.near_at is None:
            await self.store.prune(budget.name, starts_at - _KEPT_MICROS[budget.period])
            if not budget.share:
                await self.clear_alerts(budget.name)
        return BudgetUse(budget, spend, starts_at)

    async def _tell(self, use: BudgetUse) -> None:
        if use.is_reached and use.spend.exceeded_at is None:
            await self._publish("budget.exceeded", use)
        elif use.is_near and use.spend.near_at is None:
            await self._publish("budget.near", use)

    async def _publish(self, event_type: BudgetAlert, use: BudgetUse) -> None:
        now = self._now
        exceeded_at = now if event_type == "budget.exceeded" else None
        told = structs.replace(use.spend, near_at=use.spend.near_at or now, exceeded_at=exceeded_at)
        await self.store.mark(use._replace(spend=told))
        await self.outbox.publish(budget_event(event_type, use, self.actor))
        if use.budget.share:
            # An alert is about the whole budget.
            return
        # Alerts about a tenant or a team are read by all its admins, so what was spent is in `budget.list` only.
        data = _limits(use) | {"is_reached": use.is_reached}
        await self.alerts.raise_(event_type, AlertSubject.parse(use.budget.subject), data, about=use.budget.period)

    async def clear_alerts(self, name: BudgetName) -> None:
        """Resolve the alerts about a budget: its period is over, or it was changed."""
        for condition in _ALERTS:
            await self.alerts.clear(condition, AlertSubject.parse(name.subject), about=name.period)

    async def _exceeded(self, use: BudgetUse) -> BudgetExceeded:
        return budget_exceeded(use, show_spend=bool(await self.subjects_with_spend([use])))

    @property
    def _now(self) -> int:
        return to_micros(self.clock.now())


def budget_event(event_type: EventType, use: BudgetUse, actor: Actor) -> NewEvent:
    """Return an event about a budget, for admins and for whom it limits. What was spent is not in it."""
    budget = use.budget
    kind, _, name = budget.spender.partition(":")
    limited = {AGENT: f"{PRINCIPAL}{name}", TEAM: budget.subject}.get(f"{kind}:")
    return NewEvent(
        type=event_type,
        session_id=None,
        subject=budget.subject,
        actor=actor.participant,
        readable_by=(_ADMINS,) if limited is None else (limited, _ADMINS),
        data=_limits(use),
    )


def _limits(use: BudgetUse) -> dict[str, Any]:
    budget = use.budget
    return {
        **({"share": budget.share} if budget.share else {}),
        "period": budget.period,
        "tokens": budget.tokens,
        "cost": budget.dollars,
        "at_limit": budget.at_limit,
        "warn_at": budget.warn_at,
        "starts_at": utc_text(from_micros(use.starts_at)),
        "resets_at": utc_text(use.resets_at),
    }


def warn_of(uses: Sequence[BudgetUse]) -> None:
    """Warn the caller of budgets that are spent, or nearly."""
    for use in uses:
        if use.is_near:
            state = _STATE_TEXTS[use.budget.at_limit] if use.is_reached else "is nearly spent"
            warn_caller(
                f"The {budget_text(use.budget)} for this {use.budget.period} {state}. "
                f"It resets at {utc_text(use.resets_at)}."
            )


_STATE_TEXTS = {
    "warn": "is spent",
    "downgrade": "is spent: prompts have fewer passages",
    "refuse": "is spent: further calls are refused",
}


def _without(use: BudgetUse, charge: Charge) -> BudgetUse:
    """Return what was spent before a charge that is not made."""
    spend = use.spend
    before = structs.replace(
        spend,
        tokens=spend.tokens - charge.tokens,
        nanodollars=spend.nanodollars - charge.nanodollars,
        calls=spend.calls - charge.calls,
        unpriced_calls=spend.unpriced_calls - charge.unpriced_calls,
    )
    return use._replace(spend=before)
