"""Writes usage entries of model calls that no prompt was assembled for."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from weftline.access.sql import AccessStore
from weftline.app.genai_telemetry import chat_span, describe_usage
from weftline.jobs.runner import attempt
from weftline.kernel.clock import to_micros
from weftline.kernel.fields import new_id
from weftline.models.language_models.catalog import cost_of
from weftline.models.language_models.chat_model import ChatModelError
from weftline.models.metering import DELETED, NewUsageEntry, UsageKey, UsageSums, nanos
from weftline.models.proxied_calls import ProxiedCall, ProxiedCallStore
from weftline.models.sql import UsageStore
from weftline.sessions.sql import SessionStore
from weftline.storage.sql.database import Scope
from weftline.storage.sql.unit_of_work import logged_write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime
    from decimal import Decimal

    from weftline.kernel.clock import Clock
    from weftline.kernel.transaction import Transaction
    from weftline.models.language_models.answer_usage import Usage
    from weftline.models.language_models.catalog import CacheRules, Catalog, Prices
    from weftline.models.language_models.chat_model import ChatAnswer, ChatCaller, ChatModel, ChatRequest
    from weftline.models.metering import CallKind
    from weftline.storage.sql.database import Database


_MICROS = 1_000_000


class ProxiedAs(NamedTuple):
    """How a call went through the model proxy, and when it ended."""

    conversation: str
    mode: str
    call_id: str
    ended_at: datetime


class CallPrices:
    """What calls cost, by the catalog and the price table."""

    def __init__(self, catalog: Catalog, prices: Prices) -> None:
        self._catalog = catalog
        self._prices = prices

    def cache_rules(self, model: str) -> CacheRules:
        return self._catalog.find(model).cache

    async def load(self) -> None:
        """Load the price table, before the first call needs it."""
        await self._prices.load()

    async def cost(self, model: str, usage: Usage, at: datetime) -> Decimal | None:
        """Return the cost in US dollars; None if the model has no price."""
        await self._prices.load()
        return cost_of(self._prices, self._catalog.find(model), usage, at)


class CallMeter:
    """Adds a usage entry for each call."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(
        self,
        kind: CallKind,
        caller: ChatCaller,
        model: str,
        sums: UsageSums,
        seconds: float,
        proxied: ProxiedAs | None = None,
        charge: Callable[[Transaction], Awaitable[None]] | None = None,
    ) -> None:
        """Add a call that ends now and took this long; one through the proxy with a receipt, if usage was reported.

        A call with a receipt is added once, however often this is asked for.
        ``charge`` adds it to budgets in the same transaction.
        """
        took = UsageSums(calls=1, timed_calls=1, provider_micros=round(seconds * _MICROS))
        at = to_micros(self._clock.now() if proxied is None else min(proxied.ended_at, self._clock.now()))
        call_id = new_id("call") if proxied is None else proxied.call_id
        has_receipt = proxied is not None and bool(sums.reported_calls)

        async def add(transaction: Transaction) -> None:
            if has_receipt and await ProxiedCallStore(transaction).has(call_id):
                # The process that metered it ended before it could say so.
                return
            # Budgets first, as where a prompt is assembled: both lock rows of the tenant.
            if charge is not None:
                await charge(transaction)
            teams = await _teams(transaction, caller.agent_id)
            session_id = await _session(transaction, caller.session_id)
            key = UsageKey(kind, caller.agent_id, session_id, "", model, teams)
            if proxied is not None and has_receipt:
                await ProxiedCallStore(transaction).add(_receipt(call_id, key, at, sums, proxied))
            await UsageStore(transaction).add(NewUsageEntry("call", call_id, at, key, sums.plus(took)))

        await logged_write(self._database, Scope(caller.tenant), add)


def _receipt(call_id: str, key: UsageKey, at: int, sums: UsageSums, proxied: ProxiedAs) -> ProxiedCall:
    is_priced = not sums.unpriced_calls
    return ProxiedCall(
        call_id=call_id,
        agent_id=key.agent_id,
        session_id=key.session_id,
        conversation=proxied.conversation,
        model=key.model,
        mode=proxied.mode,
        created_at=at,
        given_tokens=sums.naive_baseline_tokens,
        input_tokens=sums.input_tokens,
        output_tokens=sums.output_tokens,
        cache_read_tokens=sums.cache_read_tokens,
        cache_write_tokens=sums.cache_write_tokens,
        cost_nanos=sums.cost_nanos if is_priced else None,
        given_cost_nanos=sums.naive_cost_nanos if is_priced else None,
    )


def reported_sums(usage: Usage | None, cost: Decimal | None) -> UsageSums:
    """Return the sums of a call that was answered, with the usage that the provider reported."""
    if usage is None:
        return UsageSums(unpriced_calls=1)
    paid = nanos(None if cost is None else float(cost))
    return UsageSums(
        reported_calls=1,
        unpriced_calls=int(cost is None),
        total_tokens=usage.input_tokens + usage.output_tokens,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cost_nanos=paid,
        expected_cost_nanos=paid,
        reported_cost_nanos=paid,
    )


async def _session(transaction: Transaction, session_id: str) -> str:
    """Return the session of a call; the name of one that was deleted meanwhile is not kept."""
    known = not session_id or await SessionStore(transaction).find(session_id) is not None
    return session_id if known else DELETED


async def _teams(transaction: Transaction, agent_id: str) -> tuple[str, ...]:
    access = AccessStore(transaction)
    agent = await access.principal(agent_id)
    return () if agent is None else tuple(sorted((await access.memberships(agent)).teams))


# Meters the calls of Weftline's own language model for the agents they are made for.


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
