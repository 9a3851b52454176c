"""What the proxy notes about calls: behind their answers, so that nothing waits for it, and nothing fails with it."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from weftline.app.call_meter import ProxiedAs, reported_sums
from weftline.app.proxied_conversations import ConversationCall
from weftline.jobs.runner import attempt
from weftline.kernel.errors import SystemUnavailable, WeftlineError
from weftline.kernel.fair_queue import FairQueue
from weftline.models.metering import UsageSums, nanos
from weftline.models.proxied_calls import EditedTokens, usage_as_given
from weftline.transports.proxy.kept_calls import KeptBytes, KeptCall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from decimal import Decimal

    from weftline.app.call_meter import CallPrices
    from weftline.app.dispatch import CallContext
    from weftline.app.proxied_edits import EditNote, ProxiedEdits
    from weftline.models.language_models.answer_usage import AnswerReader, Usage
    from weftline.models.language_models.chat_model import ChatCaller
    from weftline.models.language_models.conversation_requests import RequestForm
    from weftline.models.metering import CallKind

    FindCaller = Callable[[], Awaitable[ChatCaller]]

_MAX_WAITING, _MAX_OF_CALLER = 10_000, 2_500
_STOP_SECONDS = 5.0
# The calls after one that cannot be metered wait for it.
_METER_SECONDS = 5.0
# A conversation that was long before its first call takes long once: what is not recorded in time would never be.
_RECORDED_BYTES_PER_SECOND = 10_000
_MAX_MODEL = 200
_log = logging.getLogger("weftline.proxy")


class EndedCall(NamedTuple):
    """A call that was forwarded, whatever came of it.

    ``status`` is 0 if the provider did not answer. ``is_complete`` is false if the answer did not reach its end: the
    client left, or the provider's connection broke. ``reader`` is None if no usage can be read. ``caller`` is None if
    it could not be found out in time who calls; ``find_caller`` tries again. ``context``: the caller's credential.
    ``kept``: request and answer, if the call belongs to a conversation. ``edits``: what of it was forwarded in another
    form. ``estimate``: what counts for budgets if the provider reports no usage, such as for a stream that the client
    left; None if nothing does.
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
    context: CallContext
    kept: KeptCall | None = None
    edits: EditNote | None = None
    estimate: Usage | None = None


class NotedCall(NamedTuple):
    """An ended call with what the provider reported for it.

    ``given`` and ``given_cost`` are what it is modelled to have used and cost as its client sent it.
    """

    call: EndedCall
    model: str
    usage: Usage | None
    cost: Decimal | None
    given: Usage | None = None
    given_cost: Decimal | None = None


class Meter(Protocol):
    """Keeps the usage of calls."""

    async def add(
        self,
        kind: CallKind,
        caller: ChatCaller,
        model: str,
        sums: UsageSums,
        seconds: float,
        proxied: ProxiedAs | None = None,
    ) -> None:
        """Add a call that ends now and took this long."""
        ...


class Conversations(Protocol):
    """Records the conversations of callers."""

    async def record(self, caller: ChatCaller, context: CallContext, call: ConversationCall) -> str:
        """Add what is new in a call to its conversation; return the session, empty if there is none."""
        ...


