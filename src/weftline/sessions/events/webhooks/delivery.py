"""One delivery round of a webhook: ``claim`` reads what is due, ``settle`` stores the results, each in a transaction.

The HTTP calls happen in between, outside any transaction. If the process dies there, the deliveries are still due and
another process makes them once the lease has expired.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.access.sql import AccessStore
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.events import NewEvent, Outbox
from weftline.kernel.identity import PERMISSION, Actor, Permission
from weftline.kernel.ports import LEASE_MICROS
from weftline.records.event_classes import to_cloud_event
from weftline.sessions.events.model import EventStore
from weftline.sessions.events.webhooks.model import MAX_DEAD_LETTERS, Webhook, backoff_seconds, owner_of
from weftline.sessions.events.webhooks.sql import WebhookStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.events import StoredEvent
    from weftline.sessions.events.webhooks.model import Attempt
    from weftline.sessions.events.webhooks.sql import DueDelivery

ADMINS = (f"{PERMISSION}{Permission.ADMIN}",)
_SECOND = 1_000_000
_BATCH_SIZE = 100
_LOG_PAGE_SIZE = 500
_encode = msgspec.json.Encoder().encode


class OutgoingEvent(NamedTuple):
    """An event to send, with the number of failed attempts so far."""

    recorded: StoredEvent
    attempts: int

    @property
    def seq(self) -> int:
        return self.recorded.event.seq


class DeliveryRound(NamedTuple):
    """The batch of one round, in log order; ``more`` if another round is due right after it."""

    webhook: Webhook
    owner: Actor
    source: str
    outgoing: Sequence[OutgoingEvent]
    more: bool

    def body(self, outgoing: OutgoingEvent) -> bytes:
        """Encode the request body; called outside the transaction, so that other writers need not wait."""
        return _encode(to_cloud_event(outgoing.recorded, self.source))


class Deliveries(msgspec.Struct, frozen=True):
    """Chooses what a webhook is sent, and stores the results."""

    actor: Actor
    webhooks: WebhookStore
    events: EventStore
    access: AccessStore
    outbox: Outbox
    clock: Clock

    async def claim(self, webhook_id: str, holder: str) -> DeliveryRound | None:
        """Lease a webhook and return what is due for it; None if it cannot be leased."""
        now = to_micros(self.clock.now())
        webhook = await self.webhooks.claim(webhook_id, holder, now, now + LEASE_MICROS)
        if webhook is None:
            return None
        owner = await owner_of(webhook, self.access)
        if isinstance(owner, str):
            await self._stop(webhook, owner)
            return None
        due = await self.webhooks.due(webhook_id, now, _BATCH_SIZE)
        more = True
        # Queued deliveries go first, so that the queue never holds more than the next batch.
        if len(due) < _BATCH_SIZE:
            more = await self._enqueue_new_events(webhook, owner, now)
            due = await self.webhooks.due(webhook_id, now, _BATCH_SIZE)
        outgoing = await self._outgoing(webhook, owner, due)
        source = await self.events.source() if outgoing else ""
        return DeliveryRound(webhook, owner, source, outgoing, more or len(due) == _BATCH_SIZE)

    async def settle(self, webhook: Webhook, holder: str, outcomes: Sequence[tuple[OutgoingEvent, Attempt]]) -> int:
        """Store the results, release the lease, and return how many deliveries became dead letters."""
        now = to_micros(self.clock.now())
        accepted = [event for event, attempt in outcomes if attempt.accepted]
        delivered = [event for event in accepted if await self.webhooks.remove(webhook.webhook_id, event.seq)]
        await self.webhooks.count_delivered(webhook.webhook_id, len(delivered))
        failed = [(event, attempt) for event, attempt in outcomes if not attempt.accepted]
        dead = [event for event, attempt in failed if not await self._schedule_retry(webhook, event, attempt, now)]
        pause = max((attempt.pause_seconds for _, attempt in failed), default=0)
        await self.webhooks.release(webhook.webhook_id, holder, now + pause * _SECOND if pause else 0)
        if any(attempt.gone for _, attempt in failed):
            await self._stop(webhook, "the receiver answered 410 Gone: it wants no more events")
        elif dead and (await self.webhooks.counts(webhook.webhook_id)).dead >= MAX_DEAD_LETTERS:
            await self._stop(webhook, f"{MAX_DEAD_LETTERS:,} events could not be delivered")
        return len(dead)

    async def _enqueue_new_events(self, webhook: Webhook, owner: Actor, now: int) -> bool:
        """Queue the matching events of the next log page; return whether the log has more."""
        # Read before the page: every event up to this number is committed and readable.
        end = await self.events.last_seq()
        if webhook.cursor >= end:
            return False
        page = await self.events.after(webhook.cursor, webhook.session_id, _LOG_PAGE_SIZE)
        for recorded in page:
            if webhook.wants(recorded, owner):
                await self.webhooks.enqueue(webhook.webhook_id, recorded.event.seq, now)
        last = page[-1].event.seq if page else 0
        more = len(page) == _LOG_PAGE_SIZE
        await self.webhooks.set_cursor(webhook.webhook_id, last if more else max(end, last))
        return more

    async def _outgoing(self, webhook: Webhook, owner: Actor, due: Sequence[DueDelivery]) -> list[OutgoingEvent]:
        """Return the due events; drop those that were deleted or that the owner may no longer see."""
        found = await self.events.numbered([each.seq for each in due])
        wanted = {recorded.event.seq: recorded for recorded in found if webhook.wants(recorded, owner)}
        for each in due:
            if each.seq not in wanted:
                await self.webhooks.remove(webhook.webhook_id, each.seq)
        return [OutgoingEvent(wanted[each.seq], each.attempts) for each in due if each.seq in wanted]

    async def _schedule_retry(self, webhook: Webhook, event: OutgoingEvent, attempt: Attempt, now: int) -> bool:
        """Schedule the next attempt; False if that was the last one."""
        attempts = event.attempts + 1
        seconds = backoff_seconds(attempts, random.random())  # noqa: S311 - jitter, no secret
        due_at = None if seconds is None else now + round(seconds * _SECOND)
        await self.webhooks.schedule_retry(webhook.webhook_id, event.seq, attempts, due_at, attempt)
        return due_at is not None

    async def _stop(self, webhook: Webhook, reason: str) -> None:
        await self.webhooks.set_state(webhook.webhook_id, "disabled", reason)
        stopped = NewEvent(
            type="webhook.stopped",
            session_id=None,
            subject=webhook.webhook_id,
            actor=self.actor.participant,
            readable_by=ADMINS,
            data={"host": webhook.host, "reason": reason},
        )
        await self.outbox.publish(stopped)
