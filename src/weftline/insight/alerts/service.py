"""Service of alerts: open, acknowledge and resolve them on behalf of one caller, in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from weftline.access.grants import is_descendant, may_read_as_admin
from weftline.access.plan_warnings import Plans
from weftline.access.sql import AccessStore
from weftline.history.lines import LineStore
from weftline.insight.alerts.model import (
    ALL_AGENTS,
    AUDIENCE_OF_ADMINS,
    DIGEST_CLEAR,
    DIGEST_FROM,
    STALE_MICROS,
    UPDATE_MICROS,
    WATCHED,
    Alert,
    AlertNotFound,
    AlertResolved,
    AlertState,
    ConditionResult,
    audience_of_agent,
    judge_conditions,
)
from weftline.insight.alerts.sql import AgentCalls, AlertReader, AlertStore
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import PermissionDenied
from weftline.kernel.events import TENANT_SUBJECT, AlertSubject, NewEvent, agent_subject
from weftline.kernel.fields import new_ordered_id
from weftline.kernel.identity import Actor, PrincipalKind
from weftline.kernel.outbox import Outbox
from weftline.models.budgets import period_start
from weftline.state.agent_context.settings import AlertSettings, ResolvedAlerts
from weftline.windows.agent_settings import inherited_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.insight.alerts.model import AlertAudience
    from weftline.kernel.events import AlertCondition, EventType
    from weftline.kernel.ports import CacheKey


class Alerts(msgspec.Struct, frozen=True):
    """Alerts of the caller's tenant. Implements the AlertPort of other slices."""

    actor: Actor
    store: AlertStore
    access: AccessStore
    outbox: Outbox
    clock: Clock

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    @property
    def reader(self) -> AlertReader:
        return AlertReader(self.actor.principal_id, self.actor.clearance, self.actor.is_admin)

    async def raise_(
        self, condition: AlertCondition, subject: AlertSubject, data: Mapping[str, Any], *, about: str = ""
    ) -> bool:
        known = await self.store.active(condition, subject, about)
        if known is not None:
            await self.see([(known, data)])
            return False
        return await self.open(condition, {subject: data}, about=about) > 0

    async def clear(self, condition: AlertCondition, subject: AlertSubject, *, about: str = "") -> bool:
        known = await self.store.active(condition, subject, about)
        return known is not None and await self.resolve_all([known]) > 0

    async def open(
        self, condition: AlertCondition, found: Mapping[AlertSubject, Mapping[str, Any]], *, about: str = ""
    ) -> int:
        """Open alerts about subjects without an active one; return how many are new.

        From ``DIGEST_FROM`` agents on, further ones get no event of their own: they are in the digest of the tenant.
        """
        own = await self.store.count_of_agents(condition)
        digest = await self.store.active(condition, TENANT_SUBJECT, ALL_AGENTS)
        is_new = False
        opened, digested = list[Alert](), list[Alert]()
        for subject, data in found.items():
            is_agent = subject.kind == "agent"
            if is_agent and digest is None and own >= DIGEST_FROM:
                digest, is_new = await self._open_digest(condition)
            alert = self._new(condition, subject, data, about, digest if is_agent else None)
            if alert.digest_id is not None:
                digested.append(alert)
            elif await self.store.add(alert):
                opened.append(alert)
                own += is_agent
        await self._publish("alert.opened", opened)
        if digest is not None and digested:
            await self.store.add_digested(digested)
            digest = await self._count(digest, own)
            await self._publish("alert.opened", [digest] if is_new else [])
        return len(opened) + len(digested)

    async def see(self, alerts: Sequence[tuple[Alert, Mapping[str, Any]]]) -> None:
        """Note that the conditions of active alerts still hold, with their figures, at most once a minute."""
        now = self.now
        due = [(alert, data) for alert, data in alerts if now - alert.seen_at >= UPDATE_MICROS]
        await self.store.see([replace(alert, data=dict(data), seen_at=now) for alert, data in due])

    async def resolve_all(self, alerts: Sequence[Alert]) -> int:
        """Resolve alerts whose condition does not hold any more; return how many were active."""
        own = [alert for alert in alerts if alert.digest_id is None and await self._resolve(alert, None)]
        await self._publish("alert.resolved", [self._resolved(alert, None) for alert in own])
        digested = [alert for alert in alerts if alert.digest_id is not None]
        ended = await self.store.resolve_digested([alert.alert_id for alert in digested], self.now)
        for digest_id in sorted({alert.digest_id for alert in digested if alert.digest_id is not None}):
            await self._settle(digest_id)
        return len(own) + ended

    async def find(self, alert_id: str) -> Alert:
        """Return an alert that the caller may see."""
        alert = await self.store.find(alert_id)
        if alert is None or not await self._may_see(alert.subject):
            raise AlertNotFound(f"There is no alert '{alert_id}'.", resource_type="alert", resource_id=alert_id)
        return alert

    async def acknowledge(self, alert_id: str) -> Alert:
        """Note that the caller looks into an alert; one that is acknowledged already stays as it is."""
        alert = await self._to_change(alert_id)
        if alert.state is AlertState.ACKNOWLEDGED:
            return alert
        done = replace(
            alert, state=AlertState.ACKNOWLEDGED, acknowledged_at=self.now, acknowledged_by=self.actor.participant
        )
        if alert.state is AlertState.RESOLVED or not await self.store.update(done, expected=AlertState.OPEN):
            raise AlertResolved(f"The alert '{alert_id}' is resolved.", resource_type="alert", resource_id=alert_id)
        await self._publish("alert.acknowledged", [done])
        return done

    async def resolve(self, alert_id: str) -> Alert:
        """Resolve an alert, a digest with all alerts in it; one that is resolved already stays as it is."""
        alert = await self._to_change(alert_id)
        by = self.actor.participant
        if not alert.is_active or not await self._resolve(alert, by):
            return await self.find(alert_id)
        if alert.is_digest:
            await self.store.resolve_digest(alert_id, by, self.now)
        await self._publish("alert.resolved", [done := self._resolved(alert, by)])
        if alert.digest_id is not None:
            await self._settle(alert.digest_id)
        return done

    async def _may_see(self, subject: AlertSubject) -> bool:
        if subject.kind != "agent":
            return self.actor.is_admin
        agent = await self.access.principal(subject.name)
        if agent is None:
            return False
        if self.actor.principal_id == agent.principal_id or may_read_as_admin(self.actor, agent):
            return True
        is_above = await is_descendant(self.actor.principal_id, agent, self.access)
        return is_above and agent.clearance <= self.actor.clearance

    async def _to_change(self, alert_id: str) -> Alert:
        alert = await self.find(alert_id)
        if self.actor.kind is PrincipalKind.AGENT and await self._is_about_caller(alert):
            raise PermissionDenied(
                "An agent does not acknowledge or resolve alerts about itself.",
                hint="Change what the alert is about; it is resolved when the condition has ended.",
                related=("alerts",),
            )
        return alert

    async def _is_about_caller(self, alert: Alert) -> bool:
        """Tell whether an alert is about the caller, or a digest with such an alert in it."""
        own = self.actor.principal_id
        if not alert.is_digest:
            return alert.subject == agent_subject(own)
        return any(each.digest_id == alert.alert_id for each in await self.store.active_of_agents([own]))

    def _new(
        self,
        condition: AlertCondition,
        subject: AlertSubject,
        data: Mapping[str, Any],
        about: str,
        digest: Alert | None = None,
    ) -> Alert:
        return Alert(
            alert_id=f"alert_{new_ordered_id()}",
            condition=condition,
            subject=subject,
            about=about,
            data=dict(data),
            opened_at=self.now,
            seen_at=self.now,
            digest_id=None if digest is None else digest.alert_id,
        )

    async def _open_digest(self, condition: AlertCondition) -> tuple[Alert, bool]:
        """Return the digest of a condition, and whether it is new: another transaction may have been faster."""
        alert = self._new(condition, TENANT_SUBJECT, {"agents": 0}, ALL_AGENTS)
        if await self.store.add(alert):
            return alert, True
        return await self.store.active(condition, TENANT_SUBJECT, ALL_AGENTS) or alert, False

    async def _count(self, digest: Alert, own: int) -> Alert:
        """Update how many agents a digest is about, including those that have an alert of their own."""
        agents = own + await self.store.count_in_digest(digest.alert_id)
        counted = replace(digest, data={"agents": agents}, seen_at=self.now)
        await self.store.update(counted, expected=digest.state)
        return counted

    async def _settle(self, digest_id: str) -> None:
        """Resolve a digest once few agents are left; they have alerts of their own from then on."""
        digest = await self.store.find(digest_id)
        if digest is None or not digest.is_active:
            return
        own = await self.store.count_of_agents(digest.condition)
        if own + await self.store.count_in_digest(digest_id) > DIGEST_CLEAR:
            await self._count(digest, own)
        elif await self._resolve(digest, None):
            left = await self.store.in_digest(digest_id, DIGEST_CLEAR)
            await self.store.leave_digest(digest_id)
            await self._publish("alert.resolved", [self._resolved(digest, None)])
            await self._publish("alert.opened", left)

    async def _resolve(self, alert: Alert, by: str | None) -> bool:
        return await self.store.update(self._resolved(alert, by), expected=alert.state)

    def _resolved(self, alert: Alert, by: str | None) -> Alert:
        return replace(alert, state=AlertState.RESOLVED, resolved_at=self.now, resolved_by=by)

    async def _publish(self, event_type: EventType, alerts: Sequence[Alert]) -> None:
        await self.outbox.publish(*[await self._event(event_type, alert) for alert in alerts])

    async def _event(self, event_type: EventType, alert: Alert) -> NewEvent:
        audience = await self._audience(alert.subject)
        about = {"about": alert.about} if alert.about else {}
        data = {"condition": alert.condition, "subject": str(alert.subject), **about, **alert.data}
        return NewEvent(
            type=event_type,
            session_id=None,
            subject=alert.alert_id,
            actor=self.actor.participant,
            participants=audience.participants,
            readable_by=audience.readable_by,
            data=data,
        )

    async def _audience(self, subject: AlertSubject) -> AlertAudience:
        agent = await self.access.principal(subject.name) if subject.kind == "agent" else None
        if agent is None:
            return AUDIENCE_OF_ADMINS
        return audience_of_agent(agent, await self.access.ancestors(agent.principal_id))


# Evaluation of alerts: judges the agents that made calls, opens alerts and resolves those whose condition has ended.
#
# Done in the background, so that a call pays nothing for it. The work is constant for each agent that made calls.

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