class Observer:
    """Prices ended calls, records and meters them where there is a database, and shows them."""

    def __init__(
        self,
        prices: CallPrices,
        meter: Meter | None = None,
        show: Callable[[NotedCall], None] | None = None,
        conversations: Conversations | None = None,
        edits: ProxiedEdits | None = None,
    ) -> None:
        self.meter = meter
        self.conversations = conversations
        self._edits = edits
        self._prices = prices
        self._show = show
        self._kept = KeptBytes()
        self._waiting: FairQueue[EndedCall] = FairQueue()
        self._noting: asyncio.Task[None] | None = None

    def keep(
        self, form: RequestForm | None, caller: ChatCaller | None, headers: Sequence[tuple[bytes, bytes]]
    ) -> KeptCall | None:
        """Return what keeps a call until its conversation is recorded; None if there is nothing to record."""
        if form is None or self.conversations is None:
            return None
        return KeptCall(self._kept, caller, form, headers)

    def note(self, call: EndedCall) -> None:
        """Take a call; what cannot be noted in time is dropped."""
        # Calls of who is not known yet wait together.
        of_caller = ("", "") if call.caller is None else (call.caller.tenant, call.caller.agent_id)
        if len(self._waiting) >= _MAX_WAITING or self._waiting.waiting(*of_caller) >= _MAX_OF_CALLER:
            _log.warning("a proxied call is not metered: too many wait")
            if call.kept is not None:
                call.kept.release()
            return
        self._waiting.push(*of_caller, call)
        if self._noting is None or self._noting.done():
            self._noting = asyncio.create_task(self._note_all(), name="weftline-proxy-observer")

    async def aclose(self) -> None:
        """Note what waits, for a few seconds at most."""
        if self._noting is None:
            return
        await asyncio.wait([self._noting], timeout=_STOP_SECONDS)
        self._noting.cancel()
        await asyncio.gather(self._noting, return_exceptions=True)

    async def _note_all(self) -> None:
        """Note the calls that wait; ends when none does."""
        while (call := self._waiting.pop()) is not None:
            try:
                await attempt("proxy.note", self._note(call))
            finally:
                if call.kept is not None:
                    call.kept.release()
            # Calls that are being forwarded go before those that have ended.
            await asyncio.sleep(0)

    async def _record(self, call: EndedCall, caller: ChatCaller) -> ChatCaller:
        """Record the conversation of a call; return the caller with its session."""
        kept = call.kept
        if self.conversations is None or kept is None or not (request := kept.request):
            return caller
        answer = kept.answer if call.is_complete else b""
        recorded = ConversationCall(kept.form, request, kept.headers, answer, kept.is_stream, call.at)
        try:
            async with asyncio.timeout(_METER_SECONDS + len(request) / _RECORDED_BYTES_PER_SECOND):
                session_id = await self.conversations.record(caller, call.context, recorded)
        except (WeftlineError, TimeoutError) as error:
            # The next call of the conversation repeats its messages.
            _log.info("a proxied conversation is not recorded: %s", getattr(error, "code", "timeout"))
            return caller
        except Exception:  # noqa: BLE001 - a call is metered whatever its messages are
            _log.exception("cannot record a proxied conversation")
            return caller
        return caller._replace(session_id=session_id)

    async def _note_edits(self, call: EndedCall, caller: ChatCaller) -> None:
        if self._edits is None or call.edits is None:
            return
        try:
            async with asyncio.timeout(_METER_SECONDS):
                await self._edits.note(caller, call.edits, caller.session_id)
        except (WeftlineError, TimeoutError) as error:
            _log.info("what was forwarded whole is not stored: %s", getattr(error, "code", "timeout"))

    async def _note(self, call: EndedCall) -> None:
        usage = None if call.reader is None else call.reader.finish()
        model = ((call.reader.model if call.reader is not None else "") or call.model)[:_MAX_MODEL]
        counted = usage or call.estimate
        cost = None if counted is None else await self._prices.cost(model, counted, call.at)
        given = None if usage is None else usage_as_given(usage, _edited(call))
        given_cost = None if given is None else await self._prices.cost(model, given, call.at)
        noted = NotedCall(call, model, usage, cost, given, given_cost)
        if self._show is not None:
            self._show(noted)
        if self.meter is not None and call.is_model_call:
            try:
                async with asyncio.timeout(_METER_SECONDS):
                    caller = call.caller or await call.find_caller()
                caller = await self._record(call, caller)
                await self._note_edits(call, caller)
                async with asyncio.timeout(_METER_SECONDS):
                    await self.meter.add("proxy", caller, model, _sums(noted), call.seconds, _proxied_as(call))
            except TimeoutError:
                raise SystemUnavailable from None


def _edited(call: EndedCall) -> EditedTokens:
    return EditedTokens() if call.edits is None else call.edits.tokens


def _proxied_as(call: EndedCall) -> ProxiedAs:
    return ProxiedAs("", "observe") if call.edits is None else ProxiedAs(call.edits.conversation, call.edits.mode)


def _sums(noted: NotedCall) -> UsageSums:
    call, usage, given = noted.call, noted.usage, noted.given
    succeeded = 200 <= call.status < 300  # noqa: PLR2004 - the statuses of success
    if usage is None and not succeeded:
        return UsageSums(failed_calls=1)
    if usage is None and call.estimate is not None:
        # The server's key pays for the call, whether its usage is reported or not.
        sums = reported_sums(call.estimate, noted.cost)
        return replace(sums, reported_calls=0, reported_cost_nanos=0, failed_calls=int(not call.is_complete))
    compared = UsageSums(
        failed_calls=int(not (succeeded and call.is_complete)),
        naive_baseline_tokens=0 if given is None else given.input_tokens,
        engine_assembled_tokens=0 if usage is None else usage.input_tokens,
        naive_cost_nanos=nanos(None if noted.given_cost is None else float(noted.given_cost)),
    )
    return reported_sums(usage, noted.cost).plus(compared)
