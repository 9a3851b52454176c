"""Webhooks and their pending and failed deliveries in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.access.acl_column import decode_patterns, encode_patterns
from weftline.kernel.transaction import RowLease, SqlStore
from weftline.sessions.events.webhooks.model import Webhook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.transaction import Row, Transaction
    from weftline.sessions.events.webhooks.model import Attempt, DeliveryState, WebhookState


class DeliveryCounts(NamedTuple):
    """Numbers of pending deliveries and of dead letters."""

    pending: int
    dead: int


class Delivery(NamedTuple):
    """A pending delivery or a dead letter."""

    seq: int
    state: DeliveryState
    attempts: int
    due_at: int
    last_status: int | None
    last_error: str | None


class DueDelivery(NamedTuple):
    """A delivery that is due, with the number of failed attempts so far."""

    seq: int
    attempts: int


_WEBHOOK = """
SELECT webhook_id, url, types, session_id, description, secret, principal_id, created_at, state, reason, cursor,
       delivered
FROM webhooks
"""
_DELIVERY = "SELECT seq, state, attempts, due_at, last_status, last_error FROM webhook_deliveries"
_ADD = """
INSERT INTO webhooks (tenant, webhook_id, url, types, session_id, description, secret, principal_id,
                      created_at, state, reason, cursor, delivered, lease_until)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 0)
"""
_SET_STATE = """
UPDATE webhooks SET state = $1, reason = $2, holder = NULL, lease_until = 0
WHERE tenant = $3 AND webhook_id = $4
"""
_CLAIM = f"""
{_WEBHOOK}
WHERE tenant = $1 AND webhook_id = $2 AND state = 'enabled' AND lease_until <= $3 {{for_update_unless_locked}}
"""
_ENQUEUE = """
INSERT INTO webhook_deliveries (tenant, webhook_id, seq, state, attempts, due_at)
VALUES ($1, $2, $3, 'pending', 0, $4)
ON CONFLICT (tenant, webhook_id, seq)
DO UPDATE SET state = 'pending', attempts = 0, due_at = excluded.due_at
"""
_DUE = """
SELECT seq, attempts FROM webhook_deliveries
WHERE tenant = $1 AND webhook_id = $2 AND state = 'pending' AND due_at <= $3 ORDER BY seq LIMIT $4
"""
_SCHEDULE_RETRY = """
UPDATE webhook_deliveries
SET state = $1, attempts = $2, due_at = COALESCE($3, due_at), last_status = $4, last_error = $5
WHERE tenant = $6 AND webhook_id = $7 AND seq = $8
"""
_REVIVE = """
UPDATE webhook_deliveries SET state = 'pending', attempts = 0, due_at = $1
WHERE tenant = $2 AND webhook_id = $3 AND state = 'dead' AND seq > 0
"""
_COUNTS = """
SELECT state, COUNT(*) FROM webhook_deliveries WHERE tenant = $1 AND webhook_id = $2 AND seq > 0
GROUP BY state
"""
_DELIVERIES = f"""
{_DELIVERY} WHERE tenant = $1 AND webhook_id = $2 AND seq > $3 AND state = COALESCE($4, state)
ORDER BY seq LIMIT $5
"""
_REVIVE_ONE = """
UPDATE webhook_deliveries SET state = 'pending', attempts = 0, due_at = $1
WHERE tenant = $2 AND webhook_id = $3 AND seq = $4 AND state = 'dead'
"""


class WebhookStore(SqlStore):
    """The webhooks of the transaction's tenant, with their undelivered events."""

    async def add(self, webhook: Webhook) -> None:
        row = structs.asdict(webhook) | {"types": encode_patterns(webhook.types)}
        await self._tx.run(_ADD, self._tenant, *row.values())

    async def find(self, webhook_id: str) -> Webhook | None:
        row = await self._tx.one(_WEBHOOK + "WHERE tenant = $1 AND webhook_id = $2", self._tenant, webhook_id)
        return None if row is None else _webhook(row)

    async def all(self) -> Sequence[Webhook]:
        """Return every webhook, oldest first."""
        rows = await self._tx.all(_WEBHOOK + "WHERE tenant = $1 ORDER BY created_at, webhook_id", self._tenant)
        return [_webhook(row) for row in rows]

    async def delete(self, webhook_id: str) -> bool:
        """Delete a webhook and its deliveries; False if there is none."""
        # The webhook first: waits for a process that is updating its deliveries.
        deleted = await self._tx.changed(
            "DELETE FROM webhooks WHERE tenant = $1 AND webhook_id = $2", self._tenant, webhook_id
        )
        await self._tx.run(
            "DELETE FROM webhook_deliveries WHERE tenant = $1 AND webhook_id = $2 AND seq > 0", self._tenant, webhook_id
        )
        return deleted > 0

    async def set_state(self, webhook_id: str, state: WebhookState, reason: str | None) -> None:
        await self._tx.run(_SET_STATE, state, reason, self._tenant, webhook_id)

    async def claim(self, webhook_id: str, holder: str, now: int, until: int) -> Webhook | None:
        """Lease an enabled webhook until a time; None if it is leased already or paused."""
        row = await self._tx.one(_CLAIM, self._tenant, webhook_id, now)
        if row is None:
            return None
        await RowLease(self._tx, "webhooks", webhook_id=webhook_id).take(holder, until)
        return _webhook(row)

    async def release(self, webhook_id: str, holder: str, paused_until: int) -> None:
        """Release the lease; the webhook cannot be leased again before ``paused_until``."""
        await RowLease(self._tx, "webhooks", webhook_id=webhook_id).release(holder, paused_until)

    async def enqueue(self, webhook_id: str, seq: int, due_at: int) -> None:
        """Queue an event; a dead letter is queued again."""
        await self._tx.run(_ENQUEUE, self._tenant, webhook_id, seq, due_at)

    async def set_cursor(self, webhook_id: str, seq: int) -> None:
        await self._tx.run(
            "UPDATE webhooks SET cursor = $1 WHERE tenant = $2 AND webhook_id = $3", seq, self._tenant, webhook_id
        )

    async def rewind(self, webhook_id: str, seq: int) -> None:
        """Move the cursor back to ``seq`` if it is past it."""
        await self._tx.run(
            "UPDATE webhooks SET cursor = $1 WHERE tenant = $2 AND webhook_id = $3 AND cursor > $1",
            seq,
            self._tenant,
            webhook_id,
        )

    async def due(self, webhook_id: str, now: int, limit: int) -> Sequence[DueDelivery]:
        """Return due deliveries in log order."""
        rows = await self._tx.all(_DUE, self._tenant, webhook_id, now, limit)
        return [DueDelivery(*row) for row in rows]

    async def remove(self, webhook_id: str, seq: int) -> bool:
        """Delete a delivery; False if there is none."""
        removed = await self._tx.changed(
            "DELETE FROM webhook_deliveries WHERE tenant = $1 AND webhook_id = $2 AND seq = $3",
            self._tenant,
            webhook_id,
            seq,
        )
        return removed > 0

    async def count_delivered(self, webhook_id: str, more: int) -> None:
        await self._tx.run(
            "UPDATE webhooks SET delivered = delivered + $1 WHERE tenant = $2 AND webhook_id = $3",
            more,
            self._tenant,
            webhook_id,
        )

    async def schedule_retry(self, webhook_id: str, seq: int, attempts: int, due_at: int | None, last: Attempt) -> None:
        """Store a failed attempt and when the next one is due; None makes it a dead letter."""
        await self._tx.run(
            _SCHEDULE_RETRY,
            "dead" if due_at is None else "pending",
            attempts,
            due_at,
            last.status,
            last.error,
            self._tenant,
            webhook_id,
            seq,
        )

    async def revive(self, webhook_id: str, seqs: Sequence[int] | None, due_at: int) -> int:
        """Queue dead letters again, of these events or all; return how many."""
        if seqs is None:
            return await self._tx.changed(_REVIVE, due_at, self._tenant, webhook_id)
        return sum([await self._revive(webhook_id, seq, due_at) for seq in sorted(set(seqs))])

    async def counts(self, webhook_id: str) -> DeliveryCounts:
        rows = await self._tx.all(_COUNTS, self._tenant, webhook_id)
        counts: dict[str, int] = dict(rows)
        return DeliveryCounts(counts.get("pending", 0), counts.get("dead", 0))

    async def deliveries(
        self, webhook_id: str, state: DeliveryState | None, after: int, limit: int
    ) -> Sequence[Delivery]:
        """Return deliveries after ``after``, in log order."""
        rows = await self._tx.all(_DELIVERIES, self._tenant, webhook_id, after, state, limit)
        return [Delivery(*row) for row in rows]

    async def _revive(self, webhook_id: str, seq: int, due_at: int) -> int:
        return await self._tx.changed(_REVIVE_ONE, due_at, self._tenant, webhook_id, seq)


