"""Operations on budgets: set, list and delete."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from weftline.access.grants import check_may_edit, is_descendant
from weftline.access.model import AgentId, AgentNotFound
from weftline.access.sql import AccessStore
from weftline.access.teams import TeamNotFound, TeamStore
from weftline.kernel.clock import from_micros, to_micros
from weftline.kernel.errors import InvalidInput, PermissionDenied, SelfModification, invalid_cursor
from weftline.kernel.fields import MAX_INT
from weftline.kernel.identity import Permission, PrincipalKind
from weftline.kernel.operation import Effect, RateClass, Request, Response, SessionUse, Success, admin_write, operation
from weftline.models.budget_limits import Budgets, budget_event
from weftline.models.budgets import (
    AGENT,
    DEFAULT_WARN_AT,
    NANODOLLARS,
    PERIODS,
    SUBJECT_PATTERN,
    TEAM,
    TENANT,
    AtLimit,
    Budget,
    BudgetName,
    BudgetNotFound,
    BudgetUse,
    Charge,
    Period,
    Spend,
    Subject,
    nanodollars,
    period_start,
    shares_of,
    subject_text,
)
from weftline.models.metering import UsageQuery
from weftline.models.sql import ADDED_TOKENS, MAX_FACTOR, MIN_FACTOR, UsageStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from weftline.kernel.identity import Actor
    from weftline.models.metering import UsageSums


# Operations on budgets: set, list and delete.

TOOL = "budgets"
BudgetState = Literal["within", "near", "reached"]
PeriodField = Annotated[Period, msgspec.Meta(description="Calendar day or month, in UTC.")]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
# Shares that are listed with a budget, and agents whose earlier calls count for new ones: those that spent the most.
_LISTED_SHARES, _COUNTED_AGENTS = 20, 1_000
# Of the longest answers of today's models.
_MAX_OUTPUT_TOKENS = 128_000
_CURSOR = SUBJECT_PATTERN.replace(r"\Z", r"/(day|month)\Z")


def _forbid_own_budget(raw: Mapping[str, Any], actor: Actor) -> None:
    """Raise SelfModification for an agent that is about to change a budget that binds it, whatever its permissions."""
    own = {TENANT, f"{AGENT}{actor.principal_id}", *(f"{TEAM}{team}" for team in actor.teams)}
    if actor.kind is PrincipalKind.AGENT and raw.get("subject") in own:
        raise SelfModification(
            "An agent cannot change a budget that limits it.", hint="Ask a human admin to change it.", related=(TOOL,)
        )


_write = partial(admin_write, tool=TOOL, session=SessionUse.NONE, forbids=_forbid_own_budget)


class SetBudget(Request):
    """A budget, in place of an earlier one of the same subject and period."""

    subject: Subject
    period: PeriodField
    tokens: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=MAX_INT)] | None,
        msgspec.Meta(description="Limit in tokens: those of prompts, and of answers once they are reported."),
    ] = None
    cost: Annotated[
        Annotated[float, msgspec.Meta(ge=0.000001, le=1_000_000_000)] | None,
        msgspec.Meta(description="Limit in US dollars; calls of models without a known price cost nothing."),
    ] = None
    at_limit: Annotated[
        AtLimit,
        msgspec.Meta(description="At the limit: warn only, downgrade (prompts get fewer passages), or refuse prompts."),
    ] = "warn"
    warn_at: Annotated[
        Annotated[float, msgspec.Meta(gt=0, le=1)],
        msgspec.Meta(description="Part of a limit from which admins and callers are warned."),
    ] = DEFAULT_WARN_AT
    tree_share: Annotated[
        Share | None,
        msgspec.Meta(
            description="Part of the limits that one tree may spend: a root agent with all below it; in the budget of "
            "an agent, one directly below it, likewise."
        ),
    ] = None
    agent_share: Annotated[Share | None, msgspec.Meta(description="Part of the limits that one agent may spend.")] = (
        None
    )


class ListBudgets(Request):
    """Which budgets to list."""

    agent_id: Annotated[
        AgentId | None,
        msgspec.Meta(description="Only those that limit this agent; by default you, for admins all budgets."),
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000, description="At most this many.")] = 100
    cursor: Annotated[
        Annotated[str, msgspec.Meta(max_length=120, pattern=_CURSOR)] | None,
        msgspec.Meta(description="next_cursor of the previous page."),
    ] = None


class DeleteBudget(Request):
    """The budget to delete."""

    subject: Subject
    period: PeriodField


class ShareInfo(Response, kw_only=True, omit_defaults=False):
    """What a tree (tree:ID) or an agent (agent:ID) may spend of a budget, and has spent."""

    share: str
    tokens: int | None
    cost: float | None
    state: BudgetState
    used_tokens: int | None
    used_cost: float | None
    calls: int | None


class BudgetInfo(Response, kw_only=True, omit_defaults=False):
    """A budget and what was spent of it since ``starts_at``. Money is in US dollars.

    ``state``: within, near (the soft limit ``warn_at`` is reached) or reached. What was spent is null unless the
    budget is yours or that of an agent below you, or you are an admin; it is also null if agents with a higher
    clearance than yours count for it. ``unpriced_calls``: calls of models without a known price, which cost nothing
    here. ``tree_share``, ``agent_share``: the part of the limits that one tree, and one agent, may spend; ``shares``:
    those that spent the most, or yours.
    """

    subject: str
    period: Period
    tokens: int | None
    cost: float | None
    at_limit: AtLimit
    warn_at: float
    state: BudgetState
    used_tokens: int | None
    used_cost: float | None
    calls: int | None
    unpriced_calls: int | None
    starts_at: datetime
    resets_at: datetime
    set_by: str
    set_at: datetime
    tree_share: float | None
    agent_share: float | None
    shares: list[ShareInfo]


class BudgetList(Response):
    """Budgets by subject and period; ``next_cursor`` while there are more."""

    budgets: list[BudgetInfo]
    next_cursor: str | None = None


class BudgetDeleted(Success, kw_only=True):
    """The budget that was deleted, with what was spent of it."""

    subject: str
    period: Period


class BudgetChanges(msgspec.Struct, frozen=True):
    """What changing a budget needs."""

    budgets: Budgets
    access: AccessStore
    teams: TeamStore
    usage: UsageStore

    async def spent_before(self, name: BudgetName, starts_at: int) -> Spend:
        """Charge a new budget with what was spent in its period before, and return it."""
        store = self.budgets.store
        agents = None if name.subject == TENANT else tuple(await store.covered(name.subject))
        found = await self.usage.totals(UsageQuery(since=starts_at, agents=agents, kind="assembly"))
        return await store.charge(name, starts_at, possible_charge(found.total))

    async def count_shares(self, budget: Budget, before: Budget | None, starts_at: int) -> None:
        """Charge the shares that are new with what trees and agents spent in the period before."""
        store, earlier = self.budgets.store, {} if before is None else before.parts
        new = budget.parts.keys() - earlier.keys()
        for kind in new | (earlier.keys() - budget.parts.keys()):
            await store.forget_shares(budget.name, kind)
        if not new:
            return
        agents = None if budget.subject == TENANT else tuple(await store.covered(budget.subject))
        query = UsageQuery(by="agent", since=starts_at, agents=agents, kind="assembly", limit=_COUNTED_AGENTS)
        parents = await store.parents(None)
        for agent_id, sums in (await self.usage.totals(query)).groups:
            names = shares_of(agent_id, budget.subject, parents)
            for kind in sorted(new):
                share = BudgetName(budget.subject, budget.period, names[kind])
                await store.charge(share, starts_at, possible_charge(sums))

    async def check_subject(self, subject: str) -> None:
        """Raise an error if the subject does not exist, or the caller may not change its budget."""
        actor = self.budgets.actor
        kind, _, name = subject.partition(":")
        if f"{kind}:" == AGENT:
            await self._check_agent(name)
        elif actor.kind is PrincipalKind.AGENT:
            raise PermissionDenied(
                "An agent can change only budgets of agents below it.", hint="Ask a human admin to change this one."
            )
        elif f"{kind}:" == TEAM and await self.teams.find(name) is None:
            raise TeamNotFound(f"There is no team '{name}'.", resource_type="team", resource_id=name)

    async def _check_agent(self, agent_id: str) -> None:
        actor, agent = self.budgets.actor, await self.access.principal(agent_id)
        if agent is None:
            raise _no_agent(agent_id)
        if agent_id != actor.principal_id or actor.kind is PrincipalKind.AGENT:
            await check_may_edit(actor, agent, self.access)


def possible_charge(sums: UsageSums) -> Charge:
    """Return the charge of earlier calls, within what they can have used: agents report it, and share budgets."""
    prompts, reported = sums.engine_assembled_tokens, sums.total_tokens
    answers = min(sums.output_tokens, sums.reported_calls * _MAX_OUTPUT_TOKENS)
    most = round(prompts * MAX_FACTOR) + sums.calls * ADDED_TOKENS + answers
    tokens = min(max(reported, round(prompts * MIN_FACTOR)), most)
    cost = max(sums.cost_nanos, round(sums.expected_cost_nanos * MIN_FACTOR))
    if tokens < reported:
        cost = cost * tokens // reported
    return Charge(tokens, cost, sums.calls, sums.unpriced_calls)


@_write(
    "budget.set",
    action="set",
    http="PUT /v1/budgets/{subject}/{period}",
    errors=(AgentNotFound, TeamNotFound, PermissionDenied, SelfModification),
)
async def set_budget(request: SetBudget, changes: BudgetChanges) -> BudgetInfo:
    """Limit what a tenant, a team or an agent spends in a day or month. For admins.

    What was already spent in the period counts, also if the budget is new. With shares, one tree of agents or one agent
    cannot spend what is for all: at its share, what ``at_limit`` says happens to it alone.
    """
    if request.tokens is None and request.cost is None:
        raise InvalidInput("tokens: give tokens, cost, or both", field="tokens")
    await changes.check_subject(request.subject)
    budgets = changes.budgets
    now = to_micros(budgets.clock.now())
    budget = Budget(
        subject=request.subject,
        period=request.period,
        tokens=request.tokens,
        nanodollars=None if request.cost is None else nanodollars(request.cost),
        at_limit=request.at_limit,
        warn_at=request.warn_at,
        set_by=budgets.actor.participant,
        set_at=now,
        tree_share=request.tree_share,
        agent_share=request.agent_share,
    )
    starts_at = period_start(budget.period, now)
    before = await budgets.store.find(budget.name, now)
    await budgets.store.set(budget)
    await budgets.clear_alerts(budget.name)
    use = BudgetUse(budget, Spend() if before is None else before.spend, starts_at)
    await budgets.outbox.publish(budget_event("budget.changed", use, budgets.actor))
    if before is None:
        # After the event, which serializes the writers of a tenant: what is not in the usage yet is charged.
        use = use._replace(spend=await changes.spent_before(budget.name, starts_at))
    await changes.count_shares(budget, None if before is None else before.budget, starts_at)
    shares = await _largest_shares(use, budgets)
    known = await budgets.subjects_with_spend([use, *shares])
    return _info(use, shares, known)


@operation(
    "budget.list",
    tool=TOOL,
    action="list",
    http="GET /v1/budgets",
    permission=Permission.READ,
    rate=RateClass.ADMIN,
    effect=Effect.READ,
    session=SessionUse.NONE,
    errors=(AgentNotFound,),
)
async def list_budgets(request: ListBudgets, budgets: Budgets, access: AccessStore) -> BudgetList:
    """List the budgets that limit you, or an agent below you, with what is spent; as an admin, all."""
    now = to_micros(budgets.clock.now())
    after, own = _after(request.cursor), budgets.actor.principal_id
    if request.agent_id is None and budgets.actor.is_admin:
        found = await budgets.store.page(now, after, request.limit + 1)
        own_shares = None
    else:
        own = await _visible_agent(request.agent_id, budgets.actor, access)
        binding = await budgets.store.binding(own, now)
        found = [use for use in binding if after is None or use.budget.name > after]
        own_shares = await budgets.shares(found[: request.limit], own)
    shown = found[: request.limit]
    last = shown[-1].budget if len(found) > len(shown) else None
    shares = [
        await _largest_shares(use, budgets)
        if own_shares is None
        else [share for share in own_shares if share.budget.name.of_budget == use.budget.name]
        for use in shown
    ]
    known = await budgets.subjects_with_spend([*shown, *chain.from_iterable(shares)], own)
    return BudgetList(
        budgets=[_info(use, parts, known) for use, parts in zip(shown, shares, strict=True)],
        next_cursor=None if last is None else f"{last.subject}/{last.period}",
    )


@_write(
    "budget.delete",
    action="delete",
    http="DELETE /v1/budgets/{subject}/{period}",
    destructive=True,
    errors=(BudgetNotFound, AgentNotFound, TeamNotFound, PermissionDenied, SelfModification),
)
async def delete_budget(request: DeleteBudget, changes: BudgetChanges) -> BudgetDeleted:
    """Delete a budget with what was spent of it. For admins."""
    budgets, name = changes.budgets, BudgetName(request.subject, request.period)
    use = await budgets.store.find(name, to_micros(budgets.clock.now()))
    if use is None:
        raise BudgetNotFound(
            f"There is no budget of {subject_text(name.subject)} for a {name.period}.",
            resource_type="budget",
            resource_id=f"{name.subject}/{name.period}",
        )
    await changes.check_subject(name.subject)
    await budgets.store.delete(name)
    await budgets.clear_alerts(name)
    await budgets.outbox.publish(budget_event("budget.deleted", use, budgets.actor))
    return BudgetDeleted(subject=name.subject, period=name.period)


async def _visible_agent(agent_id: str | None, actor: Actor, access: AccessStore) -> str:
    """Return the agent whose budgets are listed: the caller, or one below it; as an admin, any."""
    if agent_id is None or agent_id == actor.principal_id:
        return actor.principal_id
    agent = await access.principal(agent_id)
    if agent is None or not (actor.is_admin or await is_descendant(actor.principal_id, agent, access)):
        raise _no_agent(agent_id)
    return agent_id


def _no_agent(agent_id: str) -> AgentNotFound:
    return AgentNotFound(f"There is no agent '{agent_id}'.", resource_type="agent", resource_id=agent_id)


def _after(cursor: str | None) -> BudgetName | None:
    if cursor is None:
        return None
    subject, _, period = cursor.rpartition("/")
    for known in PERIODS:
        if period == known:
            return BudgetName(subject, known)
    raise invalid_cursor("cursor")


async def _largest_shares(use: BudgetUse, budgets: Budgets) -> list[BudgetUse]:
    """Return the shares in a budget that spent the most."""
    if not use.budget.parts:
        return []
    spends = await budgets.store.shares(use.budget.name, use.starts_at, _LISTED_SHARES)
    found = ((use.budget.part(name), spend) for name, spend in spends.items())
    return [BudgetUse(share, spend, use.starts_at) for share, spend in found if share is not None]


def _share_info(use: BudgetUse, *, visible: bool) -> ShareInfo:
    budget, spend = use.budget, use.spend
    return ShareInfo(
        share=budget.share,
        tokens=budget.tokens,
        cost=budget.dollars,
        state=_state(use),
        used_tokens=spend.tokens if visible else None,
        used_cost=spend.nanodollars / NANODOLLARS if visible else None,
        calls=spend.calls if visible else None,
    )


def _state(use: BudgetUse) -> BudgetState:
    return "reached" if use.is_reached else "near" if use.is_near else "within"


def _info(use: BudgetUse, shares: Sequence[BudgetUse], known: AbstractSet[str]) -> BudgetInfo:
    """Return a budget and shares in it; what was spent only by those whose spend the caller may know."""
    budget, spend = use.budget, use.spend
    visible = budget.spender in known
    return BudgetInfo(
        subject=budget.subject,
        period=budget.period,
        tokens=budget.tokens,
        cost=budget.dollars,
        at_limit=budget.at_limit,
        warn_at=budget.warn_at,
        state=_state(use),
        used_tokens=spend.tokens if visible else None,
        used_cost=spend.nanodollars / NANODOLLARS if visible else None,
        calls=spend.calls if visible else None,
        unpriced_calls=spend.unpriced_calls if visible else None,
        starts_at=from_micros(use.starts_at),
        resets_at=use.resets_at,
        set_by=budget.set_by,
        set_at=from_micros(budget.set_at),
        tree_share=budget.tree_share,
        agent_share=budget.agent_share,
        shares=[_share_info(share, visible=share.budget.spender in known) for share in shares],
    )
