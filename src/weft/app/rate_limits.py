"""Rate limits by class and agent: per process, or shared through Valkey."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING

from weft.kernel.errors import RateLimited
from weft.settings import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from limits import RateLimitItem
    from limits.aio.storage import RedisStorage
    from limits.aio.strategies import SlidingWindowCounterRateLimiter

    from weft.kernel.operation import RateClass

_log = logging.getLogger("weft.rates")
_RETRY_SHARED_SECONDS = 5.0
_MAX_COUNTERS = 100_000


class RateLimits:
    """Counts calls and raises RateLimited above the limit."""

    def __init__(self, rates: Mapping[RateClass, str], valkey_url: str) -> None:
        self._items = {rate_class: _parse(rate_class, rate) for rate_class, rate in rates.items()}
        self._local = LocalRateLimits()
        self._valkey = _shared_storage(valkey_url) if valkey_url else None
        self._shared = _shared_limiter(self._valkey) if self._valkey else None
        self._shared_lost_at = float("-inf")

    async def check(self, rate_class: RateClass, *who: str) -> None:
        """Count one call; raises RateLimited."""
        for item in self._items[rate_class]:
            if not await self._hit(item, rate_class, *who):
                raise await self._refusal(item, rate_class, *who)

    async def close(self) -> None:
        """Close the connections to Valkey."""
        if self._valkey is not None:
            await self._valkey.bridge.storage.aclose()  # type: ignore[attr-defined] # of the bridge it chose

    async def _hit(self, item: RateLimitItem, *identifiers: str) -> bool:
        shared = self._reachable()
        if shared is None:
            return self._local.hit(item, *identifiers)
        from limits.errors import StorageError  # noqa: PLC0415 - only with Valkey

        try:
            return await shared.hit(item, *identifiers)
        except StorageError:
            # Without Valkey, each process limits by itself until it is back.
            self._shared_lost_at = time.monotonic()
            _log.warning("rate limits are kept per process: Valkey cannot be reached")
            return self._local.hit(item, *identifiers)

    async def _refusal(self, item: RateLimitItem, rate_class: RateClass, *who: str) -> RateLimited:
        wait = self._local.reset_in(item)
        shared = self._reachable()
        if shared is not None:
            from limits.errors import StorageError  # noqa: PLC0415 - only with Valkey

            with contextlib.suppress(StorageError):
                wait = (await shared.get_window_stats(item, rate_class, *who)).reset_time - time.time()
        return RateLimited(
            f"More than {item} calls of the class '{rate_class}'.",
            retry_after_seconds=max(1, round(wait)),
            limit=str(item),
            rate_class=rate_class,
        )

    def _reachable(self) -> SlidingWindowCounterRateLimiter | None:
        lost = time.monotonic() - self._shared_lost_at < _RETRY_SHARED_SECONDS
        return None if lost else self._shared


def _parse(rate_class: RateClass, rate: str) -> list[RateLimitItem]:
    if not rate:
        return []
    from limits import parse_many  # noqa: PLC0415 - a process without limits does without

    try:
        return parse_many(rate)
    except ValueError:
        raise InvalidSetting(f"WEFT_RATE_LIMITS: '{rate}' for {rate_class} is not of the form 100/minute.") from None


def _shared_limiter(storage: RedisStorage) -> SlidingWindowCounterRateLimiter:
    from limits.aio.strategies import SlidingWindowCounterRateLimiter  # noqa: PLC0415 - only with Valkey

    return SlidingWindowCounterRateLimiter(storage)


def _shared_storage(url: str) -> RedisStorage:
    from limits.aio.storage import RedisStorage  # noqa: PLC0415 - only with Valkey

    scheme, _, rest = url.partition("://")
    schemes = {"valkey": "async+valkey", "redis": "async+valkey", "valkeys": "async+valkeys", "rediss": "async+valkeys"}
    if scheme not in schemes or not rest:
        raise InvalidSetting("WEFT_VALKEY_URL: use valkey://HOST:PORT or redis://HOST:PORT.")
    return RedisStorage(f"{schemes[scheme]}://{rest}", wrap_exceptions=True, implementation="valkey", key_prefix="weft")


class LocalRateLimits:
    """Sliding-window rate limits in memory: calls of the current window plus the remaining share of the previous one.

    The same estimate as ``limits`` makes with Valkey. The memory storage of ``limits`` scans the counters of all
    callers on each call, which is expensive with thousands of agents; this one looks at one counter.
    """

    def __init__(self) -> None:
        # By limit and caller: number of the window, its calls, calls of the previous window.
        self._windows: dict[tuple[str, ...], tuple[int, int, int]] = {}

    def hit(self, item: RateLimitItem, *who: str) -> bool:
        """Count a call; False, without counting it, if it exceeds the limit."""
        key = (str(item.amount), str(item.get_expiry()), *who)
        number, elapsed = divmod(time.time(), item.get_expiry())
        known, calls, before = self._windows.get(key, (0, 0, 0))
        if known != number:
            calls, before = 0, calls if known == number - 1 else 0
        if calls + before * (1 - elapsed / item.get_expiry()) >= item.amount:
            return False
        if len(self._windows) >= _MAX_COUNTERS:
            self._windows.clear()
        self._windows[key] = (int(number), calls + 1, before)
        return True

    @staticmethod
    def reset_in(item: RateLimitItem) -> float:
        """Return the seconds until the next window."""
        return item.get_expiry() - time.time() % item.get_expiry()
