"""Budgets: what a tenant, a team or an agent may spend in a day or a month, in tokens and money."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import structs

from weftline.kernel.clock import from_micros, to_micros
from weftline.kernel.errors import NotFound, QuotaExceeded

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


# Budgets, what was spent of them, and the error at their limit.

# Calendar days and months in UTC.
Period = Literal["day", "month"]
PERIODS: tuple[Period, ...] = get_args(Period)
AtLimit = Literal["warn", "downgrade", "refuse"]
TENANT, TEAM, AGENT = "tenant", "team:", "agent:"
# A root agent with all agents below it; in the budget of an agent, one directly below that, likewise.
TREE = "tree:"
# Money is added up in billionths of a US dollar: sums of integers are exact.
NANODOLLARS = 1_000_000_000
DEFAULT_WARN_AT = 0.8
SUBJECT_PATTERN = r"^(tenant|(team|agent):[A-Za-z0-9][A-Za-z0-9_-]{0,99})\Z"
Subject = Annotated[
    str,
    msgspec.Meta(
        max_length=110,
        pattern=SUBJECT_PATTERN,
        description="Whose budget: tenant, team:NAME or agent:ID. Agents below an agent or a member count for it too.",
        examples=["agent:planner"],
    ),
]
# A month has at most this many days.
_LONGEST_MONTH = timedelta(days=31)


class BudgetNotFound(NotFound):
    """There is no such budget."""

    code = "BUDGET_NOT_FOUND"
    hint = "List the budgets with `budget.list`."
    related = ("budgets",)


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a subject in a period; at least one of tokens and nanodollars is set.

    ``warn_at``: part of a limit from which admins are warned. ``at_limit``: what happens at the limit. ``tree_share``
    and ``agent_share``: the part of the limits that one tree, and one agent, may spend. ``share`` is set if this is
    such a part: tree:ID or agent:ID.
    """

    subject: str
    period: Period
    tokens: int | None = None
    nanodollars: int | None = None
    at_limit: AtLimit = "warn"
    warn_at: float = DEFAULT_WARN_AT
    set_by: str = ""
    set_at: int = 0
    tree_share: float | None = None
    agent_share: float | None = None
    share: str = ""

    @property
    def name(self) -> BudgetName:
        return BudgetName(subject=self.subject, period=self.period, share=self.share)

    @property
    def spender(self) -> str:
        """Return the subject whose calls count: that of the budget, or the agent of a share."""
        return f"{AGENT}{self.share.partition(':')[2]}" if self.share else self.subject

    @property
    def parts(self) -> dict[str, float]:
        """Return the parts that a tree and an agent may spend, as far as they are set."""
        given = {TREE: self.tree_share, AGENT: self.agent_share}
        return {kind: part for kind, part in given.items() if part is not None}

    def part(self, share: str) -> Budget | None:
        """Return what a tree or an agent may spend of this budget; None if it has no such share."""
        part = self.parts.get(share.partition(":")[0] + ":")
        if part is None:
            return None
        tokens, money = (
            None if each is None else max(1, round(each * part)) for each in (self.tokens, self.nanodollars)
        )
        return structs.replace(self, tokens=tokens, nanodollars=money, tree_share=None, agent_share=None, share=share)

    @property
    def dollars(self) -> float | None:
        return None if self.nanodollars is None else self.nanodollars / NANODOLLARS


