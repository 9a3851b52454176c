"""Reading the event log from an offset, with long poll."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from weftline.access.sql import AccessStore
from weftline.kernel.clock import Clock, from_micros, optional_datetime, to_micros
from weftline.kernel.errors import InvalidInput
from weftline.kernel.events import Event, EventType, NewEvent
from weftline.kernel.fields import Count, Ordinal, ShortText, new_id
from weftline.kernel.identity import ANYONE, Actor, Permission
from weftline.kernel.operation import (
    Effect,
    RateClass,
    Request,
    Response,
    SessionUse,
    admin_operation,
    admin_write,
    operation,
)
from weftline.kernel.outbox import Outbox
from weftline.records.event_classes import CloudEvent, to_cloud_event
from weftline.sessions.events.model import EventFilter, Feed
from weftline.sessions.events.sql import EventStore
from weftline.sessions.events.webhooks import (
    ADMINS,
    MAX_WEBHOOKS,
    AddressNotAllowed,
    Delivery,
    DeliveryState,
    Secret,
    TooManyWebhooks,
    Url,
    Webhook,
    WebhookCannotRun,
    WebhookId,
    WebhookNotFound,
    WebhookSender,
    WebhookStore,
    check_url,
    delivery_id_of,
    owner_of,
    secret_of,
)
from weftline.sessions.model import SessionId, SessionNotFound, find_session
from weftline.sessions.sql import SessionStore

KeyPattern = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=129,
        pattern=r"^[a-z0-9_:*?]+\Z",
        description="A key, with * and ? as wildcards.",
    ),
]

TypePattern = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=100,
        pattern=r"^[a-z_.*?]+\Z",
        description="An event type or class, with * and ? as wildcards: message.* or context.item.*.",
    ),
]


class ReadEvents(Request):
    """A filter, an offset, and how long to wait."""

    session_id: Annotated[
        SessionId | None, msgspec.Meta(description="Events of this session; by default of all sessions you may see.")
    ] = None
    keys: Annotated[
        tuple[KeyPattern, ...], msgspec.Meta(max_length=100, description="Only events of these board keys.")
    ] = ANYONE
    types: Annotated[
        tuple[TypePattern, ...], msgspec.Meta(max_length=20, description="Only events of these types.")
    ] = ANYONE
    personal: Annotated[
        bool, msgspec.Meta(description="Only events that nobody else may see, such as those of your memory.")
    ] = False
    addressed: Annotated[bool, msgspec.Meta(description="Only new messages that are addressed to you.")] = False
    after: Annotated[Count | None, msgspec.Meta(description="Events after this seq; by default only new ones.")] = None
    wait_seconds: Annotated[
        float, msgspec.Meta(ge=0, le=60, description="How long to wait if there is no event yet.")
    ] = 0.0

    format: Annotated[
        Literal["native", "cloudevents"], msgspec.Meta(description="Weftline's own format, or CloudEvents 1.0.")
    ] = "native"

    @property
    def interest(self) -> EventFilter:
        return EventFilter(self.session_id, self.keys, self.types, self.personal, self.addressed)


class Events(Response):
    """Events in order. Pass ``next_after`` as ``after`` to read on without a gap.

    With the format cloudevents, they are in ``cloudevents`` and ``events`` is empty.
    """

    events: list[Event]
    next_after: int
    cloudevents: tuple[CloudEvent, ...] = ()
    pruned_through: Annotated[
        int | None,
        msgspec.Meta(description="Events up to this seq are past retention and missing from the answer."),
    ] = None


@operation(
    "events.read",
    tool="read_events",
    http="GET /v1/events",
    permission=Permission.READ,
    rate=RateClass.BOARD,
    effect=Effect.WAIT,
    errors=(SessionNotFound,),
)
async def read_events(request: ReadEvents, actor: Actor, feed: Feed) -> Events:
    """Read events from an offset, waiting for the next one if there is none yet.

    Events are ordered and none is lost: repeat the call with ``after`` set to the ``next_after`` of the last answer.
    If ``after`` is older than the log's retention, ``pruned_through`` says which events are missing.
    """
    page = await feed.next(actor, request.interest, request.after, request.wait_seconds)
    if request.format == "native":
        return Events(events=page.events, next_after=page.reached, pruned_through=page.pruned_through)
    source = await feed.source(actor.tenant)
    converted = tuple(to_cloud_event(recorded, source) for recorded in page.recorded)
    return Events(events=[], next_after=page.reached, cloudevents=converted, pruned_through=page.pruned_through)


# Operations on webhooks.


class CreateWebhook(Request):
    """An address and the events to send to it."""

    url: Url
    types: Annotated[
        tuple[TypePattern, ...], msgspec.Meta(min_length=1, max_length=20, description="Types of events to send.")
    ] = ANYONE
    session_id: Annotated[
        SessionId | None, msgspec.Meta(description="Only events of this session; by default of all.")
    ] = None
    description: Annotated[ShortText, msgspec.Meta(description="What it is for.")] = ""
    secret: Secret | None = None


class ListWebhooks(Request):
    """The tenant's webhooks."""


