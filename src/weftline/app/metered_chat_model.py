"""Meters the calls of Weftline's own language model for the agents they are made for."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from weftline.app.genai_telemetry import chat_span, describe_usage
from weftline.jobs.runner import attempt
from weftline.kernel.clock import to_micros
from weftline.kernel.fields import new_id
from weftline.models.language_models.chat_model import ChatModelError
from weftline.models.language_models.prices import cost_of
from weftline.models.metering.model import DELETED, NewUsageEntry, UsageKey, UsageSums, nanos
from weftline.storage.sql.access import SqlAccessStore
from weftline.storage.sql.database import Scope
from weftline.storage.sql.metering import SqlUsageStore
from weftline.storage.sql.sessions import SqlSessionStore

if TYPE_CHECKING:
    from weftline.kernel.clock import Clock
    from weftline.models.language_models.catalog import Catalog
    from weftline.models.language_models.chat_model import ChatAnswer, ChatCaller, ChatModel, ChatRequest
    from weftline.models.language_models.prices import Prices
    from weftline.models.language_models.usage import Usage
    from weftline.storage.sql.database import Database, Transaction

_MICROS = 1_000_000


class MeteredChatModel:
    """A chat model that leaves a usage entry of every call. Not being able to write one does not fail the call."""

    def __init__(self, model: ChatModel, database: Database, catalog: Catalog, prices: Prices, clock: Clock) -> None:
        self._model = model
        self._database = database
        self._catalog = catalog
        self._prices = prices
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
        await self._prices.load()
        await self._meter(request.caller, self._sums(answer.usage), started)
        return answer

    def _sums(self, usage: Usage | None) -> UsageSums:
        if usage is None:
            return UsageSums(unpriced_calls=1)
        found = cost_of(self._prices, self._catalog.find(self.name), usage, self._clock.now())
        cost = nanos(None if found is None else float(found))
        return UsageSums(
            reported_calls=1,
            unpriced_calls=int(found is None),
            total_tokens=usage.input_tokens + usage.output_tokens,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            cost_nanos=cost,
            expected_cost_nanos=cost,
            reported_cost_nanos=cost,
        )

    async def _meter(self, caller: ChatCaller, sums: UsageSums, started: float) -> None:
        took = UsageSums(calls=1, timed_calls=1, provider_micros=round((perf_counter() - started) * _MICROS))
        at = to_micros(self._clock.now())

        async def add(transaction: Transaction) -> None:
            teams = await _teams(transaction, caller.agent_id)
            session_id = await _session(transaction, caller.session_id)
            key = UsageKey("compaction", caller.agent_id, session_id, "", self.name, teams)
            entry = NewUsageEntry("call", new_id("call"), at, key, sums.plus(took))
            await SqlUsageStore(transaction).add(entry)

        if caller.tenant:
            await attempt("usage.meter", self._database.write(Scope(caller.tenant), add), tenant=caller.tenant)


async def _session(transaction: Transaction, session_id: str) -> str:
    """Return the session of a call; the name of one that was deleted meanwhile is not kept."""
    known = not session_id or await SqlSessionStore(transaction).find(session_id) is not None
    return session_id if known else DELETED


async def _teams(transaction: Transaction, agent_id: str) -> tuple[str, ...]:
    access = SqlAccessStore(transaction)
    agent = await access.principal(agent_id)
    return () if agent is None else tuple(sorted((await access.memberships(agent)).teams))
