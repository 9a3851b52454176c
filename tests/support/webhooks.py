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

PATIENCE = 30


def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers begin with the process, and notice the first webhook of a tenant at once."""
    monkeypatch.setattr("weft.jobs.scheduler._FIRST_POLL_SECONDS", 0.0)
    monkeypatch.setattr("weft.jobs.webhook_delivery._NEW_WEBHOOK_SECONDS", 0.05)


def parsed(call: Call) -> Any:
    """Return what a call says, as the SDK of CloudEvents reads it."""
    return from_http(HTTPMessage(call.headers, call.body), JSONFormat())


async def hook(caller: Caller, url: str, **what: Any) -> Any:
    return await caller.call("webhook.create", url=url, **what)


async def shown(caller: Caller, made: Any) -> Any:
    webhooks = (await caller.call("webhook.list"))["webhooks"]
    return next(webhook for webhook in webhooks if webhook["webhook_id"] == made["webhook_id"])


async def deliveries(caller: Caller, made: Any, **which: Any) -> Any:
    return await caller.call("webhook.deliveries", webhook_id=made["webhook_id"], **which)


async def until(look: Callable[[], Awaitable[Any]]) -> Any:
    """Wait until what is looked at is so, and return it."""
    async with asyncio.timeout(PATIENCE):
        while not (seen := await look()):  # noqa: ASYNC110 - nothing tells when it is
            await asyncio.sleep(0.01)
    return seen


async def later(world: World, **passed: float) -> None:
    """Let time pass, and have the worker notice."""
    world.clock.advance(**passed)
    world.app.scheduler.notify({world.tenant})
