"""Threads by what they are for: what is slow in one kind of work keeps no other waiting."""

from __future__ import annotations

import asyncio
import contextvars
import threading

from weft.kernel.thread_pools import DOCUMENT_THREADS, SEARCH_THREADS


async def test_slow_documents_do_not_delay_searches() -> None:
    may_end = threading.Event()
    slow = [asyncio.create_task(DOCUMENT_THREADS.run(may_end.wait)) for _ in range(20)]
    try:
        async with asyncio.timeout(20):
            assert await SEARCH_THREADS.run(lambda: "found") == "found"
            assert await asyncio.to_thread(lambda: "done") == "done"
    finally:
        may_end.set()
    assert await asyncio.gather(*slow) == [True] * 20


async def test_context_variables_reach_the_thread() -> None:
    known = contextvars.ContextVar("known", default="nothing")
    known.set("something")
    assert await SEARCH_THREADS.run(known.get) == "something"
