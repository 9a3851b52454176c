"""HTTP/1.1 connections with bounds on everything a client can make the server wait for or keep.

Uvicorn has no deadline for a request and reads as much as it is sent. Here a body is read only as fast as it is asked
for, a client that sends or reads nothing is closed, and a request that is answered before its body was read is not read
to its end.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from weftline.kernel.client_gone import WaitingClient
from weftline.kernel.clock import SystemClock
from weftline.kernel.errors import ServerBusy
from weftline.kernel.fair_queue import server_busy
from weftline.transports.http.connections import Holder
from weftline.transports.http.http_io import error_body

if TYPE_CHECKING:
    import asyncio

    from starlette.types import Scope
    from uvicorn._types import ASGI3Application
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from weftline.kernel.identity import Actor
    from weftline.transports.http.connections import ConnectionTable

    Kept = tuple[list[Holder], int]

_MAX_HEAD_BYTES = 65_536
_MAX_HEADERS = 256
# Longer than any path of a route. Decoding a path and finding its route take time for each byte.
_MAX_PATH_BYTES = 8_192
# Requests that are sent before earlier ones are answered.
_MAX_PIPELINED = 16
# Each piece of a chunked body costs as much as a thousand of its bytes.
_FREE_PIECES = 1_024
_MIN_PIECE_BYTES = 256
# Between two pieces of a body, and behind the last one.
_MAX_FRAMING_BYTES = 65_536
# Of a body that nobody waits for: buffered before more is asked for, and read after the answer.
_MAX_BUFFERED_BYTES = 16_384
_MAX_DISCARDED_BYTES = 2**18
_RETRY_SECONDS = 5.0
_REFUSALS_FORGOTTEN_SECONDS = 5.0
_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_LARGE_HEAD = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Phase(Enum):
    """What a connection waits for."""

    HEAD = "the rest of a request's headers"
    BODY = "the rest of a request's body"
    ANSWER = "the server"
    UNREAD = "the client to read an answer"
    IDLE = "the next request"
    CLOSING = "the client to close it"


# What a client is told about before it is closed.
_ANSWERED = frozenset({Phase.HEAD, Phase.BODY})


class _Excessive(Exception):
    """A request has more parts than any real one."""


class BoundedHttp(HttpToolsProtocol):
    """A connection of the server."""

    def __init__(self, *args: Any, connections: ConnectionTable, **kwargs: Any) -> None:  # noqa: ANN401 - as uvicorn's
        super().__init__(*args, **kwargs)
        self._table = connections
        self.address = ""
        self.owner: tuple[str, str] | None = None
        # By which its requests take turns: its address until it has authenticated, then its latest caller.
        self._flow = ("", "")
        self.waiting = WaitingClient()
        self.waits_for_turn = False
        self._requests = 0
        self._head_bytes = 0
        self._in_head = False
        self._pieces = self._body_bytes = self._framing_bytes = 0
        # The response may be sent before the body has arrived.
        self._body_is_late = False
        self._is_discarding = False
        self._discarded = 0
        self._refusals, self._refused_at = 0, 0.0
        self._is_stopping = False
        # Bytes that are kept, by their holders: of a head, of the bodies of requests, of an answer that is not read.
        self._kept_head: list[Kept] = []
        self._kept_bodies: list[Kept] = []
        self._unread: list[Kept] = []
        self._seen: tuple[object, ...] = ()
        self._waited = self._body_waited = 0

    # What the application asks of a connection.
    def identified(self, actor: Actor) -> None:
        """Note the caller of a request; raises ServerBusy if it has too many connections."""
        if self.owner != (actor.tenant, actor.principal_id):
            try:
                self._table.authenticate(self, actor)
            except ServerBusy:
                self.cycle.keep_alive = False
                raise
            self._flow = (actor.tenant, actor.path)

    def hold(self, size: int, scope: Scope) -> None:
        """Count bytes that are kept for a request; raises ServerBusy."""
        client = scope.get("client")
        address = self.address or (self._table.address_of(client[0]) if client else "")
        self._keep(self._kept_bodies, address, size)

    def refused_again(self) -> int:
        """Return how often requests of this connection were refused by a limit, one soon after the other."""
        now = self.loop.time()
        if now - self._refused_at > _REFUSALS_FORGOTTEN_SECONDS:
            self._refusals = 0
        self._refused_at = now
        self._refusals += 1
        return self._refusals

    def evict(self) -> None:
        self.transport.abort()

    def break_off(self) -> None:
        """Close the connection in the middle of an answer: without its end, the client knows that it is incomplete."""
        self.transport.close()

    def omit_own_headers(self, scope: Scope) -> None:
        """Let the answer to a request have only the headers that the application sends: those of another server."""
        if self.cycle.scope is scope:
            self.cycle.default_headers = []

    # What uvicorn and the transport ask of it.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self._table.address_of(self.client[0]) if self.client else "local"
        self._flow = ("", self.address)
        if not self._table.add(self):
            self._close_with(_busy())

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.remove(self)
        self.waiting.leave()
        for kept in (self._kept_head, self._kept_bodies, self._unread):
            self._release(kept)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_discarding or self.transport.is_closing():
            self._discard(len(data))
            return
        body_bytes = self._body_bytes
        super().data_received(data)
        if self._in_head:
            # Counted afterwards: the data may contain the end of another request.
            self._keep_head(len(data))
        elif self._is_framing_excessive(len(data), goes_on=self._body_bytes != body_bytes):
            self._close_with(_LARGE_HEAD)
        elif self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete:
            self._await_reader()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= _MAX_PIPELINED:
            raise _Excessive
        self._requests += 1
        self._head_bytes, self._in_head = 0, True
        self._pieces = self._body_bytes = self._framing_bytes = 0
        super().on_message_begin()
        self.scope["state"]["connection"] = self

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            # Trailers: what is known of a request is that of its head.
            return
        if len(self.headers) >= _MAX_HEADERS:
            raise _Excessive
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.url) > _MAX_PATH_BYTES and self.url.find(b"?", 0, _MAX_PATH_BYTES) < 0:
            raise _Excessive
        self._in_head = False
        self._release(self._kept_head)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._pieces += 1
        self._body_bytes += len(body)
        if self._pieces > _FREE_PIECES and self._body_bytes < (self._pieces - _FREE_PIECES) * _MIN_PIECE_BYTES:
            raise _Excessive
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._body_is_late:
            self._body_is_late = False
            if not self.cycle.response_started and not self._is_stopping:
                self.cycle.transport = self.transport
                self.cycle.keep_alive = self.scope["http_version"] != "1.0" and self.parser.should_keep_alive()
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.waits_for_turn = True
        self._table.turns.start(self._flow, partial(self._start_now, cycle, app))
        if self.waits_for_turn and self.owner is None:
            self._table.ask(self)

    def _start_now(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.waits_for_turn = False
        # Nobody waits for the answer to a client that has left while it waited for its turn.
        if not cycle.disconnected:
            super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        # As uvicorn's, without a timer for each request: the table looks after idle connections.
        self.server_state.total_requests += 1
        self._release(self._kept_bodies)
        if self._is_discarding or self.transport.is_closing():
            return
        if self.cycle.response_complete:
            self.cycle.body = bytearray()
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    def pause_writing(self) -> None:
        super().pause_writing()
        try:
            self._keep(self._unread, self.address, self.transport.get_write_buffer_size())
        except ServerBusy:
            self.transport.abort()

    def resume_writing(self) -> None:
        self._release(self._unread)
        super().resume_writing()

    def shutdown(self) -> None:
        self._is_stopping = True
        super().shutdown()

    def grow_older(self) -> None:
        """Count a second; close the connection if the client has not gone on for too long."""
        phase = self._phase()
        seen = (phase, self._requests, self._progress(phase))
        if seen[:2] != self._seen[:2]:
            self._body_waited = 0
        self._waited = self._waited + 1 if seen == self._seen else 0
        self._seen = seen
        self._body_waited += phase is Phase.BODY
        if self._is_overdue(phase):
            self._expire(phase)

    def linger(self) -> None:
        """Close after an answer whose request was not read to its end.

        Closed at once, the connection would be reset before the client has read the answer.
        """
        if not self.transport.is_closing():
            self._is_discarding = True
            self.cycle.body = bytearray()
            self.flow.resume_reading()
            if self.transport.can_write_eof():
                self.transport.write_eof()

    def _phase(self) -> Phase:
        if self._is_discarding or self.transport.is_closing():
            return Phase.CLOSING
        if self.flow.write_paused:
            return Phase.UNREAD
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            # While reading is paused it is the server that does not go on.
            return Phase.BODY if cycle.more_body and not self.flow.read_paused else Phase.ANSWER
        return Phase.HEAD if self._in_head or not self._requests else Phase.IDLE

    def _progress(self, phase: Phase) -> int:
        if phase is Phase.BODY:
            return self._body_bytes
        if phase is Phase.UNREAD:
            return int(self.transport.get_write_buffer_size()) // self._table.limits.unread_bytes
        return 0

    def _is_overdue(self, phase: Phase) -> bool:
        limits = self._table.limits
        if phase is Phase.ANSWER:
            return False
        if phase is Phase.BODY:
            slow = self._body_waited >= limits.body_seconds + self._body_bytes / limits.body_bytes_per_second
            return slow or self._waited >= limits.body_seconds
        seconds = {
            Phase.HEAD: limits.head_seconds,
            Phase.UNREAD: limits.unread_seconds,
            Phase.IDLE: limits.idle_seconds,
            Phase.CLOSING: limits.linger_seconds,
        }
        return self._waited >= seconds[phase]

    def _expire(self, phase: Phase) -> None:
        if phase is Phase.IDLE:
            self.transport.close()
        elif self._requests and phase in _ANSWERED and (self._in_head or not self.cycle.response_started):
            self._close_with(_TIMEOUT)
        else:
            self.transport.abort()

    def _close_with(self, answer: bytes) -> None:
        self.transport.write(answer)
        self.transport.close()

    def _keep_head(self, size: int) -> None:
        self._head_bytes += size
        try:
            self._keep(self._kept_head, self.address, size)
        except ServerBusy:
            self.transport.abort()
        if self._head_bytes > _MAX_HEAD_BYTES and not self.transport.is_closing():
            self._close_with(_LARGE_HEAD)

    def _is_framing_excessive(self, size: int, *, goes_on: bool) -> bool:
        """Tell whether a body that does not go on has too much around its pieces: it would be kept until it ends."""
        has_body = self.cycle is not None and self.cycle.more_body
        self._framing_bytes = self._framing_bytes + size if has_body and not goes_on else 0
        return self._framing_bytes > _MAX_FRAMING_BYTES and not self.transport.is_closing()

    def _await_reader(self) -> None:
        """Read no further until the application asks for more; until the body is complete, plan to close."""
        if len(self.cycle.body) > _MAX_BUFFERED_BYTES:
            self.flow.pause_reading()
        if not self._body_is_late:
            self._body_is_late = True
            self.cycle.keep_alive = False
            self.cycle.transport = _Lingering(self)  # type: ignore[assignment]

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > _MAX_DISCARDED_BYTES:
            self.flow.pause_reading()

    def _keep(self, where: list[Kept], address: str, size: int) -> None:
        """Count bytes for the address, unless it is that of a proxy, and the principal; raises ServerBusy."""
        budget = self._table.kept
        holders = [Holder((address,), budget.per_address)] if address else []
        if self.owner is not None:
            holders.append(Holder(self.owner, budget.per_principal))
        budget.take(holders, size)
        where.append((holders, size))

    def _release(self, kept: list[Kept]) -> None:
        for holders, size in kept:
            self._table.kept.give_back(holders, size)
        kept.clear()


class _Lingering:
    """Transport of a response whose request may not be read to its end."""

    def __init__(self, connection: BoundedHttp) -> None:
        self._connection = connection

    def write(self, data: bytes) -> None:
        self._connection.transport.write(data)

    def is_closing(self) -> bool:
        return self._connection.transport.is_closing()

    def close(self) -> None:
        self._connection.linger()


def _busy() -> bytes:
    """Return the answer to a connection for which there is no room."""
    error = server_busy(_RETRY_SECONDS)
    body = msgspec.json.encode(error_body(error, SystemClock()))
    head = (
        f"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-type: application/json\r\n"
        f"retry-after: {error.context['retry_after_seconds']}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
