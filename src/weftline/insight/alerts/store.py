"""Storage port of alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.insight.alerts.conditions import RecentCall
    from weftline.insight.alerts.model import Alert, AlertState
    from weftline.kernel.alerts import AlertCondition, AlertSubject


class AlertReader(NamedTuple):
    """Whose alerts are listed: those about itself and the agents below it; for admins all. Up to its clearance."""

    principal_id: str
    clearance: int
    is_admin: bool


class AlertFilter(NamedTuple):
    """Which alerts are listed. Admins see those in a digest only if they ask for the digest or the subject."""

    states: tuple[AlertState, ...] = ()
    condition: AlertCondition | None = None
    subject: AlertSubject | None = None
    digest_id: str | None = None


class AlertStore(Protocol):
    """Alerts of the transaction's tenant."""

    async def add(self, alert: Alert) -> bool:
        """Add an alert; False if there is an active one of its condition, subject and ``about``."""
        ...

    async def add_digested(self, alerts: Sequence[Alert]) -> None:
        """Add alerts in a digest, without those whose condition and subject have an active one."""
        ...

    async def find(self, alert_id: str) -> Alert | None: ...

    async def active(self, condition: AlertCondition, subject: AlertSubject, about: str = "") -> Alert | None: ...

    async def active_of_agents(self, agent_ids: Sequence[str]) -> Sequence[Alert]:
        """Return the active alerts about these agents."""
        ...

    async def resolved_by_hand(self, agent_ids: Sequence[str]) -> dict[tuple[AlertCondition, str], int]:
        """Return when someone last resolved alerts about these agents, by condition and agent."""
        ...

    async def page(self, reader: AlertReader, wanted: AlertFilter, before: str | None, limit: int) -> Sequence[Alert]:
        """Return alerts that the reader may see, newest first, older than ``before``."""
        ...

    async def update(self, alert: Alert, *, expected: AlertState) -> bool:
        """Store the state and the figures of an alert that is in the expected state; False if it is not."""
        ...

    async def see(self, alerts: Sequence[Alert]) -> None:
        """Store the figures and ``seen_at`` of alerts that are still active."""
        ...

    async def count_of_agents(self, condition: AlertCondition) -> int:
        """Return how many active alerts of this condition are about an agent and in no digest."""
        ...

    async def in_digest(self, digest_id: str, limit: int) -> Sequence[Alert]:
        """Return active alerts in a digest, the oldest first."""
        ...

    async def count_in_digest(self, digest_id: str) -> int:
        """Return how many active alerts are in a digest."""
        ...

    async def resolve_digested(self, alert_ids: Sequence[str], at: int) -> int:
        """Resolve alerts in digests; return how many were active."""
        ...

    async def resolve_digest(self, digest_id: str, resolved_by: str | None, at: int) -> None:
        """Resolve all alerts in a digest."""
        ...

    async def leave_digest(self, digest_id: str) -> None:
        """Take the active alerts in a digest out of it."""
        ...

    async def stale(self, conditions: Sequence[AlertCondition], before: int, limit: int) -> Sequence[Alert]:
        """Return active alerts about agents whose condition was last seen before a time."""
        ...

    async def of_ended_periods(self, day: int, month: int, limit: int) -> Sequence[Alert]:
        """Return active alerts about budgets whose day or month is over; ``day`` and ``month`` are when those began."""
        ...

    async def prune(self, before: int, limit: int) -> int:
        """Delete alerts that were resolved before a time; return how many."""
        ...


class AgentsWithCalls(NamedTuple):
    """The agents of new usage entries, and the number of the last of these."""

    agents: Sequence[str]
    seq: int
    has_more: bool


class AgentCalls(Protocol):
    """Calls of agents, as metering and receipts have them."""

    async def since(self, seq: int) -> AgentsWithCalls:
        """Return the agents of the next usage entries after a number: of new calls, reports and scores."""
        ...

    async def recent(self, limits: Mapping[str, int]) -> Mapping[str, Sequence[RecentCall]]:
        """Return the latest calls of agents, newest first, as many as each one's limit; only those with figures."""
        ...
