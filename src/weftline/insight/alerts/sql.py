"""Alerts in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weftline.insight.alerts.model import Alert, AlertState, RecentCall
from weftline.kernel.events import ALERT_CONDITIONS, AlertSubject, agent_subject
from weftline.kernel.transaction import SqlStore, placeholders

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.kernel.events import AlertCondition
    from weftline.kernel.transaction import Row, Transaction, Value


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


_COLUMNS = """alert_id, condition, subject, about, state, data, opened_at, seen_at, acknowledged_at, acknowledged_by,
    resolved_at, resolved_by, digest_id"""
_SELECT = f"SELECT {_COLUMNS} FROM alerts WHERE tenant = $1 "  # noqa: S608 - fixed columns
_ADD = f"""
INSERT INTO alerts (tenant, {_COLUMNS}) VALUES ({placeholders(1, 14)}) ON CONFLICT DO NOTHING
"""  # noqa: S608 - fixed columns
_UPDATE = """
UPDATE alerts SET state = $1, data = $2, seen_at = $3, acknowledged_at = $4, acknowledged_by = $5, resolved_at = $6,
    resolved_by = $7
WHERE tenant = $8 AND alert_id = $9 AND state = $10
"""
_RESOLVED_BY_HAND = """
SELECT condition, subject, MAX(resolved_at) FROM alerts
WHERE tenant = $1 AND subject {among_texts}$2{end_among_texts} AND resolved_by IS NOT NULL
GROUP BY condition, subject
"""
# Readers: an agent reads what is about itself and those below it; an admin everything; both up to their clearance.
_BELOW = """
WITH RECURSIVE below_it (principal_id) AS (
    SELECT principal_id FROM principals WHERE tenant = $1 AND principal_id = $2
    UNION
    SELECT p.principal_id FROM below_it CROSS JOIN principals p
    WHERE p.tenant = $1 AND p.parent_id = below_it.principal_id)
"""
_FOR_OTHERS = """
AND subject IN (SELECT 'agent:' || p.principal_id FROM below_it CROSS JOIN principals p
    WHERE p.tenant = $1 AND p.principal_id = below_it.principal_id AND p.clearance <= $3)
"""
_FOR_ADMINS = """
AND $2 <> '' AND (SUBSTR(subject, 1, 6) <> 'agent:' OR EXISTS (
    SELECT 1 FROM principals p
    WHERE p.tenant = alerts.tenant AND p.principal_id = SUBSTR(subject, 7) AND p.clearance <= $3))
"""
_WANTED = f"""
AND alert_id < $4 AND ($5 = '' OR condition = $5) AND state IN ({placeholders(6, len(AlertState))})
AND ($9 = '' OR subject = $9) AND ($10 = '' OR digest_id = $10)
"""
_NOT_DIGESTED = "AND (digest_id IS NULL OR $9 <> '' OR $10 <> '')"
_NEWEST = "ORDER BY alert_id DESC LIMIT $11"
_PAGE_OF_ADMIN = _SELECT + _FOR_ADMINS + _WANTED + _NOT_DIGESTED + _NEWEST
_PAGE = _BELOW + _SELECT + _FOR_OTHERS + _WANTED + _NEWEST
_STALE = f"""
AND state <> 'resolved' AND SUBSTR(subject, 1, 6) = 'agent:' AND seen_at < $2
AND condition IN ({placeholders(3, len(ALERT_CONDITIONS))}) ORDER BY alert_id LIMIT ${3 + len(ALERT_CONDITIONS)}
"""
_ENDED_PERIODS = """
state <> 'resolved' AND condition IN ('budget.near', 'budget.exceeded')
AND seen_at < CASE about WHEN 'day' THEN CAST({day} AS {{bigint}}) WHEN 'month' THEN CAST({month} AS {{bigint}}) END
"""
_PRUNE = """
DELETE FROM alerts WHERE tenant = $1 AND alert_id IN (
    SELECT alert_id FROM alerts WHERE tenant = $1 AND resolved_at < $2 ORDER BY resolved_at LIMIT $3)
