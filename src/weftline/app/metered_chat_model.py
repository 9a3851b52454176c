"""Meters the calls of Weftline's own language model for the agents they are made for."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from weftline.app.call_meter import reported_sums
from weftline.app.genai_telemetry import chat_span, describe_usage
from weftline.jobs.runner import attempt
from weftline.models.language_models.chat_model import ChatModelError
from weftline.models.metering.model import UsageSums

if TYPE_CHECKING:
    from weftline.app.call_meter import CallMeter, CallPrices
    from weftline.kernel.clock import Clock
    from weftline.models.language_models.catalog import Catalog
    from weftline.models.language_models.chat_model import ChatAnswer, ChatCaller, ChatModel, ChatRequest


class MeteredChatModel:
    """A chat model that leaves a usage entry of every call. Not being able to write one does not fail the call."""

    def __init__(self, model: ChatModel, meter: CallMeter, prices: CallPrices, catalog: Catalog, clock: Clock) -> None:
        self._model = model
        self._call_meter = meter
        self._prices = prices
        self._catalog = catalog
        self._clock = clock

    @property
    def name(self) -> str:
        return self._model.name

    async def close(self) -> None:
        await self._model.close()

    async def complete(self, request: ChatRequest) -> ChatAnswer:
        started = perf_counter()
        try:
            with chat_span(self._catalog.label(self.name)) as span:
                answer = await self._model.complete(request)
                if answer.usage is not None:
                    describe_usage(span, answer.usage)
        except ChatModelError:
            await self._meter(request.caller, UsageSums(failed_calls=1), started)
            raise
        usage = answer.usage
        cost = None if usage is None else await self._prices.cost(self.name, usage, self._clock.now())
        await self._meter(request.caller, reported_sums(usage, cost), started)
        return answer

    async def _meter(self, caller: ChatCaller, sums: UsageSums, started: float) -> None:
        if caller.tenant:
            adding = self._call_meter.add("compaction", caller, self.name, sums, perf_counter() - started)
            await attempt("usage.meter", adding, tenant=caller.tenant)
