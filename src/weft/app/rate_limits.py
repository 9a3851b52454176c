"""Rate limits by class and agent: per process, or shared through Valkey."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from weft.kernel.errors import RateLimited
from weft.settings import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from limits import RateLimitItem

    from weft.kernel.operation import RateClass

_log = logging.getLogger("weft.rates")
_RETRY_SHARED_SECONDS = 5.0
_MAX_COUNTERS = 100_000
_UNITS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "month": 2_592_000, "year": 31_104_000}
_SEPARATOR = re.compile("[,;|]")
_RATE = re.compile(rf"\s*(\d+)\s*(?:/|per)\s*(\d*)\s*({'|'.join(_UNITS)})s?\s*", re.IGNORECASE)


class Rate(NamedTuple):
    """At most ``amount`` calls in ``seconds``."""

    amount: int
    seconds: int
    text: str


class RateLimits:
    """Counts calls and raises RateLimited above the limit."""

    def __init__(self, rates: Mapping[RateClass, str], valkey_url: str) -> None:
        self._rates = {rate_class: _parse(rate_class, text) for rate_class, text in rates.items()}
        self._local = LocalRateLimits()
        self._shared = _SharedRateLimits(valkey_url) if valkey_url else None
        self._shared_lost_at = float("-inf")

    async def check(self, rate_class: RateClass, *who: str) -> None:
        """Count one call; raises RateLimited."""
        for rate in self._rates[rate_class]:
            if not await self._hit(rate, rate_class, *who):
                raise await self._refusal(rate, rate_class, *who)

    async def close(self) -> None:
        """Close the connections to Valkey."""
        if self._shared is not None:
            await self._shared.close()

    async def _hit(self, rate: Rate, *who: str) -> bool:
        shared = self._reachable()
        if shared is None:
            return self._local.hit(rate, *who)
        try:
            return await shared.hit(rate, *who)
        except shared.error:
            # Without Valkey, each process limits by itself until it is back.
            self._shared_lost_at = time.monotonic()
            _log.warning("rate limits are kept per process: Valkey cannot be reached")
            return self._local.hit(rate, *who)

    async def _refusal(self, rate: Rate, rate_class: RateClass, *who: str) -> RateLimited:
        wait = self._local.reset_in(rate)
        shared = self._reachable()
        if shared is not None:
            with contextlib.suppress(shared.error):
                wait = await shared.reset_in(rate, rate_class, *who)
        return RateLimited(
            f"More than {rate.text} calls of the class '{rate_class}'.",
            retry_after_seconds=max(1, round(wait)),
            limit=rate.text,
            rate_class=rate_class,
        )

    def _reachable(self) -> _SharedRateLimits | None:
        lost = time.monotonic() - self._shared_lost_at < _RETRY_SHARED_SECONDS
        return None if lost else self._shared


class LocalRateLimits:
    """Sliding-window rate limits in memory: calls of the current window plus the remaining share of the previous one.

    The same estimate as ``limits`` makes with Valkey. The memory storage of ``limits`` scans the counters of all
    callers on each call, which is expensive with thousands of agents; this one looks at one counter.
    """

    def __init__(self) -> None:
        # By limit and caller: number of the window, its calls, calls of the previous window.
        self._windows: dict[tuple[str, ...], tuple[int, int, int]] = {}

    def hit(self, rate: Rate, *who: str) -> bool:
        """Count a call; False, without counting it, if it exceeds the limit."""
        key = (rate.text, *who)
        number, elapsed = divmod(time.time(), rate.seconds)
        known, calls, before = self._windows.get(key, (0, 0, 0))
        if known != number:
            calls, before = 0, calls if known == number - 1 else 0
        if calls + before * (1 - elapsed / rate.seconds) >= rate.amount:
            return False
        if len(self._windows) >= _MAX_COUNTERS:
            self._windows.clear()
        self._windows[key] = (int(number), calls + 1, before)
        return True

    @staticmethod
    def reset_in(rate: Rate) -> float:
        """Return the seconds until the next window."""
        return rate.seconds - time.time() % rate.seconds


class _SharedRateLimits:
    """The same limits in Valkey. Importing ``limits`` takes longer than all else an App needs to start."""

    def __init__(self, url: str) -> None:
        from limits.aio.storage import RedisStorage  # noqa: PLC0415 - see above
        from limits.aio.strategies import SlidingWindowCounterRateLimiter  # noqa: PLC0415
        from limits.errors import StorageError  # noqa: PLC0415

        self.error = StorageError
        self._storage = RedisStorage(
            _storage_url(url), wrap_exceptions=True, implementation="valkey", key_prefix="weft"
        )
        self._limiter = SlidingWindowCounterRateLimiter(self._storage)

    async def hit(self, rate: Rate, *who: str) -> bool:
        return await self._limiter.hit(_item(rate), *who)

    async def reset_in(self, rate: Rate, *who: str) -> float:
        return (await self._limiter.get_window_stats(_item(rate), *who)).reset_time - time.time()

    async def close(self) -> None:
        await self._storage.bridge.storage.aclose()  # type: ignore[attr-defined] # of the bridge it chose


def _parse(rate_class: RateClass, text: str) -> list[Rate]:
    """Return the rates in a setting such as ``100/second;2000/hour``."""
    found = [_RATE.fullmatch(rate) for rate in _SEPARATOR.split(text)] if text else []
    if not all(found):
        raise InvalidSetting(f"WEFT_RATE_LIMITS: '{text}' for {rate_class} is not of the form 100/minute.")
    return [_rate(int(rate[1]), int(rate[2] or 1) or 1, rate[3].lower()) for rate in found if rate]


def _rate(amount: int, multiple: int, unit: str) -> Rate:
    return Rate(amount, multiple * _UNITS[unit], f"{amount} per {multiple} {unit}")


@cache
def _item(rate: Rate) -> RateLimitItem:
    from limits import parse  # noqa: PLC0415 - only with Valkey

    return parse(rate.text)


def _storage_url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    schemes = {"valkey": "async+valkey", "redis": "async+valkey", "valkeys": "async+valkeys", "rediss": "async+valkeys"}
    if scheme not in schemes or not rest:
        raise InvalidSetting("WEFT_VALKEY_URL: use valkey://HOST:PORT or redis://HOST:PORT.")
    return f"{schemes[scheme]}://{rest}"
