"""Counters of calls in a file beside a SQLite database, for all processes that use it.

The file is a table of fixed size in shared memory, locked for the few microseconds of a call. It holds hashes of names
and numbers, and nothing whose loss matters.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import sys
import time
from hashlib import blake2b
from typing import TYPE_CHECKING

from weftline.app.call_windows import MAX_AGE_WINDOWS, SECOND, Rate, RequiredWait, WindowCounter, required_wait

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

# Hash of the name, time at which the counter expires, and the counter.
_SLOT = struct.Struct("<8sqqII")
# A counter is in one of the eight slots of its bucket.
_BUCKET_BYTES = 8 * _SLOT.size
_BUCKETS = 8_192
_BYTES = _BUCKETS * _BUCKET_BYTES
_MAX_CALLS = 2**32 - 1
# A process that was stopped while it held the lock must not stop the others.
_LOCK_SECONDS = 0.05


class NoRoom(Exception):
    """All slots for a counter count something else."""


class CounterFile:
    """Sliding window counters that processes share through a file. ``now`` replaces the clock, in seconds."""

    error = (OSError,)

    def __init__(self, path: Path, now: Callable[[], float] | None = None) -> None:
        self._path = path
        self._now = now or time.time
        self._descriptor = -1
        self._table: mmap.mmap | None = None

    def __str__(self) -> str:
        return f"the file {self._path.name}"

    async def hit(self, rates: Sequence[Rate], who: tuple[str, ...]) -> RequiredWait | None:
        """Count a call for each rate; if one refuses it, count it for none. Raises NoRoom and OSError."""
        with self._locked() as table:
            now = int(self._now() * SECOND)
            slots = [_Slot(table, rate, who, now) for rate in rates]
            refusal = required_wait(rates, [slot.counter for slot in slots], now)
            if refusal is None:
                for slot in slots:
                    slot.add(1)
        return refusal

    async def add(
        self, rates: Sequence[Rate], whos: Sequence[tuple[str, ...]], calls: int
    ) -> tuple[int, list[WindowCounter]]:
        """Add calls to the counters of each name and rate; return the time in milliseconds and the counters."""
        with self._locked() as table:
            now = int(self._now() * SECOND)
            slots = [_Slot(table, rate, who, now) for who in whos for rate in rates]
            return now, [slot.add(calls) for slot in slots]

    async def close(self) -> None:
        """Close the file; it stays for the other processes."""
        if self._table is not None:
            self._table.close()
            self._table = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @contextlib.contextmanager
    def _locked(self) -> Iterator[mmap.mmap]:
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        _lock(self._descriptor)
        try:
            if self._table is None:
                self._table = _mapped(self._descriptor)
            yield self._table
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)


class _Slot:
    """The counter of a name for a rate, and its place in the table. Raises NoRoom."""

    def __init__(self, table: mmap.mmap, rate: Rate, who: tuple[str, ...], now: int) -> None:
        # Names and addresses contain no slash.
        digest = blake2b("/".join((rate.text, *who)).encode(), digest_size=12).digest()
        self._table, self._name, self._window = table, digest[:8], rate.seconds * SECOND
        number = now // self._window
        start = int.from_bytes(digest[8:]) % _BUCKETS * _BUCKET_BYTES
        expired = -1
        for place in range(start, start + _BUCKET_BYTES, _SLOT.size):
            name, expires_at, known, calls, before = _SLOT.unpack_from(table, place)
            if name == self._name:
                self._place, self.counter = place, WindowCounter(known, calls, before).at(number)
                return
            if expires_at <= now:
                expired = place
        if expired < 0:
            raise NoRoom
        self._place, self.counter = expired, WindowCounter(number)

    def add(self, calls: int) -> WindowCounter:
        counter = self.counter._replace(calls=min(max(0, self.counter.calls + calls), _MAX_CALLS))
        expires_at = (counter.number + MAX_AGE_WINDOWS) * self._window
        _SLOT.pack_into(self._table, self._place, self._name, expires_at, *counter)
        return counter


def _lock(descriptor: int) -> None:
    """Wait for the lock, but not for a process that does not run on. Raises OSError."""
    latest = 0.0
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            latest = latest or time.monotonic() + _LOCK_SECONDS
            if time.monotonic() > latest:
                raise
            # To the process that has the lock.
            os.sched_yield()
        else:
            return


def _mapped(descriptor: int) -> mmap.mmap:
    """Map the table, after writing all of it: a disk that is full must fail here and not at a later change."""
    size = os.fstat(descriptor).st_size
    if size < _BYTES:
        os.pwrite(descriptor, bytes(_BYTES - size), size)
    return mmap.mmap(descriptor, _BYTES)
