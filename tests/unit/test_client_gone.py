"""What happens to a call whose client disconnects."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest

from weftline.kernel.client_gone import ClientGone, WaitingClient, stoppable, until_client_leaves


async def answer(client: WaitingClient, wait: asyncio.Event, *, may_stop: bool) -> str:
    """Answer a request after a wait."""
    client.asks()
    with stoppable() if may_stop else nullcontext(), until_client_leaves():
        await wait.wait()
    return "done"


async def begun(client: WaitingClient, wait: asyncio.Event, *, may_stop: bool = True) -> asyncio.Task[str]:
    task = asyncio.create_task(answer(client, wait, may_stop=may_stop))
    await asyncio.sleep(0)
    return task


async def test_a_wait_ends_when_its_client_leaves() -> None:
    client, wait = WaitingClient(), asyncio.Event()
    task = await begun(client, wait)
    client.leave()
    with pytest.raises(ClientGone):
        await task
    assert not task.cancelling()
    # It begins no other one.
    with pytest.raises(ClientGone):
        await (await begun(client, wait))


async def test_a_call_that_may_have_changed_something_goes_on() -> None:
    client, wait = WaitingClient(), asyncio.Event()
    task = await begun(client, wait, may_stop=False)
    client.leave()
    wait.set()
    assert await task == "done"


async def test_what_a_request_has_started_is_no_part_of_it() -> None:
    client, wait = WaitingClient(), asyncio.Event()

    async def ask() -> asyncio.Task[str]:
        client.asks()
        return asyncio.create_task(go_on())

    async def go_on() -> str:
        with stoppable(), until_client_leaves():
            await wait.wait()
        return "done"

    started = await asyncio.create_task(ask())
    await asyncio.sleep(0)
    client.leave()
    wait.set()
    assert await started == "done"


async def test_a_cancelled_wait_of_a_client_that_is_there_stays_cancelled() -> None:
    task = await begun(WaitingClient(), asyncio.Event())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
