"""What the proxy notes about calls: behind their answers, so that nothing waits for it, and nothing fails with it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from weftline.app.call_meter import reported_sums
from weftline.jobs.runner import attempt
from weftline.kernel.errors import SystemUnavailable
from weftline.models.metering.model import UsageSums

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from decimal import Decimal

    from weftline.app.call_meter import CallPrices
    from weftline.models.language_models.answer_usage import AnswerReader
    from weftline.models.language_models.chat_model import ChatCaller
    from weftline.models.language_models.usage import Usage
    from weftline.models.metering.model import CallKind

    FindCaller = Callable[[], Awaitable[ChatCaller]]

_MAX_WAITING = 10_000
_STOP_SECONDS = 5.0
# The calls after one that cannot be metered wait for it.
_METER_SECONDS = 5.0
_MAX_MODEL = 200
_log = logging.getLogger("weftline.proxy")


class EndedCall(NamedTuple):
    """A call that was forwarded, whatever came of it.

    ``status`` is 0 if the provider did not answer. ``is_complete`` is false if the answer did not reach its end: the
    client left, or the provider's connection broke. ``reader`` is None if no usage can be read. ``caller`` is None if
    it could not be found out in time who calls; ``find_caller`` tries again.
    """

    at: datetime
    method: str
    path: str
    status: int
    is_complete: bool
    seconds: float
    model: str
    reader: AnswerReader | None
    is_model_call: bool
    caller: ChatCaller | None
    find_caller: FindCaller


class NotedCall(NamedTuple):
    """An ended call with what the provider reported for it."""

    call: EndedCall
    model: str
    usage: Usage | None
    cost: Decimal | None


class Meter(Protocol):
    """Keeps the usage of calls."""

    async def add(self, kind: CallKind, caller: ChatCaller, model: str, sums: UsageSums, seconds: float) -> None:
        """Add a call that ends now and took this long."""
        ...


class Observer:
    """Prices ended calls, meters them where there is a database, and shows them."""

    def __init__(
        self, prices: CallPrices, meter: Meter | None = None, show: Callable[[NotedCall], None] | None = None
    ) -> None:
        self.meter = meter
        self._prices = prices
        self._show = show
        self._waiting: asyncio.Queue[EndedCall] = asyncio.Queue(_MAX_WAITING)
        self._noting: asyncio.Task[None] | None = None

    def note(self, call: EndedCall) -> None:
        """Take a call; what cannot be noted in time is dropped."""
        try:
            self._waiting.put_nowait(call)
        except asyncio.QueueFull:
            _log.warning("a proxied call is not metered: too many wait")
            return
        if self._noting is None or self._noting.done():
            self._noting = asyncio.create_task(self._note_all(), name="weftline-proxy-observer")

    async def aclose(self) -> None:
        """Note what waits, for a few seconds at most."""
        if self._noting is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await self._waiting.join()
        self._noting.cancel()
        await asyncio.gather(self._noting, return_exceptions=True)

    async def _note_all(self) -> None:
        while True:
            call = await self._waiting.get()
            try:
                await attempt("proxy.note", self._note(call))
            finally:
                self._waiting.task_done()

    async def _note(self, call: EndedCall) -> None:
        usage = None if call.reader is None else call.reader.finish()
        model = ((call.reader.model if call.reader is not None else "") or call.model)[:_MAX_MODEL]
        cost = None if usage is None else await self._prices.cost(model, usage, call.at)
        if self._show is not None:
            self._show(NotedCall(call, model, usage, cost))
        if self.meter is not None and call.is_model_call:
            try:
                async with asyncio.timeout(_METER_SECONDS):
                    caller = call.caller or await call.find_caller()
                    await self.meter.add("proxy", caller, model, _sums(call, usage, cost), call.seconds)
            except TimeoutError:
                raise SystemUnavailable from None


def _sums(call: EndedCall, usage: Usage | None, cost: Decimal | None) -> UsageSums:
    succeeded = 200 <= call.status < 300  # noqa: PLR2004 - the statuses of success
    if usage is None and not succeeded:
        return UsageSums(failed_calls=1)
    return reported_sums(usage, cost).plus(UsageSums(failed_calls=int(not (succeeded and call.is_complete))))
