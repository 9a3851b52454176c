"""Processes that a test starts, stops and kills."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import weftline.storage.sql.dialects.sqlite
from support.databases import connect_without_fsync
from support.pgvector import search_in_replicas_if_unusable
from support.webhooks import wait_until
from weftline.app.app import App
from weftline.app.dispatch import CallContext
from weftline.kernel.errors import WeftlineError
from weftline.testing.clock import FrozenClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerProcess

    from support.world import Caller, World
    from weftline.settings import Settings

    # An operation and its request.
    Attempt = tuple[str, dict[str, Any]]

TIMEOUT_SECONDS = 60
# Forked from a process that has only imported Weftline: the import takes longer than most of these processes run.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "weftline.app.app",
        "weftline.providers.webhook_sender",
        "weftline.storage.sql.dialects.postgres",
        "weftline.storage.sql.dialects.sqlite",
        "weftline.testing.embedder",
    ]
)


class ClockAhead:
    """A clock that is ahead of the machine's."""

    def __init__(self, seconds: float) -> None:
        self._ahead = timedelta(seconds=seconds)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process that runs the background jobs of an App."""

    _process: ForkServerProcess

    async def stop(self) -> None:
        """Send SIGTERM and wait for the exit."""
        self._process.terminate()
        await asyncio.to_thread(self._process.join, TIMEOUT_SECONDS)
        assert self._process.exitcode == 0

    async def kill(self) -> None:
        self._process.kill()
        await asyncio.to_thread(self._process.join)


@asynccontextmanager
async def process(
    make: Callable[[str, str, ClockAhead], App], world: World, ahead_seconds: int = 0
) -> AsyncIterator[RunningProcess]:
    """Run an App in a separate process on a world's database; kill it at the end of the block.

    Its clock is ``ahead_seconds`` ahead.
    """
    here, there = _context.Pipe(duplex=False)
    process = _context.Process(
        target=_run_app, args=(make, world.url, world.settings.data_dir, ahead_seconds, there), daemon=True
    )
    process.start()
    there.close()
    running = RunningProcess(process)
    try:
        assert await asyncio.to_thread(here.poll, TIMEOUT_SECONDS), "it did not open"
        here.recv()
        yield running
    finally:
        await running.kill()
        here.close()


async def kill_when(
    running: AbstractAsyncContextManager[RunningProcess], reached: Callable[[], Awaitable[Any]]
) -> None:
    """Run a process until a condition holds, then kill it."""
    async with running:
        await wait_until(reached)


async def outcomes_in_processes(caller: Caller, world: World, attempts: Sequence[Sequence[Attempt]]) -> list[str]:
    """Make calls from several processes at the same time; return ok, or the error code, of each."""
    pipes = [_context.Pipe() for _ in attempts]
    processes = [
        _context.Process(
            target=_make_calls, args=(world.settings, world.clock.now(), caller.credential, calls, there), daemon=True
        )
        for calls, (_, there) in zip(attempts, pipes, strict=True)
    ]
    try:
        for each in processes:
            each.start()
        for here, _ in pipes:
            assert await asyncio.to_thread(here.poll, TIMEOUT_SECONDS), "it did not open"
            here.recv()
        for here, _ in pipes:
            here.send("start")
        for here, _ in pipes:
            assert await asyncio.to_thread(here.poll, TIMEOUT_SECONDS), "it did not answer"
        return [outcome for here, _ in pipes for outcome in here.recv()]
    finally:
        for each in processes:
            each.kill()
            await asyncio.to_thread(each.join)


def _make_calls(settings: Settings, now: datetime, credential: str, calls: Sequence[Attempt], pipe: Connection) -> None:
    weftline.storage.sql.dialects.sqlite._connect = connect_without_fsync
    search_in_replicas_if_unusable()
    pipe.send(asyncio.run(_outcomes(App(settings, clock=FrozenClock(now)), credential, calls, pipe)))


async def _outcomes(app: App, credential: str, calls: Sequence[Attempt], pipe: Connection) -> list[str]:
    async def outcome(attempt: Attempt) -> str:
        operation, raw = attempt
        try:
            await app.call(app.registry[operation], raw, CallContext(credential))
        except WeftlineError as error:
            return error.code
        return "ok"

    await app.open(background=False)
    try:
        pipe.send("open")
        await asyncio.to_thread(pipe.recv)
        return await asyncio.gather(*map(outcome, calls))
    finally:
        await app.close()


def _run_app(
    make: Callable[[str, str, ClockAhead], App], url: str, data: str, ahead_seconds: int, opened: Connection
) -> None:
    weftline.storage.sql.dialects.sqlite._connect = connect_without_fsync
    search_in_replicas_if_unusable()
    asyncio.run(_run_until_terminated(make(url, data, ClockAhead(ahead_seconds)), opened))


async def _run_until_terminated(app: App, opened: Connection) -> None:
    """Run the background jobs of an App until SIGTERM."""
    terminated = asyncio.Event()
    # Not SIGINT, which processes started in the background of a shell ignore.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    await app.open()
    opened.send("open")
    await terminated.wait()
    await app.close()