class DueWebhook(NamedTuple):
    """An enabled webhook: whether it lags the event log, its next due delivery, if any, and the end of its lease."""

    tenant: str
    webhook_id: str
    url: str
    lags: bool
    due_at: int | None
    lease_until: int

    @property
    def key(self) -> tuple[str, str]:
        return self.tenant, self.webhook_id

    @property
    def ready_at(self) -> int | None:
        """Return when it can be processed; None if nothing is pending."""
        if self.due_at is None and not self.lags:
            return None
        return max(self.lease_until, 0 if self.lags or self.due_at is None else self.due_at)


_WEBHOOKS_WAITING = """
SELECT webhooks.tenant, webhook_id, url, cursor < event_seq,
       (SELECT MIN(d.due_at) FROM webhook_deliveries d
        WHERE d.tenant = webhooks.tenant AND d.webhook_id = webhooks.webhook_id AND d.state = 'pending'),
       lease_until
FROM webhooks JOIN tenants ON tenants.tenant = webhooks.tenant WHERE state = 'enabled'
"""


async def webhooks_waiting(transaction: Transaction) -> list[DueWebhook]:
    """Return every enabled webhook of the installation."""
    return [DueWebhook(*row) for row in await transaction.all(_WEBHOOKS_WAITING)]


async def release_all(transaction: Transaction, holder: str) -> None:
    """Release every webhook that a process has claimed."""
    await transaction.run("UPDATE webhooks SET holder = NULL, lease_until = 0 WHERE holder = $1", holder)


_DEAD_LETTERS = """
SELECT (SELECT COUNT(*) FROM webhook_deliveries d
        WHERE d.tenant = webhooks.tenant AND d.webhook_id = webhooks.webhook_id AND d.state = 'dead'
          AND d.seq > 0)
FROM webhooks
"""


async def dead_letters(transaction: Transaction) -> int:
    """Return the number of dead letters of the installation."""
    return sum(row[0] for row in await transaction.all(_DEAD_LETTERS))


def _webhook(row: Row) -> Webhook:
    names = Webhook.__struct_fields__
    values = dict(zip(names, row, strict=True))
    return Webhook(**{**values, "types": decode_patterns(values["types"])})