class UpdateWebhook(Request):
    """A webhook to enable or disable."""

    webhook_id: WebhookId
    enabled: Annotated[bool, msgspec.Meta(description="True resumes it where it stopped; false stops it.")]


class DeleteWebhook(Request):
    """The webhook to delete."""

    webhook_id: WebhookId


class TestWebhook(Request):
    """The webhook to test."""

    webhook_id: WebhookId


class ListDeliveries(Request):
    """A page of a webhook's deliveries."""

    webhook_id: WebhookId
    state: Annotated[
        DeliveryState | None, msgspec.Meta(description="Pending ones or dead letters; by default both.")
    ] = None
    after: Annotated[Count, msgspec.Meta(description="Deliveries of events after this seq; for paging.")] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000, description="At most this many.")] = 100


class ReplayWebhook(Request):
    """What to send again: exactly one of ``seqs``, ``dead`` and ``from_seq``."""

    webhook_id: WebhookId
    seqs: Annotated[
        tuple[Ordinal, ...], msgspec.Meta(max_length=1000, description="Dead letters of these events.")
    ] = ()
    dead: Annotated[bool, msgspec.Meta(description="All dead letters.")] = False
    from_seq: Annotated[
        Ordinal | None, msgspec.Meta(description="Every event from this seq on, including delivered ones.")
    ] = None


class WebhookInfo(Response, omit_defaults=False):
    """A webhook without its secret, with its address shortened.

    ``behind`` is its lag: events not yet considered; ``missed`` of them are past retention and will not be sent.
    """

    webhook_id: str
    url: str
    types: tuple[str, ...]
    session_id: str | None
    description: str
    agent_id: str
    created_at: datetime
    enabled: bool
    reason: str | None
    behind: int
    missed: int
    pending: int
    dead: int
    delivered: int


class WebhookCreated(WebhookInfo, omit_defaults=False):
    """A new webhook with its secret, which is shown only once."""

    on_record = ("webhook_id", "host")

    host: str
    secret: str

    def __repr__(self) -> str:
        return f"WebhookCreated(webhook_id={self.webhook_id!r})"


class WebhookList(Response):
    """Webhooks, oldest first."""

    webhooks: list[WebhookInfo]


class WebhookDeleted(Response):
    """The webhook and its pending deliveries were deleted."""

    webhook_id: str


class WebhookTested(Response, omit_defaults=False):
    """The receiver's status, or the error that prevented an answer."""

    delivered: bool
    status: int | None
    error: str | None


class DeliveryInfo(Response, omit_defaults=False):
    """A pending delivery or a dead letter. ``delivery_id`` is the webhook-id header that the receiver sees."""

    seq: int
    delivery_id: str
    state: str
    attempts: int
    next_attempt_at: datetime | None
    last_status: int | None
    last_error: str | None


class DeliveryList(Response, omit_defaults=False):
    """Deliveries in log order; completed ones are only counted."""

    delivered: int
    pending: int
    dead: int
    deliveries: list[DeliveryInfo]
    has_more: bool


class WebhookReplayed(Response):
    """How many dead letters were queued again, or the seq from which the log is read again."""

    revived: int = 0
    from_seq: int | None = None
    pruned_through: Annotated[
        int | None, msgspec.Meta(description="Events up to this seq are past retention and are not sent again.")
    ] = None


