"""Webhook delivery: at least once, in the order of the log.

One process at a time holds the lease of a webhook and sends one event after the other. Many webhooks are served at
once, but few on one host or of one tenant, and each for a limited time, so that a slow receiver delays only itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec

from weftline.access.sql import AccessStore
from weftline.jobs.scheduler import Work
from weftline.kernel.clock import to_micros
from weftline.kernel.errors import WeftlineError
from weftline.kernel.fields import new_id
from weftline.records.event_classes import CloudEvent
from weftline.sessions.events.operations import WebhookRegistry
from weftline.sessions.events.webhooks import (
    Attempt,
    Deliveries,
    delivery_id_of,
    host_of,
    release_all,
    signed_headers,
    webhooks_waiting,
)
from weftline.storage.sql.database import SYSTEM, Scope
from weftline.storage.sql.unit_of_work import CallerTransactions, SystemTransactions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.jobs.scheduler import JobQueue
    from weftline.kernel.clock import Clock
    from weftline.kernel.identity import Actor
    from weftline.kernel.ports import JobMetrics
    from weftline.providers.webhook_sender import HttpSender
    from weftline.sessions.events.webhooks import DeliveryRound, OutgoingEvent, Webhook
    from weftline.storage.sql.database import Database
    from weftline.storage.sql.unit_of_work import Injector

DELIVER = "webhooks.deliver"
POLL_SECONDS = 30.0
# Webhooks served at the same time: a slow receiver delays only itself.
CONCURRENCY = 128
PER_TENANT = 16
PER_HOST = 4
# Events written together are delivered together.
_EVENT_DELAY_SECONDS = 0.02
# A tenant without webhooks at the last poll may have created one.
_NEW_WEBHOOK_SECONDS = 2.0
# A round, with one more request after it, ends well before its lease.
_ROUND_SECONDS = 30.0
_TURN_SECONDS = 15.0
_SETTLE_SECONDS = 5.0
_CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
_USER_AGENT = f"Weftline/{version('weftline')}"
_SECOND = 1_000_000
_encode = msgspec.json.Encoder().encode


class WebhookDelivery:
    """Delivers events to the webhooks of all tenants."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        injector: Injector,
        private_hosts: Sequence[str],
        metrics: JobMetrics,
    ) -> None:
        self._database = database
        self._clock = clock
        self._private_hosts = private_hosts
        self._metrics = metrics
        self._known_sender: HttpSender | None = None
        self._holder = new_id("worker")
        self._registered = CallerTransactions(database, injector, WebhookRegistry)
        self._deliveries = SystemTransactions(database, injector, Deliveries)
        # Tenants with enabled webhooks, as of the last poll.
        self._tenants: frozenset[str] = frozenset()
        self._has_claimed = False

    def poll_after(self, tenants: set[str]) -> float:
        """Return the seconds until a poll after events of these tenants, or of any if the set is empty."""
        is_known = bool(self._tenants) and (not tenants or not self._tenants.isdisjoint(tenants))
        return _EVENT_DELAY_SECONDS if is_known else _NEW_WEBHOOK_SECONDS

    async def due(self, _queue: JobQueue) -> list[Work]:
        """Return the webhooks that are behind the log or have deliveries to retry."""
        webhooks = await self._database.read(SYSTEM, webhooks_waiting)
        self._tenants = frozenset(webhook.tenant for webhook in webhooks)
        now = to_micros(self._clock.now())
        return [
            Work(webhook.tenant, (webhook.webhook_id,), wait=(ready_at - now) / _SECOND, group=host_of(webhook.url))
            for webhook in webhooks
            if (ready_at := webhook.ready_at) is not None
        ]

    async def run(self, work: Work) -> bool:
        """Deliver to one webhook, in the order of the log, until nothing is due or others must have their turn."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _TURN_SECONDS
        while await self._round(work.tenant, *work.item) and loop.time() < deadline:
            pass
        return True

    async def close(self) -> None:
        """Release the webhooks that were claimed, so that another process can continue at once; close connections."""
        if self._has_claimed:
            with contextlib.suppress(WeftlineError, TimeoutError):
                async with asyncio.timeout(_SETTLE_SECONDS):
                    await self._database.write(SYSTEM, partial(release_all, holder=self._holder))
        if self._known_sender is not None:
            await self._known_sender.aclose()

    async def check(self, url: str) -> None:
        await self._sender.check(url)

    async def test(self, actor: Actor, webhook_id: str) -> Attempt:
        async def look(registered: WebhookRegistry) -> tuple[Webhook, str]:
            return await registered.find(webhook_id), await registered.events.source()

        webhook, source = await self._registered.read(actor, look)
        test_id = new_id("test")
        event = CloudEvent(
            specversion="1.0",
            id=test_id,
            source=source,
            type="weftline.webhook.test",
            subject=webhook_id,
            time=self._clock.now(),
            datacontenttype="application/json",
            data={"type": "webhook.test", "actor": actor.participant},
            actor=actor.participant,
            agentid=actor.principal_id,
        )
        return await self._send(webhook, test_id, _encode(event))

    @property
    def _sender(self) -> HttpSender:
        if self._known_sender is None:
            from weftline.providers.webhook_sender import HttpSender  # noqa: PLC0415 - few installations have webhooks, and the import is slow

            self._known_sender = HttpSender(self._private_hosts)
        return self._known_sender

    async def _round(self, tenant: str, webhook_id: str) -> bool:
        """Send what is due; return whether there is more to do at once."""
        self._has_claimed = True
        taken = await self._deliveries.write(tenant, lambda deliveries: deliveries.claim(webhook_id, self._holder))
        if taken is None:
            return False
        outcomes: list[tuple[OutgoingEvent, Attempt]] = []
        try:
            await self._send_all(taken, outcomes)
        finally:
            # Also when cancelled: an accepted event must not be sent again.
            async with asyncio.timeout(_SETTLE_SECONDS):
                await self._settle(tenant, taken, outcomes)
        return taken.more or len(outcomes) < len(taken.outgoing)

    async def _send_all(self, taken: DeliveryRound, outcomes: list[tuple[OutgoingEvent, Attempt]]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _ROUND_SECONDS
        for place, event in enumerate(taken.outgoing):
            delivery_id = delivery_id_of(taken.webhook.webhook_id, event.seq)
            tried = await self._send(taken.webhook, delivery_id, taken.body(event))
            if tried.unanswered:
                # A receiver that does not answer fails all waiting events at once.
                outcomes += [(each, tried) for each in taken.outgoing[place:]]
                return
            outcomes.append((event, tried))
            if tried.gone or tried.pause_seconds or loop.time() > deadline or await self._has_access_changed(taken):
                return

    async def _has_access_changed(self, taken: DeliveryRound) -> bool:
        """Tell whether access rules changed since the round began: its owner may have been disabled."""
        scope = Scope(taken.owner.tenant)
        return await self._database.read(scope, lambda tx: AccessStore(tx).epoch()) != taken.owner.epoch

    async def _send(self, webhook: Webhook, delivery_id: str, body: bytes) -> Attempt:
        at_seconds = to_micros(self._clock.now()) // _SECOND
        headers = {
            "content-type": _CONTENT_TYPE,
            "user-agent": _USER_AGENT,
            **signed_headers(webhook.secret, delivery_id, at_seconds, body),
        }
        tried = await self._sender.send(webhook.url, headers, body)
        self._metrics.count_delivery("delivered" if tried.accepted else "failed")
        return tried

    async def _settle(self, tenant: str, taken: DeliveryRound, outcomes: list[tuple[OutgoingEvent, Attempt]]) -> None:
        given_up = await self._deliveries.write(tenant, lambda work: work.settle(taken.webhook, self._holder, outcomes))
        self._metrics.count_delivery("dead", given_up)
