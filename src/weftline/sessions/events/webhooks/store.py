"""Ports of webhooks: the store, and the HTTP client that calls receivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.kernel.identity import Actor
    from weftline.sessions.events.webhooks.model import Attempt, DeliveryState, Webhook, WebhookState


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


class WebhookStore(Protocol):
    """The webhooks of the transaction's tenant, with their undelivered events."""

    async def add(self, webhook: Webhook) -> None: ...

    async def find(self, webhook_id: str) -> Webhook | None: ...

    async def all(self) -> Sequence[Webhook]:
        """Return every webhook, oldest first."""
        ...

    async def delete(self, webhook_id: str) -> bool:
        """Delete a webhook and its deliveries; False if there is none."""
        ...

    async def set_state(self, webhook_id: str, state: WebhookState, reason: str | None) -> None: ...

    async def claim(self, webhook_id: str, holder: str, now: int, until: int) -> Webhook | None:
        """Lease an enabled webhook until a time; None if it is leased already or paused."""
        ...

    async def release(self, webhook_id: str, holder: str, paused_until: int) -> None:
        """Release the lease; the webhook cannot be leased again before ``paused_until``."""
        ...

    async def enqueue(self, webhook_id: str, seq: int, due_at: int) -> None:
        """Queue an event; a dead letter is queued again."""
        ...

    async def set_cursor(self, webhook_id: str, seq: int) -> None: ...

    async def rewind(self, webhook_id: str, seq: int) -> None:
        """Move the cursor back to ``seq`` if it is past it."""
        ...

    async def due(self, webhook_id: str, now: int, limit: int) -> Sequence[DueDelivery]:
        """Return due deliveries in log order."""
        ...

    async def remove(self, webhook_id: str, seq: int) -> bool:
        """Delete a delivery; False if there is none."""
        ...

    async def count_delivered(self, webhook_id: str, more: int) -> None: ...

    async def schedule_retry(self, webhook_id: str, seq: int, attempts: int, due_at: int | None, last: Attempt) -> None:
        """Store a failed attempt and when the next one is due; None makes it a dead letter."""
        ...

    async def revive(self, webhook_id: str, seqs: Sequence[int] | None, due_at: int) -> int:
        """Queue dead letters again, of these events or all; return how many."""
        ...

    async def counts(self, webhook_id: str) -> DeliveryCounts: ...

    async def deliveries(
        self, webhook_id: str, state: DeliveryState | None, after: int, limit: int
    ) -> Sequence[Delivery]:
        """Return deliveries after ``after``, in log order."""
        ...


class WebhookHttpClient(Protocol):
    """The HTTP client that calls receivers."""

    async def check(self, url: str) -> None:
        """Refuse an address that must not be called."""
        ...

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Attempt:
        """Post a body to a receiver; failures are returned, never raised."""
        ...

    async def aclose(self) -> None:
        """Close open connections."""
        ...


class WebhookSender(Protocol):
    """Checks addresses and sends test events on request."""

    async def check(self, url: str) -> None:
        """Refuse an address that must not be called."""
        ...

    async def test(self, actor: Actor, webhook_id: str) -> Attempt:
        """Send a test event."""
        ...
