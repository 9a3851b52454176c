"""Live events as server-sent events, resumable from any position.

An event is encoded once for all streams. A stream whose client does not read is ended: what waits to be sent is bounded
by one page, and the client resumes after the last id it has read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.routing import Route

from weftline.kernel.errors import InvalidInput, Unavailable, WeftlineError
from weftline.kernel.fields import MAX_INT
from weftline.records.event_classes import CloudEvent, to_cloud_event
from weftline.sessions.events.operations import Events, ReadEvents
from weftline.transports.http.http_io import admit, error_body, refuse
from weftline.transports.http.rest import OperationEndpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.types import Receive, Scope, Send

    from weftline.app.app import App
    from weftline.app.dispatch import CallContext
    from weftline.app.event_feed import Subscriber
    from weftline.kernel.events import Event, StoredEvent
    from weftline.kernel.identity import Actor
    from weftline.sessions.events.model import EventPage

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
# For a client to make room for what it was sent.
_SLOW_SECONDS = 30.0
# For a client that was too slow, to read why its stream ends.
_LAST_SECONDS = 5.0
# Text in one message: less than a page, so that a client is waited for within a page too.
_MESSAGE_BYTES = 32_768
_MAX_ENCODED = 1_000
_MAX_ENCODED_BYTES = 8_388_608


class StreamTooSlow(Unavailable):
    """The client reads its event stream more slowly than events happen."""

    code = "STREAM_TOO_SLOW"
    hint = "Open the stream again with Last-Event-ID or after set to context.resume_after, and read it as it comes."
    http_status = 429
    severity = "warning"


class EncodedEvents:
    """Texts of the latest events that were sent, shared by all streams."""

    def __init__(self) -> None:
        # An event is kept with its text, so that its id stays its own.
        self._texts: OrderedDict[tuple[int, str], tuple[Event, bytes]] = OrderedDict()
        self._bytes = 0

    def text(self, recorded: StoredEvent, source: str) -> bytes:
        """Return the text of an event: as a CloudEvent of ``source``, or in Weftline's own format if it is empty."""
        event = recorded.event
        key = (id(event), source)
        known = self._texts.get(key)
        if known is not None:
            return known[1]
        text = _event_text(event.seq, to_cloud_event(recorded, source) if source else event)
        self._texts[key] = event, text
        self._bytes += len(text)
        while len(self._texts) > _MAX_ENCODED or self._bytes > _MAX_ENCODED_BYTES:
            _, (_, oldest) = self._texts.popitem(last=False)
            self._bytes -= len(oldest)
        return text


class OpenStreams:
    """Open event streams, to be ended on shutdown."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextlib.contextmanager
    def tracking(self, task: asyncio.Task[Any]) -> Iterator[None]:
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    def end_all(self) -> None:
        for task in list(self._tasks):
            task.cancel()


class EventStream(OperationEndpoint):
    """Event stream with the parameters of events.read except those for waiting."""

    def __init__(self, app: App, streams: OpenStreams) -> None:
        super().__init__(app, app.registry["events.read"])
        self._streams = streams
        self._encoded = EncodedEvents()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.ExitStack() as stack:
            try:
                context, caller = await self._admit(scope)
                request = self._read_request(scope)
                subscriber = stack.enter_context(await self._app.subscription(context))
                pages = await self._pages(request, context, subscriber)
                source = await self._app.event_source(context) if request.format == "cloudevents" else ""
            except WeftlineError as error:
                await refuse(scope, send, error, self._app.clock)
                return
            await self._stream(self._texts(pages, source, caller), receive, send)

    async def _admit(self, scope: Scope) -> tuple[CallContext, Actor]:
        return await admit(self._app, scope)

    async def _stream(self, texts: AsyncIterator[tuple[int, bytes]], receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        sending = asyncio.create_task(self._send_all(texts, send))
        leaving = asyncio.create_task(_until_gone(receive))
        with self._streams.tracking(sending):
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _pages(
        self, request: ReadEvents, context: CallContext, subscriber: Subscriber
    ) -> AsyncIterator[EventPage]:
        """Read once without waiting, so that an error is a plain response and the start position is fixed."""
        whose = {"session_id": request.session_id, "personal": request.personal, "addressed": request.addressed}
        if request.after is None:
            first = await self._app.call(self._operation, whose, context)
            after = first.next_after if isinstance(first, Events) else None
        else:
            await self._app.call(self._operation, {**whose, "after": MAX_INT}, context)
            after = request.after
        return self._app.follow(context, request.interest, after, subscriber)

    def _read_request(self, scope: Scope) -> ReadEvents:
        raw = self._from_query(scope["query_string"])
        resumed = next((value for name, value in scope["headers"] if name == b"last-event-id"), None)
        if resumed is not None:
            raw["after"] = resumed.decode("latin-1")
        if "wait_seconds" in raw:
            raise InvalidInput("wait_seconds: a stream waits for as long as it is open", field="wait_seconds")
        request = self._operation.parse(raw, strict=False)
        assert isinstance(request, ReadEvents)  # noqa: S101 - the request of events.read
        return request

    async def _texts(
        self, pages: AsyncIterator[EventPage], source: str, caller: Actor
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Yield messages of pages with the position after each; those of a long page in turns of the event loop."""
        async for page in pages:
            for place, message in enumerate(self._messages(page, source)):
                if place:
                    await self._app.turns.wait((caller.tenant, caller.path))
                yield message

    async def _send_all(self, texts: AsyncIterator[tuple[int, bytes]], send: Send) -> None:
        position: int | None = None
        try:
            await _send_text(send, b": open\n\n")
            async for reached, text in texts:
                await _send_text(send, text)
                position = reached
        except TimeoutError:
            await self._send_error(send, StreamTooSlow(resume_after=position))
        except WeftlineError as error:
            await self._send_error(send, error)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                await _send_text(send, b": the server is stopping; resume from your last id\n\n", _LAST_SECONDS)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_LAST_SECONDS):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _messages(self, page: EventPage, source: str) -> Iterator[tuple[int, bytes]]:
        """Yield the text of a page in messages of bounded size, each with the position after it; never none."""
        text = _pruned(page.pruned_through)
        for recorded in page.recorded:
            text += self._encoded.text(recorded, source)
            if len(text) >= _MESSAGE_BYTES:
                yield recorded.event.seq, bytes(text)
                text = bytearray()
        if text or not page.recorded:
            yield page.reached, bytes(text) or b": still here\n\n"

    async def _send_error(self, send: Send, error: WeftlineError) -> None:
        body = msgspec.json.encode(error_body(error, self._app.clock))
        with contextlib.suppress(TimeoutError):
            await _send_text(send, b"event: error\ndata: " + body + b"\n\n", _LAST_SECONDS)


def stream_route(app: App, streams: OpenStreams) -> Route:
    return Route("/v1/events/stream", endpoint=EventStream(app, streams), methods=["GET"], name="events.stream")


def _pruned(through: int | None) -> bytearray:
    """Return the message that events are missing, because retention deleted them."""
    text = "" if through is None else f'id: {through}\nevent: pruned\ndata: {{"pruned_through":{through}}}\n\n'
    return bytearray(text.encode())


def _event_text(seq: int, event: Event | CloudEvent) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (seq, event.type.encode(), msgspec.json.encode(event))


async def _send_text(send: Send, text: bytes, seconds: float | None = None) -> None:
    async with asyncio.timeout(_SLOW_SECONDS if seconds is None else seconds):
        await send({"type": "http.response.body", "body": text, "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
