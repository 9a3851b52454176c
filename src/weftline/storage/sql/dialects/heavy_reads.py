"""Heavy reads: threads with connections of their own, shared fairly, so that no short read or write waits for one."""

from __future__ import annotations

import contextvars
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from weftline.kernel.client_gone import until_client_leaves
from weftline.kernel.thread_pools import ThreadPool, short_turns
from weftline.storage.sql.tenants import StorageUsage

if TYPE_CHECKING:
    from collections.abc import Callable

    from weftline.storage.sql.database import Scope

T = TypeVar("T")

# More would not read faster: Python runs one of them at a time.
_THREADS = 4
_MAX_WAITING = 64
_MAX_WAIT_SECONDS = 15.0
# What a read that is not declared heavy may do on the event loop: rows, and statements at the cost of several rows.
MAX_STEPS = 800
STATEMENT_STEPS = 5
UNLIMITED_STEPS = 2**60


class TooManySteps(Exception):
    """A read that was thought to be short is not; it is repeated as a heavy one."""


class ReadConnection(Protocol):
    """A connection for reads, used by one thread."""

    def is_open(self) -> bool: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=ReadConnection)


class HeavyReads(Generic[C]):
    """Runs heavy reads in threads, each with a connection that stays open.

    One tenant takes at most half of the threads, one principal fewer; who waits too long is refused (ServerBusy).
    """

    def __init__(self, connect: Callable[[], C]) -> None:
        self._connect = connect
        self._threads = _new_threads()
        self._local = threading.local()
        self._lock = threading.Lock()
        self._connections: list[C] = []
        self.usage = StorageUsage()
        self.opened = self.in_use = 0

    @property
    def open(self) -> int:
        """Return the number of open connections."""
        return len(self._connections)

    async def run(self, scope: Scope, read: Callable[[C, StorageUsage], T]) -> T:
        """Run a read for the principal of a scope, with a connection and the counters of its statements."""
        context = contextvars.copy_context()
        work = partial(context.run, self._read, read, time.perf_counter())
        with until_client_leaves():
            return await self._threads.run_for((scope.tenant or "", scope.principal), work)

    def close(self) -> None:
        """Wait for the reads that run, and close all connections."""
        ended, self._threads = self._threads, _new_threads()
        ended.shutdown()
        self.close_connections()

    def close_connections(self) -> None:
        """Close the connections while nothing is read; the next reads open new ones."""
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            connection.close()

    def _read(self, read: Callable[[C, StorageUsage], T], asked: float) -> T:
        connection = self._connection()
        usage = StorageUsage()
        usage.waited(time.perf_counter() - asked)
        # Every other counter has one thread.
        with self._lock:
            self.in_use += 1
            usage.began(self.in_use)
        try:
            with short_turns():
                return read(connection, usage)
        finally:
            with self._lock:
                self.in_use -= 1
                self.usage += usage

    def _connection(self) -> C:
        connection: C | None = getattr(self._local, "connection", None)
        if connection is None or not connection.is_open():
            if connection in self._connections:
                self._connections.remove(connection)
            connection = self._local.connection = self._connect()
            with self._lock:
                self._connections.append(connection)
                self.opened += 1
        return connection


def _new_threads() -> ThreadPool:
    return ThreadPool("reads", _THREADS, max_waiting=_MAX_WAITING, max_wait_seconds=_MAX_WAIT_SECONDS)
