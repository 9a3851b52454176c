"""Sending events to webhooks: this process's part of it, shared with all others through leases in the database.

A webhook is in one hand at a time and is sent one event after the other, so that events arrive in order. Many are
served at once, few of them on one host or for one tenant, and each gives way to the others after a while: whoever is
slow or does not answer keeps nobody waiting but itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from weft.capabilities.events.webhooks.delivery import Deliveries
from weft.capabilities.events.webhooks.model import Attempt, delivery_id_of, host_of, signed_headers
from weft.capabilities.events.webhooks.operations import WebhookRegistry
from weft.capabilities.records.event_classes import CloudEvent
from weft.jobs.periodic import attempt
from weft.kernel.clock import to_micros
from weft.kernel.errors import WeftError
from weft.kernel.ids import new_id
from weft.storage.sql.database import SYSTEM
from weft.storage.sql.unit_of_work import CallerTransactions, SystemTransactions
from weft.storage.sql.webhooks import release_all, webhooks_waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.events.webhooks.delivery import DeliveryRound, OutgoingEvent
    from weft.capabilities.events.webhooks.model import Webhook
    from weft.capabilities.events.webhooks.store import WebhookHttpClient
    from weft.kernel.clock import Clock
    from weft.kernel.identity import Actor
    from weft.kernel.metrics import JobMetrics
    from weft.storage.sql.database import Database
    from weft.storage.sql.unit_of_work import Injector
    from weft.storage.sql.webhooks import DueWebhook

T = TypeVar("T")

# A process that does one thing and ends leaves this work to those that stay.
_FIRST_LOOK_SECONDS = 1.0
# Webhooks of tenants that had none, and what a missed wake would have told of.
_LOOK_FOR_NEW_SECONDS = 2.0
_LOOK_EVERY_SECONDS = 30.0
# What is written together is looked at together.
_GATHER_SECONDS = 0.02
# With one more call behind it, a round is over well before its lease.
_ROUND_SECONDS = 30.0
_TURN_SECONDS = 15.0
_SETTLE_SECONDS = 5.0
_AT_ONCE = 128
_AT_ONCE_OF_TENANT = 16
_AT_ONCE_ON_HOST = 4
_CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
_USER_AGENT = f"Weft/{version('weft')}"
_SECOND = 1_000_000
_encode = msgspec.json.Encoder().encode


Key = tuple[str, str]


class _Served(NamedTuple):
    """A webhook that this process has in hand."""

    tenant: str
    host: str
    task: asyncio.Task[None]


class WebhookDelivery:
    """Serves the webhooks of every tenant, in this process, while no other serves the same."""

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
        self._known_sender: WebhookHttpClient | None = None
        self._holder = new_id("worker")
        self._registered = CallerTransactions(database, injector, WebhookRegistry)
        self._deliveries = SystemTransactions(database, injector, Deliveries)
        self._tenants: frozenset[str] = frozenset()
        self._served: dict[Key, _Served] = {}
        # When each was last let go of, and until when to leave alone those that something is wrong with.
        self._let_go: dict[Key, float] = {}
        self._shunned: dict[Key, float] = {}
        self._has_held = False
        self._looked_at = 0.0
        self._rests_seconds = _LOOK_EVERY_SECONDS
        self._wake = asyncio.Event()
        self._rumour: asyncio.TimerHandle | None = None

    def note(self, tenants: set[str]) -> None:
        """Hear that there may be news of these tenants; of any, if none is named."""
        if self._tenants and (not tenants or not self._tenants.isdisjoint(tenants)):
            self._wake.set()
        elif self._rumour is None:
            loop = asyncio.get_running_loop()
            self._rumour = loop.call_at(self._looked_at + _LOOK_FOR_NEW_SECONDS, self._wake.set)

    async def run(self) -> None:
        """Send what is due, for as long as the process lives."""
        await asyncio.sleep(_FIRST_LOOK_SECONDS)
        try:
            while True:
                self._wake.clear()
                await attempt("webhooks", self._look())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._rests_seconds):
                        await self._wake.wait()
                        await asyncio.sleep(_GATHER_SECONDS)
        finally:
            await self._let_go_of_all()

    async def close(self) -> None:
        """Close the connections to receivers."""
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
            type="weft.webhook.test",
            subject=webhook_id,
            time=self._clock.now(),
            datacontenttype="application/json",
            data={"type": "webhook.test", "actor": actor.participant},
            actor=actor.participant,
        )
        return await self._send(webhook, test_id, _encode(event))

    @property
    def _sender(self) -> WebhookHttpClient:
        if self._known_sender is None:
            from weft.providers.webhook_sender import HttpSender  # noqa: PLC0415 - most have no webhook, and it takes long

            self._known_sender = HttpSender(self._private_hosts)
        return self._known_sender

    async def _look(self) -> None:
        """Begin to serve every webhook there is something to do for, as far as there is room."""
        loop = asyncio.get_running_loop()
        self._looked_at, self._rests_seconds = loop.time(), _LOOK_EVERY_SECONDS
        if self._rumour is not None:
            self._rumour.cancel()
            self._rumour = None
        waiting = await self._database.read(SYSTEM, webhooks_waiting)
        self._tenants = frozenset(each.tenant for each in waiting)
        known = {each.key for each in waiting}
        self._let_go = {key: at for key, at in self._let_go.items() if key in known}
        self._shunned = {key: until for key, until in self._shunned.items() if until > loop.time()}
        # Whoever was served longest ago comes first.
        for each in sorted(waiting, key=lambda each: self._let_go.get(each.key, 0.0)):
            self._consider(each)

    def _consider(self, each: DueWebhook) -> None:
        ready_at = each.ready_at
        if ready_at is None or each.key in self._served or each.key in self._shunned:
            return
        seconds = (ready_at - to_micros(self._clock.now())) / _SECOND
        if seconds > 0:
            self._rests_seconds = min(self._rests_seconds, seconds)
        elif self._has_room_for(each):
            task = asyncio.create_task(self._serve(each.key), name="weft-webhook")
            self._served[each.key] = _Served(each.tenant, host_of(each.url), task)

    def _has_room_for(self, each: DueWebhook) -> bool:
        """Tell whether it would leave enough for others; whoever finishes makes room, and has everyone looked at."""
        of_tenant = sum(served.tenant == each.tenant for served in self._served.values())
        on_host = sum(served.host == host_of(each.url) for served in self._served.values())
        return len(self._served) < _AT_ONCE and of_tenant < _AT_ONCE_OF_TENANT and on_host < _AT_ONCE_ON_HOST

    async def _serve(self, key: Key) -> None:
        """Serve one webhook until nothing is left to do, or it is the others' turn."""
        loop = asyncio.get_running_loop()
        enough = loop.time() + _TURN_SECONDS

        async def rounds() -> None:
            while await self._round(*key) and loop.time() < enough:
                pass

        try:
            if not await attempt("webhooks", rounds(), tenant=key[0], webhook=key[1]):
                self._shunned[key] = loop.time() + _LOOK_EVERY_SECONDS
        finally:
            del self._served[key]
            self._let_go[key] = loop.time()
            self._wake.set()

    async def _round(self, tenant: str, webhook_id: str) -> bool:
        """Send what is due; tell whether there is more to do at once."""
        self._has_held = True
        taken = await self._deliveries.write(tenant, lambda deliveries: deliveries.claim(webhook_id, self._holder))
        if taken is None:
            return False
        outcomes: list[tuple[OutgoingEvent, Attempt]] = []
        try:
            await self._send_all(taken, outcomes)
        finally:
            # Also on the way out: what was taken must not be sent again.
            async with asyncio.timeout(_SETTLE_SECONDS):
                await self._settle(tenant, taken, outcomes)
        return taken.more

    async def _send_all(self, taken: DeliveryRound, outcomes: list[tuple[OutgoingEvent, Attempt]]) -> None:
        loop = asyncio.get_running_loop()
        enough = loop.time() + _ROUND_SECONDS
        for place, event in enumerate(taken.outgoing):
            delivery_id = delivery_id_of(taken.webhook.webhook_id, event.seq)
            tried = await self._send(taken.webhook, delivery_id, taken.body(event))
            if tried.unanswered:
                # Where nobody answers, one attempt speaks for all that wait.
                outcomes += [(each, tried) for each in taken.outgoing[place:]]
                return
            outcomes.append((event, tried))
            if tried.gone or tried.pause_seconds or loop.time() > enough:
                return

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

    async def _let_go_of_all(self) -> None:
        """End every call that is under way, so that whoever is left, or comes next, can go on at once."""
        tasks = [served.task for served in self._served.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._has_held:
            with contextlib.suppress(WeftError, TimeoutError):
                async with asyncio.timeout(_SETTLE_SECONDS):
                    await self._database.write(SYSTEM, partial(release_all, holder=self._holder))