"""
# Greater than every id.
_LAST_ID = "b"
_encode = msgspec.json.Encoder().encode
_data = msgspec.json.Decoder(dict[str, Any]).decode


class AlertStore(SqlStore):
    """Alerts of the transaction's tenant."""

    async def add(self, alert: Alert) -> bool:
        """Add an alert; False if there is an active one of its condition, subject and ``about``."""
        return await self._tx.changed(_ADD, *self._row(alert)) > 0

    async def add_digested(self, alerts: Sequence[Alert]) -> None:
        """Add alerts in a digest, without those whose condition and subject have an active one."""
        await self._tx.many(_ADD, [self._row(alert) for alert in alerts])

    def _row(self, alert: Alert) -> tuple[Value, ...]:
        return (
            self._tenant,
            alert.alert_id,
            alert.condition,
            str(alert.subject),
            alert.about,
            alert.state,
            _encode(alert.data).decode(),
            alert.opened_at,
            alert.seen_at,
            alert.acknowledged_at,
            alert.acknowledged_by,
            alert.resolved_at,
            alert.resolved_by,
            alert.digest_id,
        )

    async def find(self, alert_id: str) -> Alert | None:
        return _optional(await self._tx.one(_SELECT + "AND alert_id = $2", self._tenant, alert_id))

    async def active(self, condition: AlertCondition, subject: AlertSubject, about: str = "") -> Alert | None:
        row = await self._tx.one(
            _SELECT + "AND subject = $2 AND condition = $3 AND about = $4 AND state <> 'resolved'",
            self._tenant,
            str(subject),
            condition,
            about,
        )
        return _optional(row)

    async def active_of_agents(self, agent_ids: Sequence[str]) -> Sequence[Alert]:
        """Return the active alerts about these agents."""
        rows = await self._tx.all(
            _SELECT + "AND subject {among_texts}$2{end_among_texts} AND state <> 'resolved' ORDER BY alert_id",
            self._tenant,
            _subjects(agent_ids),
        )
        return [_alert(row) for row in rows]

    async def resolved_by_hand(self, agent_ids: Sequence[str]) -> dict[tuple[AlertCondition, str], int]:
        """Return when someone last resolved alerts about these agents, by condition and agent."""
        rows = await self._tx.all(_RESOLVED_BY_HAND, self._tenant, _subjects(agent_ids))
        return {(condition, AlertSubject.parse(subject).name): at for condition, subject, at in rows}

    async def page(self, reader: AlertReader, wanted: AlertFilter, before: str | None, limit: int) -> Sequence[Alert]:
        """Return alerts that the reader may see, newest first, older than ``before``."""
        # The last state repeats, so that there is one statement.
        states = [*(wanted.states or AlertState)]
        states += states[-1:] * (len(AlertState) - len(states))
        rows = await self._tx.all(
            _PAGE_OF_ADMIN if reader.is_admin else _PAGE,
            self._tenant,
            reader.principal_id,
            reader.clearance,
            before or _LAST_ID,
            wanted.condition or "",
            *states,
            "" if wanted.subject is None else str(wanted.subject),
            wanted.digest_id or "",
            limit,
        )
        return [_alert(row) for row in rows]

    async def update(self, alert: Alert, *, expected: AlertState) -> bool:
        """Store the state and the figures of an alert that is in the expected state; False if it is not."""
        changed = await self._tx.changed(
            _UPDATE,
            alert.state,
            _encode(alert.data).decode(),
            alert.seen_at,
            alert.acknowledged_at,
            alert.acknowledged_by,
            alert.resolved_at,
            alert.resolved_by,
            self._tenant,
            alert.alert_id,
            expected,
        )
        return changed > 0

    async def see(self, alerts: Sequence[Alert]) -> None:
        """Store the figures and ``seen_at`` of alerts that are still active."""
        await self._tx.many(
            "UPDATE alerts SET data = $1, seen_at = $2 WHERE tenant = $3 AND alert_id = $4 AND state <> 'resolved'",
            [(_encode(alert.data).decode(), alert.seen_at, self._tenant, alert.alert_id) for alert in alerts],
        )

    async def count_of_agents(self, condition: AlertCondition) -> int:
        """Return how many active alerts of this condition are about an agent and in no digest."""
        row = await self._tx.one(
            "SELECT COUNT(*) FROM alerts WHERE tenant = $1 AND condition = $2 AND state <> 'resolved'"
            " AND digest_id IS NULL AND subject > 'agent:' AND subject < 'agent;'",
            self._tenant,
            condition,
        )
        return 0 if row is None else int(row[0])

    async def in_digest(self, digest_id: str, limit: int) -> Sequence[Alert]:
        """Return active alerts in a digest, the oldest first."""
        rows = await self._tx.all(
            _SELECT + "AND digest_id = $2 AND state <> 'resolved' ORDER BY alert_id LIMIT $3",
            self._tenant,
            digest_id,
            limit,
        )
        return [_alert(row) for row in rows]

    async def count_in_digest(self, digest_id: str) -> int:
        """Return how many active alerts are in a digest."""
        row = await self._tx.one(
            "SELECT COUNT(*) FROM alerts WHERE tenant = $1 AND digest_id = $2 AND state <> 'resolved'",
            self._tenant,
            digest_id,
        )
        return 0 if row is None else int(row[0])

    async def resolve_digested(self, alert_ids: Sequence[str], at: int) -> int:
        """Resolve alerts in digests; return how many were active."""
        return await self._tx.changed(
            "UPDATE alerts SET state = 'resolved', resolved_at = $1"
            " WHERE tenant = $2 AND alert_id {among_texts}$3{end_among_texts} AND state <> 'resolved'",
            at,
            self._tenant,
            _encode(alert_ids).decode(),
        )

    async def resolve_digest(self, digest_id: str, resolved_by: str | None, at: int) -> None:
        """Resolve all alerts in a digest."""
        await self._tx.run(
            "UPDATE alerts SET state = 'resolved', resolved_by = $1, resolved_at = $2"
            " WHERE tenant = $3 AND digest_id = $4 AND state <> 'resolved'",
            resolved_by,
            at,
            self._tenant,
            digest_id,
        )

    async def leave_digest(self, digest_id: str) -> None:
        """Take the active alerts in a digest out of it."""
        await self._tx.run(
            "UPDATE alerts SET digest_id = NULL WHERE tenant = $1 AND digest_id = $2 AND state <> 'resolved'",
            self._tenant,
            digest_id,
        )

    async def stale(self, conditions: Sequence[AlertCondition], before: int, limit: int) -> Sequence[Alert]:
        """Return active alerts about agents whose condition was last seen before a time."""
        wanted = [*conditions]
        wanted += wanted[-1:] * (len(ALERT_CONDITIONS) - len(wanted))
        rows = await self._tx.all(_SELECT + _STALE, self._tenant, before, *wanted, limit)
        return [_alert(row) for row in rows]

    async def of_ended_periods(self, day: int, month: int, limit: int) -> Sequence[Alert]:
        """Return active alerts about budgets whose day or month is over; ``day`` and ``month`` are when those began."""
        ended = _ENDED_PERIODS.format(day="$2", month="$3")
        rows = await self._tx.all(f"{_SELECT} AND {ended} ORDER BY alert_id LIMIT $4", self._tenant, day, month, limit)
        return [_alert(row) for row in rows]

    async def prune(self, before: int, limit: int) -> int:
        """Delete alerts that were resolved before a time; return how many."""
        return await self._tx.changed(_PRUNE, self._tenant, before, limit)


