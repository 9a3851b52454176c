"""What webhooks need of storage, and of whoever makes the calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.capabilities.events.webhooks.model import Attempt, DeliveryState, State, Webhook
    from weft.kernel.identity import Actor


class DeliveryCounts(NamedTuple):
    """How many events a webhook has still to be sent, and how many could not be."""

    pending: int
    dead: int


class Delivery(NamedTuple):
    """An event on its way to a webhook, or given up."""

    seq: int
    state: DeliveryState
    attempts: int
    due_at: int
    last_status: int | None
    last_error: str | None


class Due(NamedTuple):
    """What is to be sent now, and how often that was tried."""

    seq: int
    attempts: int


class WebhookStore(Protocol):
    """The webhooks of the transaction's tenant, and what they have not taken yet."""

    async def add(self, webhook: Webhook) -> None: ...

    async def find(self, webhook_id: str) -> Webhook | None: ...

    async def all(self) -> Sequence[Webhook]:
        """Return every webhook, oldest first."""
        ...

    async def delete(self, webhook_id: str) -> bool:
        """Remove a webhook with all it was still to be sent; False if there is none."""
        ...

    async def set_state(self, webhook_id: str, state: State, reason: str | None) -> None: ...

    async def claim(self, webhook_id: str, holder: str, now: int, until: int) -> Webhook | None:
        """Take an enabled webhook in hand until a moment; None if another has it, or it rests."""
        ...

    async def release(self, webhook_id: str, holder: str, rests_until: int) -> None:
        """Let go of a webhook; nobody takes it before ``rests_until``."""
        ...

    async def enqueue(self, webhook_id: str, seq: int, due_at: int) -> None:
        """Have an event sent; one that was given up is tried anew."""
        ...

    async def set_cursor(self, webhook_id: str, seq: int) -> None: ...

    async def rewind(self, webhook_id: str, seq: int) -> None:
        """Look at everything behind ``seq`` once more, if it was looked at already."""
        ...

    async def due(self, webhook_id: str, now: int, limit: int) -> Sequence[Due]:
        """Return what is due, in the order of the log."""
        ...

    async def remove(self, webhook_id: str, seq: int) -> bool:
        """Forget a delivery; False if it is not there."""
        ...

    async def count_delivered(self, webhook_id: str, more: int) -> None: ...

    async def postpone(self, webhook_id: str, seq: int, attempts: int, due_at: int | None, last: Attempt) -> None:
        """Note that an attempt failed, and when the next one is due; None gives the delivery up."""
        ...

    async def revive(self, webhook_id: str, seqs: Sequence[int] | None, due_at: int) -> int:
        """Have what was given up sent again, these events or all; return how many there were."""
        ...

    async def tally(self, webhook_id: str) -> DeliveryCounts: ...

    async def deliveries(
        self, webhook_id: str, state: DeliveryState | None, after: int, limit: int
    ) -> Sequence[Delivery]:
        """Return deliveries in the order of the log, behind ``after``."""
        ...


class Sender(Protocol):
    """Makes the calls."""

    async def check(self, url: str) -> None:
        """Refuse an address that must not be called."""
        ...

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Attempt:
        """Post a body to a receiver. Whatever happens is in the answer; nothing is raised."""
        ...

    async def aclose(self) -> None:
        """Close what is open."""
        ...


class WebhookSender(Protocol):
    """Calls a receiver at once, because somebody asked to see whether it answers."""

    async def check(self, url: str) -> None:
        """Refuse an address that must not be called."""
        ...

    async def test(self, actor: Actor, webhook_id: str) -> Attempt:
        """Send an event made for this alone."""
        ...
