"""Ports of webhooks: the HTTP client that calls receivers, and the sender."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from weftline.kernel.identity import Actor
    from weftline.sessions.events.webhooks.model import Attempt


class WebhookSender(Protocol):
    """Checks addresses and sends test events on request."""

    async def check(self, url: str) -> None:
        """Refuse an address that must not be called."""
        ...

    async def test(self, actor: Actor, webhook_id: str) -> Attempt:
        """Send a test event."""
        ...