async def tenants_with_old_alerts(
    transaction: Transaction, resolved_before: int, seen_before: int, day: int, month: int
) -> list[str]:
    """Return the tenants with alerts to delete, with active ones that were last seen before a time, or of budgets."""
    ended = _ENDED_PERIODS.format(day="$3", month="$4")
    rows = await transaction.all(
        "SELECT tenant FROM tenants t WHERE EXISTS ("  # noqa: S608 - constants
        "SELECT 1 FROM alerts a WHERE a.tenant = t.tenant AND a.resolved_at < $1) OR EXISTS ("
        "SELECT 1 FROM alerts a WHERE a.tenant = t.tenant AND a.state <> 'resolved' AND a.seen_at < $2) OR EXISTS ("
        f"SELECT 1 FROM alerts a WHERE a.tenant = t.tenant AND {ended}) ORDER BY tenant",
        resolved_before,
        seen_before,
        day,
        month,
    )
    return [row[0] for row in rows]


def _subjects(agent_ids: Sequence[str]) -> str:
    return _encode([str(agent_subject(agent_id)) for agent_id in agent_ids]).decode()


def _optional(row: Row | None) -> Alert | None:
    return None if row is None else _alert(row)


def _alert(row: Row) -> Alert:
    (
        alert_id,
        condition,
        subject,
        about,
        state,
        data,
        opened_at,
        seen_at,
        acknowledged_at,
        acknowledged_by,
        resolved_at,
        resolved_by,
        digest_id,
    ) = row
    return Alert(
        alert_id=alert_id,
        condition=condition,
        subject=AlertSubject.parse(subject),
        about=about,
        state=AlertState(state),
        data=_data(data),
        opened_at=opened_at,
        seen_at=seen_at,
        acknowledged_at=acknowledged_at,
        acknowledged_by=acknowledged_by,
        resolved_at=resolved_at,
        resolved_by=resolved_by,
        digest_id=digest_id,
    )


