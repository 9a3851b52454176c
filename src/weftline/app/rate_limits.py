"""Rate limits by class and agent: shared by the processes of a SQLite file, or through Valkey; else per process.

A sliding window counter: the calls of the current window plus the remaining share of the previous one. A refusal says
the smallest number of whole seconds after which the call passes.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import re
import struct
import sys
import time
from collections import Counter, OrderedDict
from hashlib import blake2b
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, NamedTuple

from weftline.kernel.errors import RateLimited
from weftline.kernel.operation import RateClass
from weftline.settings import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path


# Sliding windows: a rate, the counter of its calls, and how long a refused call must wait.
#
# A counter has the calls of the current window and those of the one before, of which the remaining share counts.

SECOND = 1_000
# A counter says nothing about calls that are two windows old.
MAX_AGE_WINDOWS = 2


class Rate(NamedTuple):
    """At most ``amount`` calls in ``seconds``."""

    amount: int
    seconds: int
    text: str

    def times(self, factor: int) -> Rate:
        amount = self.amount * factor
        return Rate(amount, self.seconds, f"{amount}{self.text.removeprefix(str(self.amount))}")


class RequiredWait(NamedTuple):
    """Seconds until the call passes, and the rate that takes longest."""

    seconds: int
    rate: Rate


class WindowCounter(NamedTuple):
    """Number of a window, its calls, and calls of the window before. Times are in milliseconds."""

    number: int = 0
    calls: int = 0
    before: int = 0

    def at(self, number: int) -> WindowCounter:
        """Return the counter as it is in a later window."""
        if number == self.number:
            return self
        return WindowCounter(number, 0, self.calls if number == self.number + 1 else 0)

    def calls_at(self, rate: Rate, now: int) -> int:
        """Return the calls of the last window: those of this one, and the remaining share of the one before."""
        window = rate.seconds * SECOND
        return self.calls + self.before * (window - now % window) // window

    def wait(self, rate: Rate, now: int) -> int:
        """Return the milliseconds until one more call passes; 0 if it passes now.

        It passes as soon as ``calls + before * remaining / window < amount``, where ``remaining`` is the rest of the
        window.
        """
        window = rate.seconds * SECOND
        remaining = window - now % window
        if self.calls < rate.amount:
            room = (rate.amount - self.calls) * window
            return max(0, remaining - (room - 1) // self.before) if self.before else 0
        # Not before the next window, when the calls of this one count by their remaining share.
        return remaining + window - (rate.amount * window - 1) // max(self.calls, 1)


def required_wait(rates: Sequence[Rate], counters: Sequence[WindowCounter], now: int) -> RequiredWait | None:
    waits = [(counter.wait(rate, now), rate) for rate, counter in zip(rates, counters, strict=True)]
    wait, rate = max(waits)
    return RequiredWait(-(-wait // SECOND), rate) if wait else None


# Counters of calls in a file beside a SQLite database, for all processes that use it.
#
# The file is a table of fixed size in shared memory, locked for the few microseconds of a call. It holds hashes of
# names and numbers, and nothing whose loss matters.

if sys.platform != "win32":
    import fcntl


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


_log = logging.getLogger("weftline.rates")
_RETRY_SHARED_SECONDS = 5.0
MAX_COUNTERS = 100_000
_VALKEY_CONNECTIONS = 64
_VALKEY_SECONDS = 1.0
# A client usually gets a network of the first size; its provider gave it one of up to the second.
_CLIENT_PREFIX, _SITE_PREFIX = 64, 48
# What all clients of such a site may do together, as a multiple of one.
_SITE_RATE = 16
# The part of a table that one tenant may have, and one site.
_TENANT_PART, _SITE_PART = 2, 64
_UNITS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "month": 2_592_000, "year": 31_104_000}
_SCHEMES = {"valkey": "valkey", "redis": "valkey", "valkeys": "valkeys", "rediss": "valkeys"}
_SEPARATOR = re.compile("[,;|]")
# In place of the name of a caller for which there is no counter left.
_OTHERS = "others"
_RATE = re.compile(rf"\s*(\d+)\s*(?:/|per)\s*(\d*)\s*({'|'.join(_UNITS)})s?\s*", re.IGNORECASE)


class RecentCalls(NamedTuple):
    """Calls of the last minute and of the last hour."""

    minute: int
    hour: int


# Windows of calls that are only counted.
_RECENT = (Rate(0, 60, "calls per minute"), Rate(0, 3_600, "calls per hour"))


class RateLimits:
    """Counts calls and raises RateLimited above the limit. ``now`` replaces the clocks, in seconds.

    Counters are those in Valkey, else those in ``file``, else those of this process.
    """

    def __init__(
        self,
        rates: Mapping[RateClass, str],
        valkey_url: str,
        now: Callable[[], float] | None = None,
        *,
        file: Path | None = None,
    ) -> None:
        self._rates = {rate_class: _parse(rate_class, text) for rate_class, text in rates.items()}
        self._local = _LocalTables(now or time.time)
        self._shared: _SharedCounters | CounterFile | None = None
        if valkey_url:
            self._shared = _SharedCounters(valkey_url, now)
        elif file is not None and sys.platform != "win32":
            self._shared = CounterFile(file, now)
        self._shared_lost_at = float("-inf")

    async def check(self, rate_class: RateClass, tenant: str, name: str) -> None:
        """Count a call of a caller that has proved who it is; raises RateLimited.

        A refused call counts for none of the rates of its class.
        """
        await self._check(self._local.callers, rate_class, self._rates[rate_class], (rate_class, tenant, name))

    def check_here(self, rate_class: RateClass, tenant: str, name: str) -> None:
        """Count a call in this process alone, for limits that protect the process itself; raises RateLimited."""
        rates = self._rates[rate_class]
        refusal = self._local.callers.hit(rates, (rate_class, tenant, name)) if rates else None
        if refusal is not None:
            raise _rate_limited(rate_class, refusal)

    async def check_address(self, rate_class: RateClass, address: str, *parts: str) -> None:
        """Count a call without an accepted credential by its address; raises RateLimited.

        ``parts`` name what is counted apart. The networks of an IPv6 site are also counted together, so that its many
        networks give it neither many limits nor many counters.
        """
        client, site = _networks(address)
        rates = self._rates[rate_class]
        if site is not None:
            together = [rate.times(_SITE_RATE) for rate in rates]
            await self._check(self._local.addresses, rate_class, together, (rate_class, site, *parts))
        await self._check(self._local.addresses, rate_class, rates, (rate_class, site or client, client, *parts))

    async def count(self, whos: Sequence[tuple[str, ...]], calls: int = 1) -> list[RecentCalls]:
        """Add calls under each name, without a limit, and return those of the last minute and hour.

        A negative number takes back calls that were refused later.
        """
        if self._shared is not None and not self._is_lost:
            try:
                return _recent(*await self._shared.add(_RECENT, whos, calls))
            except NoRoom:
                pass
            except self._shared.error:
                self._note_lost()
        return _recent(*self._local.callers.add(_RECENT, whos, calls))

    async def close(self) -> None:
        """Close what is shared with other processes."""
        if self._shared is not None:
            await self._shared.close()

    async def _check(
        self, local: LocalCounters, rate_class: RateClass, rates: Sequence[Rate], who: tuple[str, ...]
    ) -> None:
        refusal = await self._hit(local, rates, who) if rates else None
        if refusal is not None:
            raise _rate_limited(rate_class, refusal)

    async def _hit(self, local: LocalCounters, rates: Sequence[Rate], who: tuple[str, ...]) -> RequiredWait | None:
        if self._shared is None or self._is_lost:
            return local.hit(rates, who)
        try:
            return await self._shared.hit(rates, who)
        except NoRoom:
            pass
        except self._shared.error:
            self._note_lost()
        return local.hit(rates, who)

    @property
    def _is_lost(self) -> bool:
        return time.monotonic() - self._shared_lost_at < _RETRY_SHARED_SECONDS

    def _note_lost(self) -> None:
        """Let each process count by itself until the shared counters are back."""
        self._shared_lost_at = time.monotonic()
        _log.warning("rate limits are kept per process: %s cannot be used", self._shared)


class _LocalTables:
    """Counters in memory: what callers without a credential do takes no counter from those that have one."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.callers = LocalCounters(now, owner_part=_TENANT_PART)
        self.addresses = LocalCounters(now, owner_part=_SITE_PART)


