"""Doing what must be done over and over: one failure ends neither the work for others nor the next attempt."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from weft.kernel.errors import WeftError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_log = logging.getLogger("weft.upkeep")
# What does not work at present, by what was attempted and where, with the code of the error it ends in.
_failing: dict[tuple[str, ...], str] = {}


async def attempt(what: str, work: Awaitable[object], **where: str) -> bool:
    """Do something and tell whether it went well. What nobody expected is logged: without values, as always.

    What may go well the next time, as when the database is away, is logged when it begins to fail and when it ends.
    """
    try:
        await work
    except WeftError as error:
        _note(what, where, error.code)
        return False
    except Exception:  # noqa: BLE001 - whatever it is, the work for others goes on
        _log.exception("upkeep failed", extra={"fields": {"what": what, **where}})
        return False
    _note(what, where, None)
    return True


def _note(what: str, where: dict[str, str], code: str | None) -> None:
    key = (what, *where.values())
    if _failing.get(key) == code:
        return
    fields = {"what": what, **where}
    if code is None:
        del _failing[key]
        _log.info("upkeep goes on", extra={"fields": fields})
    else:
        _failing[key] = code
        _log.warning("upkeep does not go on", extra={"fields": {**fields, "code": code}})


async def every(seconds: float, what: str, work: Callable[[], Awaitable[object]]) -> None:
    """Do something again and again, for as long as the process lives."""
    while True:
        await asyncio.sleep(seconds)
        await attempt(what, work())