# Latest calls of agents in SQL: which agents made some, from usage entries, and their figures, from receipts.


class AgentsWithCalls(NamedTuple):
    """The agents of new usage entries, and the number of the last of these."""

    agents: Sequence[str]
    seq: int
    has_more: bool


_ENTRIES = 2_000
_SINCE = """
SELECT seq, agent_id FROM usage_entries WHERE tenant = $1 AND seq > $2 ORDER BY seq LIMIT $3
"""
# Agents of one statement: a thousand statements are a thousand round trips to PostgreSQL.
_AGENTS = 20
_RECENT = " UNION ALL ".join(
    f"""
SELECT * FROM (
    SELECT agent_id, receipt_id, created_at, assembled_tokens, capacity_tokens, overhead_tokens, useful_tokens,
        efficiency_basis
    FROM receipts WHERE tenant = $1 AND agent_id = ${place} ORDER BY created_at DESC, receipt_id DESC LIMIT ${place + 1}
) AS calls_of_{place}
"""  # noqa: S608 - constants
    for place in range(2, 2 + 2 * _AGENTS, 2)
)
_TENANTS = """
SELECT t.tenant FROM tenants t LEFT JOIN jobs j ON j.tenant = t.tenant AND j.job = $1
WHERE t.usage_seq > CAST(COALESCE(NULLIF(j.cursor, ''), '0') AS {bigint}) ORDER BY t.tenant
"""


class AgentCalls(SqlStore):
    """Calls of agents, as metering and receipts have them."""

    async def since(self, seq: int) -> AgentsWithCalls:
        """Return the agents of the next usage entries after a number: of new calls, reports and scores."""
        rows = await self._tx.all(_SINCE, self._tenant, seq, _ENTRIES)
        agents = dict.fromkeys(agent_id for _, agent_id in rows)
        return AgentsWithCalls([*agents], rows[-1][0] if rows else seq, len(rows) == _ENTRIES)

    async def recent(self, limits: Mapping[str, int]) -> Mapping[str, Sequence[RecentCall]]:
        """Return the latest calls of agents, newest first, as many as each one's limit; only those with figures."""
        found: dict[str, list[RecentCall]] = {agent_id: [] for agent_id in limits}
        asked = [*limits.items()]
        for start in range(0, len(asked), _AGENTS):
            batch = asked[start : start + _AGENTS]
            # Nobody fills the last statement, so that there is one to prepare.
            batch += [("", 0)] * (_AGENTS - len(batch))
            asked_for: list[Value] = [value for pair in batch for value in pair]
            for agent_id, *call in await self._tx.all(_RECENT, self._tenant, *asked_for):
                # Receipts from before have no figures.
                if call[-1] is not None:
                    found[agent_id].append(_call(call))
        return {agent_id: sorted(calls, key=_age, reverse=True) for agent_id, calls in found.items()}


async def tenants_with_new_calls(transaction: Transaction, job: str) -> list[str]:
    """Return the tenants with usage entries after the cursor of a job."""
    return [row[0] for row in await transaction.all(_TENANTS, job)]


def _age(call: RecentCall) -> tuple[int, str]:
    return call.at, call.receipt_id


def _call(row: Sequence[Any]) -> RecentCall:
    receipt_id, at, sent, capacity, overhead, useful, basis = row
    return RecentCall(receipt_id, at, sent, capacity or 0, overhead or 0, useful or 0, basis != "answer")
