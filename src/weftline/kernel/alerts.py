"""Alerts as other slices raise them: conditions, subjects and the port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

# What alerts are about. The first two are watched in the background; the others are raised where budgets, quotas,
# indexes and answers are checked.
AlertCondition = Literal[
    "context.overload",
    "efficiency.low",
    "budget.near",
    "budget.exceeded",
    "quota.near",
    "index.damaged",
    "quality.dropped",
]
ALERT_CONDITIONS: tuple[AlertCondition, ...] = get_args(AlertCondition)
SubjectKind = Literal["agent", "team", "tenant"]


class AlertSubject(NamedTuple):
    """Whom an alert is about: an agent, a team, or the tenant, which has no name."""

    kind: SubjectKind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind

    @classmethod
    def parse(cls, text: str) -> AlertSubject:
        """Return the subject that is written as agent:ID, team:NAME or tenant."""
        kind, _, name = text.partition(":")
        return cls(cast("SubjectKind", kind), name)


TENANT_SUBJECT = AlertSubject("tenant")


def agent_subject(agent_id: str) -> AlertSubject:
    return AlertSubject("agent", agent_id)


def team_subject(team: str) -> AlertSubject:
    return AlertSubject("team", team)


class AlertPort(Protocol):
    """Opens and resolves alerts in the caller's transaction."""

    async def raise_(
        self, condition: AlertCondition, subject: AlertSubject, data: Mapping[str, Any], *, about: str = ""
    ) -> bool:
        """Open an alert with these figures; return whether it is new.

        There is one active alert of each condition and subject; if both can have several, ``about`` names the quota or
        budget. Raising an active one again updates its figures at most once a minute.
        """
        ...

    async def clear(self, condition: AlertCondition, subject: AlertSubject, *, about: str = "") -> bool:
        """Resolve the active alert, if there is one: the condition does not hold any more."""
        ...
