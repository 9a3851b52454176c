"""What is to be sent to a webhook, and what becomes of it: the halves of a round, each a transaction.

Between the two the calls are made, outside any transaction. Whoever dies there has taken nothing away: what was not
settled is still due, and another goes on with it when the lease has ended.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weft.capabilities.access.store import AccessStore
from weft.capabilities.events.model import EventStore
from weft.capabilities.events.webhooks.model import MOST_DEAD, Webhook, maker_of, seconds_until_retry
from weft.capabilities.events.webhooks.store import WebhookStore
from weft.capabilities.records.event_classes import cloud_event
from weft.kernel.clock import Clock, to_micros
from weft.kernel.events import NewEvent, Outbox
from weft.kernel.identity import PERMISSION, Actor, Permission

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.events.webhooks.model import Attempt
    from weft.capabilities.events.webhooks.store import Due
    from weft.kernel.events import StoredEvent

# Longer than any round lasts: whoever holds a webhook for longer is taken for dead.
LEASE_MICROS = 60_000_000
ADMINS = (f"{PERMISSION}{Permission.ADMIN}",)
_SECOND = 1_000_000
_AT_ONCE = 100
_PAGE = 500
_encode = msgspec.json.Encoder().encode


class Delivery(NamedTuple):
    """One event to be sent, and how often that was tried."""

    recorded: StoredEvent
    attempts: int

    @property
    def seq(self) -> int:
        return self.recorded.event.seq


class DeliveryRound(NamedTuple):
    """What one holder sends in one go, in the order of the log; ``more`` if there is work left behind it."""

    webhook: Webhook
    source: str
    letters: Sequence[Delivery]
    more: bool

    def body(self, letter: Delivery) -> bytes:
        """Write what is sent: not in the transaction, where it would keep other writers waiting."""
        return _encode(cloud_event(letter.recorded, self.source))


class Deliveries(msgspec.Struct, frozen=True):
    """Decides what is sent, and keeps track of it."""

    actor: Actor
    webhooks: WebhookStore
    events: EventStore
    access: AccessStore
    outbox: Outbox
    clock: Clock

    async def take(self, webhook_id: str, holder: str) -> DeliveryRound | None:
        """Take a webhook in hand, with what is due for it; None if it is not to be had."""
        now = to_micros(self.clock.now())
        webhook = await self.webhooks.claim(webhook_id, holder, now, now + LEASE_MICROS)
        if webhook is None:
            return None
        maker = await maker_of(webhook, self.access)
        if isinstance(maker, str):
            await self._stop(webhook, maker)
            return None
        due = await self.webhooks.due(webhook_id, now, _AT_ONCE)
        more = True
        # What waits already goes first, so that no more waits in the table than is about to be sent.
        if len(due) < _AT_ONCE:
            more = await self._look_further(webhook, maker, now)
            due = await self.webhooks.due(webhook_id, now, _AT_ONCE)
        letters = await self._letters(webhook, maker, due)
        source = await self.events.source() if letters else ""
        return DeliveryRound(webhook, source, letters, more or len(due) == _AT_ONCE)

    async def settle(self, webhook: Webhook, holder: str, outcomes: Sequence[tuple[Delivery, Attempt]]) -> int:
        """Note how the calls went, let go of the webhook, and return how many deliveries were given up."""
        now = to_micros(self.clock.now())
        taken = [letter for letter, attempt in outcomes if attempt.taken]
        delivered = [letter for letter in taken if await self.webhooks.remove(webhook.webhook_id, letter.seq)]
        await self.webhooks.count_delivered(webhook.webhook_id, len(delivered))
        failed = [(letter, attempt) for letter, attempt in outcomes if not attempt.taken]
        given_up = [letter for letter, attempt in failed if not await self._postpone(webhook, letter, attempt, now)]
        pause = max((attempt.pause_seconds for _, attempt in failed), default=0)
        await self.webhooks.release(webhook.webhook_id, holder, now + pause * _SECOND if pause else 0)
        if any(attempt.gone for _, attempt in failed):
            await self._stop(webhook, "the receiver answered 410 Gone: it wants no more events")
        elif given_up and (await self.webhooks.tally(webhook.webhook_id)).dead >= MOST_DEAD:
            await self._stop(webhook, f"{MOST_DEAD:,} events could not be delivered")
        return len(given_up)

    async def _look_further(self, webhook: Webhook, maker: Actor, now: int) -> bool:
        """Choose from the next part of the log what is to be sent, and tell whether there is more of it."""
        # Asked first: what is numbered up to here can be read.
        end = await self.events.last_seq()
        if webhook.cursor >= end:
            return False
        page = await self.events.after(webhook.cursor, webhook.session_id, _PAGE)
        for recorded in page:
            if webhook.wants(recorded, maker):
                await self.webhooks.enqueue(webhook.webhook_id, recorded.event.seq, now)
        last = page[-1].event.seq if page else 0
        more = len(page) == _PAGE
        await self.webhooks.set_cursor(webhook.webhook_id, last if more else max(end, last))
        return more

    async def _letters(self, webhook: Webhook, maker: Actor, due: Sequence[Due]) -> list[Delivery]:
        """Return what is to be sent; events that are gone, or no longer for whoever made the webhook, are not."""
        found = await self.events.numbered([each.seq for each in due])
        wanted = {recorded.event.seq: recorded for recorded in found if webhook.wants(recorded, maker)}
        for each in due:
            if each.seq not in wanted:
                await self.webhooks.remove(webhook.webhook_id, each.seq)
        return [Delivery(wanted[each.seq], each.attempts) for each in due if each.seq in wanted]

    async def _postpone(self, webhook: Webhook, letter: Delivery, attempt: Attempt, now: int) -> bool:
        """Have a call made again later; False if that was the last attempt."""
        attempts = letter.attempts + 1
        seconds = seconds_until_retry(attempts, random.random())  # noqa: S311 - a bit of disorder, no secret
        due_at = None if seconds is None else now + round(seconds * _SECOND)
        await self.webhooks.postpone(webhook.webhook_id, letter.seq, attempts, due_at, attempt)
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