class WebhookRegistry(msgspec.Struct, frozen=True):
    """The tenant's webhooks and their events, for one caller."""

    actor: Actor
    webhooks: WebhookStore
    events: EventStore
    outbox: Outbox

    async def find(self, webhook_id: str) -> Webhook:
        webhook = await self.webhooks.find(webhook_id)
        if webhook is None:
            raise WebhookNotFound(f"There is no webhook '{webhook_id}'.", webhook_id=webhook_id)
        return webhook

    async def info(self, webhook: Webhook, end: int) -> WebhookInfo:
        counts = await self.webhooks.counts(webhook.webhook_id)
        return WebhookInfo(
            webhook_id=webhook.webhook_id,
            url=webhook.shown_url,
            types=webhook.types,
            session_id=webhook.session_id,
            description=webhook.description,
            agent_id=webhook.principal_id,
            created_at=from_micros(webhook.created_at),
            enabled=webhook.state == "enabled",
            reason=webhook.reason,
            behind=max(0, end - webhook.cursor),
            missed=max(0, await self.events.pruned_seq() - webhook.cursor),
            pending=counts.pending,
            dead=counts.dead,
            delivered=webhook.delivered,
        )

    async def publish(self, event: NewEvent) -> int:
        """Publish an event about a webhook and return its sequence number."""
        await self.outbox.publish(event)
        return await self.outbox.last_seq()

    def event(self, event_type: EventType, webhook: Webhook) -> NewEvent:
        return NewEvent(
            type=event_type,
            session_id=None,
            subject=webhook.webhook_id,
            actor=self.actor.participant,
            readable_by=ADMINS,
            data={"host": webhook.host},
        )


async def _check_address(request: CreateWebhook, sender: WebhookSender) -> None:
    check_url(request.url)
    await sender.check(request.url)


@admin_write(
    "webhook.create",
    tool="webhooks",
    action="create",
    http="POST /v1/webhooks",
    status=201,
    off_record=("secret", "url"),
    session=SessionUse.OUTSIDE,
    prepare=_check_address,
    errors=(AddressNotAllowed, TooManyWebhooks, SessionNotFound),
)
async def create_webhook(
    request: CreateWebhook, registered: WebhookRegistry, sessions: SessionStore, clock: Clock
) -> WebhookCreated:
    """Send future events to an address, signed. The secret is shown only once.

    The webhook receives the events that you may see, as long as you are an admin. A delivery that is not answered with
    a 2xx status within ten seconds is retried for most of a day.
    """
    secret = secret_of(request.secret)
    if request.session_id is not None:
        await find_session(request.session_id, registered.actor, sessions)
    if len(await registered.webhooks.all()) >= MAX_WEBHOOKS:
        raise TooManyWebhooks(f"The tenant already has {MAX_WEBHOOKS} webhooks.")
    webhook = Webhook(
        webhook_id=new_id("webhook"),
        url=request.url,
        types=request.types,
        session_id=request.session_id,
        description=request.description,
        secret=secret,
        principal_id=registered.actor.principal_id,
        created_at=to_micros(clock.now()),
    )
    end = await registered.publish(registered.event("webhook.created", webhook))
    webhook = msgspec.structs.replace(webhook, cursor=end)
    await registered.webhooks.add(webhook)
    info = await registered.info(webhook, end)
    return WebhookCreated(**msgspec.structs.asdict(info), host=webhook.host, secret=webhook.secret)


@admin_operation(
    "webhook.list",
    tool="webhooks",
    action="list",
    http="GET /v1/webhooks",
    effect=Effect.READ,
    session=SessionUse.OUTSIDE,
)
async def list_webhooks(request: ListWebhooks, registered: WebhookRegistry) -> WebhookList:
    """List the webhooks with their delivery counts, without their secrets."""
    del request
    end = await registered.events.last_seq()
    return WebhookList(webhooks=[await registered.info(webhook, end) for webhook in await registered.webhooks.all()])


@admin_write(
    "webhook.update",
    tool="webhooks",
    action="update",
    http="PATCH /v1/webhooks/{webhook_id}",
    errors=(WebhookNotFound, WebhookCannotRun),
    session=SessionUse.OUTSIDE,
)
async def update_webhook(request: UpdateWebhook, registered: WebhookRegistry, access: AccessStore) -> WebhookInfo:
    """Disable a webhook, or enable it: it resumes where it stopped, with every event since then."""
    webhook = await registered.find(request.webhook_id)
    if request.enabled:
        owner = await owner_of(webhook, access)
        if isinstance(owner, str):
            raise WebhookCannotRun(f"The webhook cannot run: {owner}.")
        await registered.webhooks.set_state(webhook.webhook_id, "enabled", None)
    else:
        await registered.webhooks.set_state(
            webhook.webhook_id, "disabled", f"disabled by {registered.actor.participant}"
        )
    end = await registered.publish(registered.event("webhook.updated", webhook))
    return await registered.info(await registered.find(webhook.webhook_id), end)