class LocalCounters:
    """A bounded number of counters; only those that count nothing any more are dropped.

    A name is a group (a class of calls, or what else is counted), an owner (a tenant, an address or a site) and further
    parts. When all counters are in use, or one owner has its part of them, further names are counted together: those of
    an owner that has counters already as one, all others as another. They are limited more than they should be, nobody
    else is.
    """

    def __init__(self, now: Callable[[], float], limit: int = MAX_COUNTERS, owner_part: int = _TENANT_PART) -> None:
        self._now = now
        self._limit = limit
        self._owner_limit = max(1, limit // owner_part)
        # By window in seconds: in each, the order of last use is that in which counters expire.
        self._tables: dict[int, OrderedDict[tuple[str, ...], WindowCounter]] = {}
        self._owners: Counter[str] = Counter()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def hit(self, rates: Sequence[Rate], who: tuple[str, ...]) -> RequiredWait | None:
        """Count a call for each rate; if one refuses it, count it for none."""
        now = int(self._now() * SECOND)
        counters = [self._counter(rate, who, now) for rate in rates]
        refusal = required_wait(rates, [counter for _, counter in counters], now)
        if refusal is None:
            for rate, (name, counter) in zip(rates, counters, strict=True):
                self._put(rate, name, counter._replace(calls=counter.calls + 1))
        return refusal

    def add(
        self, rates: Sequence[Rate], whos: Sequence[tuple[str, ...]], calls: int
    ) -> tuple[int, list[WindowCounter]]:
        """Add calls to the counters of each name and rate; return the time in milliseconds and the counters."""
        now = int(self._now() * SECOND)
        added = []
        for who in whos:
            for rate in rates:
                name, counter = self._counter(rate, who, now)
                added.append(counter._replace(calls=max(0, counter.calls + calls)))
                self._put(rate, name, added[-1])
        return now, added

    def _counter(self, rate: Rate, who: tuple[str, ...], now: int) -> tuple[tuple[str, ...], WindowCounter]:
        """Return the name that a call is counted by, and its counter as it is now."""
        number = now // (rate.seconds * SECOND)
        table = self._tables.setdefault(rate.seconds, OrderedDict())
        name = (rate.text, *who)
        known = table.get(name)
        if known is None:
            self._drop_expired(table, number)
            if not self._has_room(who[1], now):
                # Both the class alone and the owner alone are few.
                name = (rate.text, who[0], who[1] if self._owners[who[1]] else _OTHERS, _OTHERS)
                known = table.get(name)
        return name, (known or WindowCounter()).at(number)

    def _put(self, rate: Rate, name: tuple[str, ...], counter: WindowCounter) -> None:
        table = self._tables[rate.seconds]
        if name not in table:
            self._length += 1
            self._owners[name[2]] += 1
        table[name] = counter
        table.move_to_end(name)

    def _has_room(self, owner: str, now: int) -> bool:
        if self._length >= self._limit:
            for seconds, table in self._tables.items():
                self._drop_expired(table, now // (seconds * SECOND))
        return self._length < self._limit and self._owners[owner] < self._owner_limit

    def _drop_expired(self, table: OrderedDict[tuple[str, ...], WindowCounter], number: int) -> None:
        while table:
            name, counter = next(iter(table.items()))
            if number - counter.number < MAX_AGE_WINDOWS:
                return
            del table[name]
            self._length -= 1
            self._owners[name[2]] -= 1
            if not self._owners[name[2]]:
                del self._owners[name[2]]


# The clock is Valkey's, so that those of the processes need not agree.
_COUNTER = """
local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local function counter(key, window)
    local number = math.floor(now / window)
    local known = redis.call('HMGET', key, 'number', 'calls', 'before')
    local age, calls, before = number - (tonumber(known[1]) or -1), tonumber(known[2]) or 0, tonumber(known[3]) or 0
    if age == 0 then return number, calls, before end
    return number, 0, age == 1 and calls or 0
end
local function put(key, window, number, calls, before)
    redis.call('HSET', key, 'number', number, 'calls', calls, 'before', before)
    redis.call('PEXPIRE', key, window * 2)
end
local answer = {now}
"""
# For each rate a key, and its amount and window in milliseconds. Counts the call for all rates or for none, and returns
# the time and the counters as they were.
_HIT = (
    _COUNTER
    + """
local passes = true
for place, key in ipairs(KEYS) do
    local amount, window = tonumber(ARGV[place * 2]), tonumber(ARGV[place * 2 + 1])
    local number, calls, before = counter(key, window)
    answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = number, calls, before
    passes = passes and calls * window + before * (window - now % window) < amount * window
end
for place, key in ipairs(passes and KEYS or {}) do
    put(key, ARGV[place * 2 + 1], answer[place * 3 - 1], answer[place * 3] + 1, answer[place * 3 + 1])
end
return answer
"""
)
# The calls to add, and for each key its window in milliseconds. Returns the time and the new counters.
_ADD = (
    _COUNTER
    + """
for place, key in ipairs(KEYS) do
    local window = tonumber(ARGV[place + 2])
    local number, calls, before = counter(key, window)
    calls = math.max(0, calls + tonumber(ARGV[2]))
    put(key, window, number, calls, before)
    answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = number, calls, before
end
return answer
"""
)


class _SharedCounters:
    """The same counters in Valkey, one round trip for a call. ``now`` replaces Valkey's clock."""

    def __str__(self) -> str:
        return "Valkey"

    def __init__(self, url: str, now: Callable[[], float] | None) -> None:
        # Imported only where Valkey is configured.
        try:
            from valkey.asyncio import BlockingConnectionPool, Valkey  # noqa: PLC0415
            from valkey.exceptions import ValkeyError  # noqa: PLC0415
        except ImportError as error:
            raise InvalidSetting(
                "WEFTLINE_VALKEY_URL needs the package valkey: pip install 'weftline[server]'."
            ) from error

        self.error = (ValkeyError, OSError)
        pool = BlockingConnectionPool.from_url(
            _valkey_url(url),
            max_connections=_VALKEY_CONNECTIONS,
            timeout=_VALKEY_SECONDS,
            socket_timeout=_VALKEY_SECONDS,
            socket_connect_timeout=_VALKEY_SECONDS,
        )
        self._client = Valkey.from_pool(pool)
        self._hit = self._client.register_script(_HIT)
        self._add = self._client.register_script(_ADD)
        self._now = now

    async def hit(self, rates: Sequence[Rate], who: tuple[str, ...]) -> RequiredWait | None:
        """Count a call for each rate; if one refuses it, count it for none."""
        # Names and addresses contain no slash.
        keys = ["/".join(("weftline", rate.text, *who)) for rate in rates]
        windows = [value for rate in rates for value in (rate.amount, rate.seconds * SECOND)]
        now, *counts = await self._hit(keys=keys, args=[self._given_time(), *windows])
        return required_wait(rates, _counters(counts), now)

    async def add(
        self, rates: Sequence[Rate], whos: Sequence[tuple[str, ...]], calls: int
    ) -> tuple[int, list[WindowCounter]]:
        """Add calls to the counters of each name and rate; return the time in milliseconds and the counters."""
        keys = ["/".join(("weftline", rate.text, *who)) for who in whos for rate in rates]
        windows = [rate.seconds * SECOND for _ in whos for rate in rates]
        now, *counts = await self._add(keys=keys, args=[self._given_time(), calls, *windows])
        return now, _counters(counts)

    def _given_time(self) -> int | str:
        return "" if self._now is None else int(self._now() * SECOND)

    async def close(self) -> None:
        await self._client.aclose()


def _counters(counts: Sequence[int]) -> list[WindowCounter]:
    return [WindowCounter(*counts[place : place + 3]) for place in range(0, len(counts), 3)]


def _recent(now: int, counters: Sequence[WindowCounter]) -> list[RecentCalls]:
    """Return the calls of the last minute and hour from the counters of each name."""
    calls = [counter.calls_at(_RECENT[place % 2], now) for place, counter in enumerate(counters)]
    return [RecentCalls(*calls[place : place + 2]) for place in range(0, len(calls), 2)]


def client_network(name: str) -> IPv4Address | IPv6Network | None:
    """Return what identifies a client: its IPv4 address or IPv6 network, in which it has many addresses.

    None if the name is not an address.
    """
    try:
        address = ip_address(name)
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return address
    return address.ipv4_mapped or IPv6Network((address, _CLIENT_PREFIX), strict=False)


def _networks(name: str) -> tuple[str, str | None]:
    """Return an IPv4 address, or the network of an IPv6 address and that of its site; any other name unchanged."""
    network = client_network(name)
    if not isinstance(network, IPv6Network):
        return str(network or name), None
    return str(network.network_address), str(network.supernet(new_prefix=_SITE_PREFIX).network_address)


def _rate_limited(rate_class: RateClass, refusal: RequiredWait) -> RateLimited:
    return RateLimited(
        f"More than {refusal.rate.text} calls of the class '{rate_class}'.",
        retry_after_seconds=refusal.seconds,
        limit=refusal.rate.text,
        rate_class=rate_class,
    )


def _parse(rate_class: RateClass, text: str) -> list[Rate]:
    """Return the rates in a setting such as ``100/second;2000/hour``."""
    found = [_RATE.fullmatch(rate) for rate in _SEPARATOR.split(text)] if text else []
    if not all(found):
        raise InvalidSetting(f"WEFTLINE_RATE_LIMITS: '{text}' for {rate_class} is not of the form 100/minute.")
    return [_rate(int(rate[1]), int(rate[2] or 1) or 1, rate[3].lower()) for rate in found if rate]


def _rate(amount: int, multiple: int, unit: str) -> Rate:
    return Rate(amount, multiple * _UNITS[unit], f"{amount} per {multiple} {unit}")


def _valkey_url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    if scheme not in _SCHEMES or not rest:
        raise InvalidSetting("WEFTLINE_VALKEY_URL: use valkey://HOST:PORT or redis://HOST:PORT.")
    return f"{_SCHEMES[scheme]}://{rest}"