class BudgetName(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """A budget that a call counted for, or the share of a tree or an agent in it: tree:ID or agent:ID."""

    subject: str
    period: Period
    share: str = ""

    @property
    def of_budget(self) -> BudgetName:
        """Return the name without the share."""
        return BudgetName(self.subject, self.period)


class Spend(msgspec.Struct, frozen=True, kw_only=True):
    """What was spent of a budget in a period. ``unpriced_calls``: calls of models without a known price.

    ``near_at`` and ``exceeded_at``: when admins were told of the soft limit and of the limit.
    """

    tokens: int = 0
    nanodollars: int = 0
    calls: int = 0
    unpriced_calls: int = 0
    near_at: int | None = None
    exceeded_at: int | None = None


class BudgetUse(NamedTuple):
    """A budget and what was spent of it in the period that began at ``starts_at``."""

    budget: Budget
    spend: Spend
    starts_at: int

    @property
    def used(self) -> float:
        """Return the used part of the limit that is closer."""
        budget, spend = self.budget, self.spend
        return max(_part(spend.tokens, budget.tokens), _part(spend.nanodollars, budget.nanodollars))

    @property
    def is_near(self) -> bool:
        return self.used >= self.budget.warn_at

    @property
    def is_reached(self) -> bool:
        return self.used >= 1

    @property
    def is_over(self) -> bool:
        return self.used > 1

    @property
    def resets_at(self) -> datetime:
        return period_end(self.budget.period, self.starts_at)


class Charge(NamedTuple):
    """What a call adds to its budgets; a correction may be negative."""

    tokens: int
    nanodollars: int
    calls: int = 0
    unpriced_calls: int = 0

    @classmethod
    def of_call(cls, tokens: int, cost: float | None) -> Charge:
        """Return the charge of one call; ``cost`` is in US dollars, None without a known price."""
        return cls(tokens, nanodollars(cost or 0.0), 1, int(cost is None))

    def less(self, other: Charge) -> Charge:
        """Return what corrects another charge to this one."""
        return Charge(*(own - theirs for own, theirs in zip(self, other, strict=True)))


class BudgetExceeded(QuotaExceeded):
    """A budget of the caller is spent."""

    code = "BUDGET_EXCEEDED"
    hint = "Wait until the budget resets, or ask an admin for a higher one."
    related = ("budgets",)
    # Set by the rule that refuses the call, to tell admins once.
    use: BudgetUse | None = None


def budget_exceeded(use: BudgetUse, *, show_spend: bool) -> BudgetExceeded:
    """Return the error of a call that a budget refuses. What others spend is not shown to the agents that share it."""
    budget, spend, resets = use.budget, use.spend, utc_text(use.resets_at)
    limits: dict[str, Any] = {
        "share": budget.share or None,
        "limit_tokens": budget.tokens,
        "limit_cost": budget.dollars,
    }
    if show_spend:
        limits |= {"used_tokens": spend.tokens, "used_cost": spend.nanodollars / NANODOLLARS}
    error = BudgetExceeded(
        f"The {budget_text(budget)} for this {budget.period} ({_limits_text(budget)}) is spent, "
        f"or this call would exceed it. It resets at {resets}.",
        hint=f"Wait until {resets}, make the prompt smaller, or ask an admin for a higher budget or share "
        "(`budget.set`).",
        subject=budget.subject,
        period=budget.period,
        resets_at=resets,
        **{name: limit for name, limit in limits.items() if limit is not None},
    )
    error.use = use
    return error


def subject_text(subject: str) -> str:
    """Return a subject in words, such as "the team 'research'"."""
    kind, _, name = subject.partition(":")
    return f"the {kind} '{name}'" if name else f"the {kind}"


def budget_text(budget: Budget) -> str:
    """Return a budget in words, such as "share of the agent 'writer' in the budget of the tenant"."""
    whole = f"budget of {subject_text(budget.subject)}"
    return f"share of {subject_text(budget.share)} in the {whole}" if budget.share else whole


def shares_of(agent_id: str, subject: str, parents: Mapping[str, str | None]) -> dict[str, str]:
    """Return the shares that calls of an agent count for, by kind. ``parents``: of it and the agents above it."""
    top, visited = agent_id, {agent_id}
    while f"{AGENT}{top}" != subject:
        parent = parents.get(top)
        if parent is None or parent in visited or parent not in parents or f"{AGENT}{parent}" == subject:
            break
        visited.add(parent)
        top = parent
    return {TREE: f"{TREE}{top}", AGENT: f"{AGENT}{agent_id}"}


def utc_text(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


def nanodollars(dollars: float) -> int:
    return round(dollars * NANODOLLARS)


def period_start(period: Period, at: int) -> int:
    """Return the start of the calendar day or month, in UTC, that a time is in."""
    midnight = from_micros(at).replace(hour=0, minute=0, second=0, microsecond=0)
    return to_micros(midnight if period == "day" else midnight.replace(day=1))


def period_end(period: Period, starts_at: int) -> datetime:
    start = from_micros(starts_at)
    return start + timedelta(days=1) if period == "day" else (start + _LONGEST_MONTH).replace(day=1)


def _part(used: int, limit: int | None) -> float:
    return 0.0 if limit is None else used / limit


def _limits_text(budget: Budget) -> str:
    texts = [] if budget.tokens is None else [f"{budget.tokens} tokens"]
    texts += [] if budget.dollars is None else [f"{budget.dollars:g} US dollars"]
    return ", ".join(texts)
