"""Thread pools are separate by purpose: slow work in one does not delay another."""

from __future__ import annotations

import asyncio
import contextvars
import threading

from weft.kernel.thread_pools import DOCUMENT_THREADS, SEARCH_THREADS


async def test_slow_documents_do_not_delay_searches() -> None:
    release = threading.Event()
    slow = [asyncio.create_task(DOCUMENT_THREADS.run(release.wait)) for _ in range(20)]
    try:
        async with asyncio.timeout(20):
            assert await SEARCH_THREADS.run(lambda: "found") == "found"
            assert await asyncio.to_thread(lambda: "done") == "done"
    finally:
        release.set()
    assert await asyncio.gather(*slow) == [True] * 20


async def test_context_variables_reach_the_thread() -> None:
    variable = contextvars.ContextVar("known", default="nothing")
    variable.set("something")
    assert await SEARCH_THREADS.run(variable.get) == "something"
