"""Evaluation of alerts: judges the agents that made calls, opens alerts and resolves those whose condition has ended.

Done in the background, so that a call pays nothing for it. The work is constant for each agent that made calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from weftline.access.plans.service import Plans
from weftline.access.sql import AccessStore
from weftline.history.store import LineStore
from weftline.insight.alerts.agent_calls import AgentCalls
from weftline.insight.alerts.conditions import ConditionResult, judge_conditions
from weftline.insight.alerts.model import STALE_MICROS, WATCHED
from weftline.insight.alerts.service import Alerts
from weftline.kernel.alerts import AlertSubject, agent_subject
from weftline.models.budgets.model import period_start
from weftline.state.agent_context.alert_settings import AlertSettings, ResolvedAlerts
from weftline.windows.agent_settings import inherited_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.insight.alerts.model import Alert
    from weftline.kernel.alerts import AlertCondition
    from weftline.kernel.ports import CacheKey

# The key of definitions and layers that holds alert settings.
ALERTS = "alerts"
# Memory of the alert settings of an agent, about.
_SETTINGS_BYTES = 500
_BATCH = 100


class AlertSettingsCache(Protocol):
    """Cache of the alert settings of agents, by tenant, agent and epoch of the tenant's access rules."""

    def get(self, key: CacheKey) -> ResolvedAlerts | None: ...

    def put(self, key: CacheKey, value: ResolvedAlerts, weight: int = 1) -> None: ...


class AgentFinding(NamedTuple):
    """A finding about an agent, and its active alert of that condition."""

    agent_id: str
    finding: ConditionResult
    active: Alert | None

    @property
    def is_new(self) -> bool:
        return self.active is None and self.finding.verdict == "holds"


class EvaluationRound(NamedTuple):
    """What to change after a look at the calls up to ``seq``."""

    seq: int
    changes: Sequence[AgentFinding]
    has_more: bool


class AlertEvaluation(msgspec.Struct, frozen=True):
    """What an evaluation needs, in one transaction."""

    alerts: Alerts
    calls: AgentCalls
    access: AccessStore
    lines: LineStore
    plans: Plans
    settings: AlertSettingsCache

    async def look(self, after: int) -> EvaluationRound:
        """Judge the agents of the next calls; only reads."""
        touched = await self.calls.since(after)
        if "alerts" not in (await self.plans.allowance()).insight:
            return EvaluationRound(touched.seq, (), touched.has_more)
        found: list[AgentFinding] = []
        for start in range(0, len(touched.agents), _BATCH):
            found += await self._judge(touched.agents[start : start + _BATCH])
        return EvaluationRound(touched.seq, found, touched.has_more)

    async def apply(self, changes: Sequence[AgentFinding]) -> None:
        """Open and resolve alerts, and update the figures of those that still hold."""
        for condition in sorted(WATCHED):
            of_condition = [change for change in changes if change.finding.condition == condition]
            new = {agent_subject(each.agent_id): each.finding.data for each in of_condition if each.is_new}
            if new:
                await self.alerts.open(condition, new)
            still = [
                (each.active, each.finding.data)
                for each in of_condition
                if each.active is not None and each.finding.verdict != "ended"
            ]
            await self.alerts.see(still)
            over = [each.active for each in of_condition if each.active and each.finding.verdict == "ended"]
            if over:
                await self.alerts.resolve_all(over)

    async def resolve_stale(self, limit: int) -> int:
        """Resolve alerts about agents that made no calls for long, and budgets of past periods; return how many."""
        now, store = self.alerts.now, self.alerts.store
        stale = await store.stale(sorted(WATCHED), now - STALE_MICROS, limit)
        ended = await store.of_ended_periods(period_start("day", now), period_start("month", now), limit)
        return await self.alerts.resolve_all([*stale, *ended][:limit])

    async def _judge(self, agent_ids: Sequence[str]) -> list[AgentFinding]:
        epoch = await self.access.epoch()
        settings = await self._settings(agent_ids, epoch)
        recent = await self.calls.recent({agent_id: each.calls for agent_id, each in settings.items()})
        resolved = await self.alerts.store.resolved_by_hand(agent_ids)
        active: dict[tuple[AlertCondition, AlertSubject], Alert] = {
            (alert.condition, alert.subject): alert
            for alert in await self.alerts.store.active_of_agents(agent_ids)
            if alert.condition in WATCHED
        }
        found: list[AgentFinding] = []
        for agent_id in agent_ids:
            since = {condition: resolved.get((condition, agent_id), 0) for condition in WATCHED}
            for finding in judge_conditions(recent.get(agent_id, ()), settings[agent_id], since):
                known = active.get((finding.condition, agent_subject(agent_id)))
                if known is not None or finding.verdict == "holds":
                    found.append(AgentFinding(agent_id, finding, known))
        return found

    async def _settings(self, agent_ids: Sequence[str], epoch: int | None) -> dict[str, ResolvedAlerts]:
        """Return the alert settings of agents. Changes of them advance the epoch."""
        keys = {agent_id: (self.access.tenant, agent_id, epoch) for agent_id in agent_ids}
        found = {agent_id: known for agent_id in agent_ids if (known := self.settings.get(keys[agent_id])) is not None}
        missing = [agent_id for agent_id in agent_ids if agent_id not in found]
        read = await inherited_settings(missing, ALERTS, AlertSettings, self.lines, self.access) if missing else {}
        for agent_id, settings in read.items():
            found[agent_id] = ResolvedAlerts.of(settings)
            self.settings.put(keys[agent_id], found[agent_id], _SETTINGS_BYTES)
        return found
