"""Live events as server-sent events, resumable from any position."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.routing import Route

from weft.capabilities.events.operations import Events, ReadEvents
from weft.capabilities.records.event_classes import CloudEvent, to_cloud_event
from weft.kernel.errors import InvalidInput, WeftError
from weft.kernel.fields import MAX_INT
from weft.transports.http.http_io import context_of, error_body, send_error
from weft.transports.http.rest import OperationEndpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from starlette.types import Receive, Scope, Send

    from weft.app.app import App
    from weft.app.dispatch import CallContext
    from weft.capabilities.events.model import EventPage
    from weft.kernel.events import Event, StoredEvent

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = context_of(scope)
        try:
            request = self._request(scope)
            pages = await self._pages(request, context)
            encode = await self._encoder(request, context)
        except WeftError as error:
            await send_error(send, error, self._app.clock)
            return
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        sending = asyncio.create_task(self._send_pages(pages, encode, send))
        leaving = asyncio.create_task(_until_gone(receive))
        with self._streams.tracking(sending):
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _pages(self, request: ReadEvents, context: CallContext) -> AsyncIterator[EventPage]:
        """Read once without waiting, so that an error is a plain response and the start position is fixed."""
        whose = {"session_id": request.session_id, "personal": request.personal, "addressed": request.addressed}
        if request.after is None:
            first = await self._app.call(self._operation, whose, context)
            after = first.next_after if isinstance(first, Events) else None
        else:
            await self._app.call(self._operation, {**whose, "after": MAX_INT}, context)
            after = request.after
        return self._app.follow(context, request.interest, after)

    def _request(self, scope: Scope) -> ReadEvents:
        raw = self._from_query(scope["query_string"])
        resumed = next((value for name, value in scope["headers"] if name == b"last-event-id"), None)
        if resumed is not None:
            raw["after"] = resumed.decode("latin-1")
        if "wait_seconds" in raw:
            raise InvalidInput("wait_seconds: a stream waits for as long as it is open", field="wait_seconds")
        request = self._operation.parse(raw, strict=False)
        assert isinstance(request, ReadEvents)  # noqa: S101 - the request of events.read
        return request

    async def _encoder(self, request: ReadEvents, context: CallContext) -> Callable[[StoredEvent], str]:
        """Return the encoder of the requested event format."""
        if request.format == "native":
            return _native
        source = await self._app.event_source(context)
        return lambda recorded: _event_text(recorded.event.seq, to_cloud_event(recorded, source))

    async def _send_pages(
        self, pages: AsyncIterator[EventPage], encode: Callable[[StoredEvent], str], send: Send
    ) -> None:
        await _send_text(send, ": open\n\n")
        try:
            async for page in pages:
                text = _pruned(page.pruned_through) + "".join(map(encode, page.recorded))
                await _send_text(send, text or ": still here\n\n")
        except WeftError as error:
            body = msgspec.json.encode(error_body(error, self._app.clock)).decode()
            await _send_text(send, f"event: error\ndata: {body}\n\n")
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                await _send_text(send, ": the server is stopping; resume from your last id\n\n")
        with contextlib.suppress(Exception):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def stream_route(app: App, streams: OpenStreams) -> Route:
    return Route("/v1/events/stream", endpoint=EventStream(app, streams), methods=["GET"], name="events.stream")


def _pruned(through: int | None) -> str:
    """Return the message that events are missing, because retention deleted them."""
    return "" if through is None else f'id: {through}\nevent: pruned\ndata: {{"pruned_through":{through}}}\n\n'


def _native(recorded: StoredEvent) -> str:
    return _event_text(recorded.event.seq, recorded.event)


def _event_text(seq: int, event: Event | CloudEvent) -> str:
    return f"id: {seq}\nevent: {event.type}\ndata: {msgspec.json.encode(event).decode()}\n\n"


async def _send_text(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
