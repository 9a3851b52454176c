"""Doing what must be done over and over: one failure ends neither the work for others nor the next attempt."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from weft.kernel.errors import WeftError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_log = logging.getLogger("weft.upkeep")


async def attempt(what: str, work: Awaitable[object], **where: str) -> bool:
    """Do something and tell whether it went well. What nobody expected is logged: without values, as always."""
    try:
        await work
    except WeftError:
        # The database is away, or someone else was quicker: the next attempt will show.
        return False
    except Exception:  # noqa: BLE001 - whatever it is, the work for others goes on
        _log.exception("upkeep failed", extra={"fields": {"what": what, **where}})
        return False
    return True


async def every(seconds: float, what: str, work: Callable[[], Awaitable[object]]) -> None:
    """Do something again and again, for as long as the process lives."""
    while True:
        await asyncio.sleep(seconds)
        await attempt(what, work())
