"""Thread pools are separate by purpose, and shared fairly: slow work of one caller does not delay another."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from functools import partial
from pathlib import Path

import pytest

import weftline
from weftline.kernel.errors import ServerBusy
from weftline.kernel.thread_pools import CALLER, DOCUMENT_THREADS, SEARCH_THREADS, ThreadPool


async def test_slow_documents_do_not_delay_searches() -> None:
    release = threading.Event()
    slow = [asyncio.create_task(DOCUMENT_THREADS.run(release.wait)) for _ in range(20)]
    try:
        async with asyncio.timeout(60):
            assert await SEARCH_THREADS.run(lambda: "found") == "found"
            assert await asyncio.to_thread(lambda: "done") == "done"
    finally:
        release.set()
    assert await asyncio.gather(*slow) == [True] * 20


async def test_context_variables_reach_the_thread() -> None:
    variable = contextvars.ContextVar("known", default="nothing")
    variable.set("something")
    assert await SEARCH_THREADS.run(variable.get) == "something"


async def test_a_tenant_and_a_principal_leave_threads_to_others() -> None:
    pool = ThreadPool("test", 4)
    release = threading.Event()
    greedy = [asyncio.create_task(pool.run_for(("t", "greedy"), release.wait)) for _ in range(20)]
    try:
        async with asyncio.timeout(60):
            assert await pool.run_for(("t", "neighbour"), lambda: "done") == "done"
            second = asyncio.create_task(pool.run_for(("t", "second"), release.wait))
            assert await pool.run_for(("other", "p"), lambda: "done") == "done"
            await pool.run_for(("other", "p"), lambda: None)
    finally:
        release.set()
    assert await asyncio.gather(*greedy, second) == [True] * 21


async def test_the_caller_of_the_task_decides_whose_share_it_is() -> None:
    pool = ThreadPool("test", 2)
    release = threading.Event()

    async def work() -> bool:
        CALLER.set(("greedy", "p"))
        return await pool.run(release.wait)

    greedy = [asyncio.create_task(work()) for _ in range(5)]
    await asyncio.sleep(0.01)
    CALLER.set(("other", "p"))
    try:
        async with asyncio.timeout(60):
            assert await pool.run(lambda: "done") == "done"
    finally:
        release.set()
    await asyncio.gather(*greedy)


async def test_tenants_take_turns_at_one_thread() -> None:
    pool = ThreadPool("test", 1)
    served: list[str] = []
    release = threading.Event()
    first = asyncio.create_task(pool.run_for(("greedy", "p"), release.wait))
    await asyncio.sleep(0.01)
    rest = [asyncio.create_task(pool.run_for(("greedy", "p"), partial(served.append, "greedy"))) for _ in range(10)]
    await asyncio.sleep(0)
    other = asyncio.create_task(pool.run_for(("other", "p"), partial(served.append, "other")))
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(first, other, *rest)
    assert served[0] == "other"
    assert len(served) == 11


async def test_too_many_calls_and_too_long_waits_are_refused() -> None:
    pool = ThreadPool("test", 1, max_waiting=2, max_wait_seconds=0.05)
    release = threading.Event()
    running = asyncio.create_task(pool.run_for(("t", "p"), release.wait))
    await asyncio.sleep(0.01)
    waiting = [asyncio.create_task(pool.run_for(("t", "p"), release.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(ServerBusy):
        await pool.run_for(("t", "p"), release.wait)
    for refused in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(refused, ServerBusy)
    release.set()
    assert await running
    assert await pool.run_for(("t", "p"), lambda: "done") == "done"


async def test_cancelled_work_leaves_the_queue() -> None:
    pool = ThreadPool("test", 1, max_waiting=1)
    release, ran = threading.Event(), threading.Event()
    running = asyncio.create_task(pool.run_for(("t", "p"), release.wait))
    await asyncio.sleep(0.01)
    for _ in range(3):
        cancelled = asyncio.create_task(pool.run_for(("t", "p"), ran.set))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
    release.set()
    assert await running
    await pool.run_for(("t", "p"), lambda: None)
    assert not ran.is_set()


async def test_errors_reach_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        await SEARCH_THREADS.run(lambda: 1 / 0)


def test_no_work_of_callers_runs_in_threads_that_are_not_shared_fairly() -> None:
    source = Path(weftline.__file__).parent
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if any(call in path.read_text() for call in ("asyncio.to_thread(", "run_in_executor(None", "anyio.to_thread"))
    }
    # Closing a database, commands of an operator, and clients that have no await, in a program of the user.
    assert found <= {
        "adapters/bridge.py",
        "app/diagnostics/checks.py",
        "storage/sql/dialects/postgres.py",
        "storage/sql/dialects/sqlite.py",
        "transports/cli/console.py",
        "validation/failures.py",
    }
