"""Webhook helpers: immediate delivery, creation, and waiting."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cloudevents.core.bindings.http import HTTPMessage, from_http
from cloudevents.core.formats.json import JSONFormat

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

    from support.webhook_receiver import Call
    from support.world import Caller, World

TIMEOUT_SECONDS = 60


def poll_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have jobs poll at once, and find the first webhook of a tenant at once."""
    monkeypatch.setattr("weftline.jobs.scheduler._FIRST_POLL_SECONDS", 0.0)
    monkeypatch.setattr("weftline.jobs.webhook_delivery._NEW_WEBHOOK_SECONDS", 0.05)


def parsed(call: Call) -> Any:
    """Parse a call with the CloudEvents SDK."""
    return from_http(HTTPMessage(call.headers, call.body), JSONFormat())


async def hook(caller: Caller, url: str, **fields: Any) -> Any:
    return await caller.call("webhook.create", url=url, **fields)


async def webhook_state(caller: Caller, created: Any) -> Any:
    webhooks = (await caller.call("webhook.list"))["webhooks"]
    return next(webhook for webhook in webhooks if webhook["webhook_id"] == created["webhook_id"])


async def deliveries(caller: Caller, created: Any, **filters: Any) -> Any:
    return await caller.call("webhook.deliveries", webhook_id=created["webhook_id"], **filters)


async def wait_until(poll: Callable[[], Awaitable[Any]]) -> Any:
    """Poll until the result is true, and return it."""
    pause = 0.01
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not (result := await poll()):
            await asyncio.sleep(pause)
            # A poll takes the processor from what it waits for.
            pause = min(2 * pause, 0.05)
    return result


async def advance_clock(world: World, **duration: float) -> None:
    """Advance the clock and wake the delivery job."""
    world.clock.advance(**duration)
    world.app.scheduler.notify({world.tenant})
