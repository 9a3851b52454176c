"""Processes that a test starts, stops and kills."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import weft.storage.sql.dialects.sqlite
from support.databases import connect_without_fsync
from support.pgvector import search_in_replicas_if_unusable
from support.webhooks import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerProcess

    from support.world import World
    from weft.app.app import App

PATIENCE = 60
# Forked from a process that has imported Weft and done nothing else: importing it takes longer than most of them live.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "weft.app.app",
        "weft.providers.webhook_sender",
        "weft.storage.sql.dialects.postgres",
        "weft.storage.sql.dialects.sqlite",
        "weft.testing.embedder",
    ]
)


class ClockAhead:
    """A clock that is ahead of the machine's."""

    def __init__(self, seconds: float) -> None:
        self._ahead = timedelta(seconds=seconds)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead


@dataclass(frozen=True, slots=True)
class Running:
    """A process that does what an App does by itself."""

    _process: ForkServerProcess

    async def stop(self) -> None:
        """Ask it to stop, as a platform does, and wait until it has."""
        self._process.terminate()
        await asyncio.to_thread(self._process.join, PATIENCE)
        assert self._process.exitcode == 0

    async def kill(self) -> None:
        self._process.kill()
        await asyncio.to_thread(self._process.join)


@asynccontextmanager
async def process(
    make: Callable[[str, str, ClockAhead], App], world: World, ahead_seconds: int = 0
) -> AsyncIterator[Running]:
    """Run an App in a process of its own, on a world's database, and kill it at the end of the block.

    Its clock is so many seconds ahead.
    """
    here, there = _context.Pipe(duplex=False)
    process = _context.Process(
        target=_live, args=(make, world.url, world.settings.data_dir, ahead_seconds, there), daemon=True
    )
    process.start()
    there.close()
    running = Running(process)
    try:
        assert await asyncio.to_thread(here.poll, PATIENCE), "it did not open"
        here.recv()
        yield running
    finally:
        await running.kill()
        here.close()


async def killed_when(running: AbstractAsyncContextManager[Running], reached: Callable[[], Awaitable[Any]]) -> None:
    """Run a process until something is so, and kill it then."""
    async with running:
        await until(reached)


def _live(
    make: Callable[[str, str, ClockAhead], App], url: str, data: str, ahead_seconds: int, opened: Connection
) -> None:
    weft.storage.sql.dialects.sqlite._connect = connect_without_fsync
    search_in_replicas_if_unusable()
    asyncio.run(_stay(make(url, data, ClockAhead(ahead_seconds)), opened))


async def _stay(app: App, opened: Connection) -> None:
    """Let an App do what it does by itself, until the process is asked to stop or killed."""
    asked_to_stop = asyncio.Event()
    # Not an interrupt, which is ignored by whatever was started in the background of a shell.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked_to_stop.set)
    await app.open()
    opened.send("open")
    await asked_to_stop.wait()
    await app.close()