@admin_write(
    "webhook.delete",
    tool="webhooks",
    action="delete",
    http="DELETE /v1/webhooks/{webhook_id}",
    destructive=True,
    errors=(WebhookNotFound,),
    session=SessionUse.OUTSIDE,
)
async def delete_webhook(request: DeleteWebhook, registered: WebhookRegistry) -> WebhookDeleted:
    """Delete a webhook and its pending deliveries."""
    webhook = await registered.find(request.webhook_id)
    await registered.webhooks.delete(webhook.webhook_id)
    await registered.publish(registered.event("webhook.deleted", webhook))
    return WebhookDeleted(webhook_id=webhook.webhook_id)


@admin_operation(
    "webhook.test",
    tool="webhooks",
    action="test",
    http="POST /v1/webhooks/{webhook_id}/test",
    effect=Effect.OWN_TRANSACTIONS,
    errors=(WebhookNotFound,),
    session=SessionUse.OUTSIDE,
)
async def test_webhook(request: TestWebhook, actor: Actor, sender: WebhookSender) -> WebhookTested:
    """Send an event of type weftline.webhook.test now and return the receiver's answer."""
    attempt = await sender.test(actor, request.webhook_id)
    return WebhookTested(delivered=attempt.accepted, status=attempt.status, error=attempt.error)


@admin_operation(
    "webhook.deliveries",
    tool="webhooks",
    action="deliveries",
    http="GET /v1/webhooks/{webhook_id}/deliveries",
    effect=Effect.READ,
    errors=(WebhookNotFound,),
    session=SessionUse.OUTSIDE,
)
async def list_deliveries(request: ListDeliveries, registered: WebhookRegistry) -> DeliveryList:
    """List a webhook's pending deliveries and dead letters, with the result of the last attempt."""
    webhook = await registered.find(request.webhook_id)
    counts = await registered.webhooks.counts(webhook.webhook_id)
    found = await registered.webhooks.deliveries(webhook.webhook_id, request.state, request.after, request.limit + 1)
    return DeliveryList(
        delivered=webhook.delivered,
        pending=counts.pending,
        dead=counts.dead,
        deliveries=[_delivery_info(webhook, delivery) for delivery in found[: request.limit]],
        has_more=len(found) > request.limit,
    )


@admin_write(
    "webhook.replay",
    tool="webhooks",
    action="replay",
    http="POST /v1/webhooks/{webhook_id}/replay",
    errors=(WebhookNotFound,),
    session=SessionUse.OUTSIDE,
)
async def replay_webhook(request: ReplayWebhook, registered: WebhookRegistry, clock: Clock) -> WebhookReplayed:
    """Send dead letters again, some or all, or every event from a seq on.

    The webhook-id of an event stays the same, so receivers can deduplicate.
    """
    if sum((bool(request.seqs), request.dead, request.from_seq is not None)) != 1:
        raise InvalidInput("Set exactly one of seqs, dead and from_seq.", field="seqs")
    webhook = await registered.find(request.webhook_id)
    revived, pruned = 0, None
    if request.from_seq is not None:
        pruned = await registered.events.pruned_seq()
        await registered.webhooks.rewind(webhook.webhook_id, request.from_seq - 1)
    else:
        now = to_micros(clock.now())
        revived = await registered.webhooks.revive(webhook.webhook_id, request.seqs or None, now)
    await registered.publish(registered.event("webhook.replayed", webhook))
    is_missing = pruned is not None and pruned >= (request.from_seq or 0) > 0
    return WebhookReplayed(revived=revived, from_seq=request.from_seq, pruned_through=pruned if is_missing else None)


def _delivery_info(webhook: Webhook, delivery: Delivery) -> DeliveryInfo:
    return DeliveryInfo(
        seq=delivery.seq,
        delivery_id=delivery_id_of(webhook.webhook_id, delivery.seq),
        state=delivery.state,
        attempts=delivery.attempts,
        next_attempt_at=optional_datetime(delivery.due_at if delivery.state == "pending" else None),
        last_status=delivery.last_status,
        last_error=delivery.last_error,
    )
