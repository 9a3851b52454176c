"""What the proxy notes about calls: behind their answers, so that nothing waits for it, and nothing fails with it."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from weftline.app.authentication import Local
from weftline.app.call_meter import reported_sums
from weftline.app.call_notes import CallNote
from weftline.app.proxied_conversations import ConversationCall
from weftline.jobs.runner import attempt
from weftline.kernel.errors import SystemUnavailable
from weftline.kernel.fair_queue import FairQueue
from weftline.kernel.fields import new_id
from weftline.models.metering import UsageSums, nanos
from weftline.models.proxied_calls import EditedTokens, usage_as_given
from weftline.transports.proxy.kept_calls import KeptBytes, KeptCall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from decimal import Decimal

    from weftline.app.call_journal import CallJournal
    from weftline.app.call_meter import CallPrices
    from weftline.app.dispatch import CallContext
    from weftline.app.proxied_edits import EditNote
    from weftline.models.language_models.answer_usage import AnswerReader, Usage
    from weftline.models.language_models.chat_model import ChatCaller
    from weftline.models.language_models.content import WireForm

    FindCaller = Callable[[], Awaitable[ChatCaller]]
    Store = Callable[[CallNote], Awaitable[None]]

_MAX_WAITING, _MAX_OF_CALLER = 10_000, 2_500
_STOP_SECONDS = 5.0
# The calls after one whose caller cannot be found wait for it.
_CALLER_SECONDS = 5.0
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
    call_id: str
    model: str
    usage: Usage | None
    cost: Decimal | None
    given: Usage | None = None
    given_cost: Decimal | None = None


class Observer:
    """Prices ended calls, lets them be recorded and metered where there is a database, and shows them."""

    def __init__(
        self,
        prices: CallPrices,
        store: Store | None = None,
        show: Callable[[NotedCall], None] | None = None,
        *,
        at_once: int = 1,
        journal: CallJournal | None = None,
    ) -> None:
        self._journal = journal
        self._order = asyncio.Lock()
        self._store = store
        self._free = asyncio.Semaphore(at_once)
        self._storing: set[asyncio.Task[None]] = set()
        self._taking: set[asyncio.Task[None]] = set()
        self._prices = prices
        self._show = show
        self._kept = KeptBytes()
        self._waiting: FairQueue[NotedCall] = FairQueue()
        self._noting: asyncio.Task[None] | None = None

    def keep(
        self, form: WireForm | None, caller: ChatCaller | None, headers: Sequence[tuple[bytes, bytes]]
    ) -> KeptCall | None:
        """Return what keeps a call until its conversation is recorded; None if there is nothing to record."""
        if form is None or self._store is None:
            return None
        return KeptCall(self._kept, caller, form, headers)

    async def meter_left(self) -> None:
        """Let the calls be metered that processes which were killed have left."""
        if self._store is not None and self._journal is not None:
            for calls in self._journal.left():
                if not all([await attempt("proxy.note", self._store(call)) for call in calls]):
                    break

    def note(self, call: EndedCall) -> None:
        """Take a call; what cannot be noted in time is dropped."""
        task = asyncio.create_task(self._take(call), name="weftline-proxy-observer")
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)

    async def aclose(self) -> None:
        """Note what waits, for a few seconds at most."""
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                while tasks := self._tasks:
                    await asyncio.gather(*tasks)
        except TimeoutError:
            for task in (tasks := self._tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._journal is not None:
            self._journal.close()

    @property
    def _tasks(self) -> list[asyncio.Task[None]]:
        noting = [] if self._noting is None or self._noting.done() else [self._noting]
        return [*self._taking, *noting, *self._storing]

    async def _take(self, call: EndedCall) -> None:
        """Price and show a call, keep its usage from being lost, and let it be stored."""
        # The first call waits for prices, and the others for it: calls of a conversation keep their order.
        async with self._order:
            noted = await self._priced(call)
        if self._show is not None:
            self._show(noted)
        if self._store is None or not call.is_model_call:
            _release(call)
            return
        # Calls of who is not known yet wait together.
        of_caller = ("", "") if call.caller is None else (call.caller.tenant, call.caller.agent_id)
        if len(self._waiting) >= _MAX_WAITING or self._waiting.waiting(*of_caller) >= _MAX_OF_CALLER:
            _log.warning("a proxied call is not metered: too many wait")
            _release(call)
            return
        self._waiting.push(*of_caller, noted)
        if self._journal is not None and call.caller is not None and noted.usage is not None:
            self._journal.add(_call_note(noted, call.caller))
        if self._noting is None or self._noting.done():
            self._noting = asyncio.create_task(self._note_all(self._store), name="weftline-proxy-observer")

    async def _note_all(self, store: Store) -> None:
        """Store the calls that wait; ends when none does."""
        while (noted := self._waiting.pop()) is not None:
            await self._free.acquire()
            task = asyncio.create_task(self._note(noted, store))
            self._storing.add(task)
            task.add_done_callback(self._storing.discard)
            # Calls that are being forwarded go before those that have ended.
            await asyncio.sleep(0)

    async def _note(self, noted: NotedCall, store: Store) -> None:
        try:
            if await attempt("proxy.note", _stored(noted, store)) and self._journal is not None:
                self._journal.done(noted.call_id)
        finally:
            self._free.release()
            _release(noted.call)

    async def _priced(self, call: EndedCall) -> NotedCall:
        usage = None if call.reader is None else call.reader.finish()
        model = ((call.reader.model if call.reader is not None else "") or call.model)[:_MAX_MODEL]
        counted = usage or call.estimate
        cost = None if counted is None else await self._prices.cost(model, counted, call.at)
        given = None if usage is None else usage_as_given(usage, _edited(call))
        given_cost = None if given is None else await self._prices.cost(model, given, call.at)
        return NotedCall(call, new_id("call"), model, usage, cost, given, given_cost)


async def _stored(noted: NotedCall, store: Store) -> None:
    call = noted.call
    try:
        async with asyncio.timeout(_CALLER_SECONDS):
            caller = call.caller or await call.find_caller()
    except TimeoutError:
        raise SystemUnavailable from None
    await store(_call_note(noted, caller))


def _release(call: EndedCall) -> None:
    if call.kept is not None:
        call.kept.release()


def _call_note(noted: NotedCall, caller: ChatCaller) -> CallNote:
    """Return what is stored of a call, in this process or in another."""
    call, kept = noted.call, noted.call.kept
    credential, conversation = call.context.credential, None
    if kept is not None and (request := kept.request):
        answer = kept.answer if call.is_complete else b""
        conversation = ConversationCall(kept.form, request, kept.headers, answer, kept.is_stream, call.at)
    return CallNote(
        call_id=noted.call_id,
        at=call.at + timedelta(seconds=call.seconds),
        caller=caller,
        model=noted.model,
        sums=_sums(noted),
        seconds=call.seconds,
        key=credential if isinstance(credential, str) else None,
        person=credential if isinstance(credential, Local) else None,
        peer=call.context.peer,
        conversation=conversation,
        edits=call.edits,
    )


def _edited(call: EndedCall) -> EditedTokens:
    return EditedTokens() if call.edits is None else call.edits.tokens


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
