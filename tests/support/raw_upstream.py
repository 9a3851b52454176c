"""A provider that is told what bytes to answer, and keeps those it receives; and clients that see raw answers."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import uvicorn

from weftline.models.language_models.chat_model import ChatCaller
from weftline.settings import Settings
from weftline.transports.http.connections import ConnectionTable
from weftline.transports.proxy.call_line import call_line
from weftline.transports.proxy.server import HOST, proxy_application
from weftline.transports.server import BoundedServer, bounded_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Headers = list[tuple[bytes, bytes]]
    Answer = Callable[["Received", "Writer"], Awaitable[None]]


class Received(NamedTuple):
    """A request as it came in; the body of a chunked one without its framing."""

    method: bytes
    target: bytes
    headers: Headers
    body: bytes

    def value(self, name: bytes) -> bytes | None:
        return next((value for each, value in self.headers if each.lower() == name), None)


class Answered(NamedTuple):
    """An answer as a client received it. ``is_whole``: it was not cut off."""

    status: int
    headers: Headers
    body: bytes
    is_whole: bool = True

    def value(self, name: bytes) -> bytes | None:
        return next((value for each, value in self.headers if each.lower() == name), None)


@dataclass(slots=True)
class Writer:
    """What an upstream answers with."""

    stream: asyncio.StreamWriter
    reader: asyncio.StreamReader

    async def until_client_leaves(self) -> None:
        # Looks without reading: what comes may be the next request.
        while not self.reader.at_eof() and self.reader.exception() is None:  # noqa: ASYNC110 - it has no event for it
            await asyncio.sleep(0.005)

    async def send(self, data: bytes) -> None:
        self.stream.write(data)
        await self.stream.drain()

    async def json(self, body: bytes, status: int = 200, headers: str = "") -> None:
        head = f"HTTP/1.1 {status} .\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
        await self.send(head.encode() + body)

    async def start_stream(self, headers: str = "") -> None:
        await self.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
            + headers.encode()
            + b"\r\n"
        )

    async def chunk(self, data: bytes) -> None:
        """Send a chunk; an empty one ends the answer."""
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def reset(self) -> None:
        # With a linger time of 0, closing sends a reset instead of an orderly end.
        self.stream.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.transport.abort()


@dataclass(slots=True)
class Upstream:
    """A running upstream."""

    answer: Answer
    port: int = 0
    received: list[Received] = field(default_factory=list)
    serving: set[asyncio.Task[None] | None] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, stream: asyncio.StreamWriter) -> None:
        self.serving.add(asyncio.current_task())
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                request = await _request(reader)
                self.received.append(request)
                await self.answer(request, Writer(stream, reader))
        stream.close()


@asynccontextmanager
async def upstream(answer: Answer) -> AsyncIterator[Upstream]:
    running = Upstream(answer)
    server = await asyncio.start_server(running.serve, "127.0.0.1", 0, limit=2**22)
    running.port = server.sockets[0].getsockname()[1]
    try:
        yield running
    finally:
        server.close()
        for task in running.serving:
            if task is not None:
                task.cancel()
        await asyncio.sleep(0)


@dataclass(slots=True)
class RunningProxy:
    """``weftline proxy`` in this process, and what it shows."""

    port: int
    shown: list[str]

    async def lines(self, count: int) -> list[str]:
        """Wait until it has shown this many calls."""
        async with asyncio.timeout(30):
            while len(self.shown) < count:  # noqa: ASYNC110 - it only grows
                await asyncio.sleep(0.005)
        return self.shown


@asynccontextmanager
async def local_proxy(settings: Settings) -> AsyncIterator[RunningProxy]:
    """Run the model proxy for one person."""
    shown: list[str] = []
    caller = ChatCaller("default", "admin")
    async with proxy_application(settings, caller, lambda noted: shown.append(call_line(noted))) as (application, _):
        connections = ConnectionTable()
        config = bounded_config(settings, application, connections, HOST, 0)
        server = BoundedServer(config, connections)
        # With the protocol, so that asyncio sends what it is given at once, as uvloop does.
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.bind((HOST, 0))
        server.on_tick = partial(uvicorn.Server.on_tick, server)  # type: ignore[method-assign]
        serving = asyncio.create_task(server._serve([listening]))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event to wait for
            await asyncio.sleep(0.005)
        try:
            yield RunningProxy(listening.getsockname()[1], shown)
        finally:
            server.should_exit = True
            await serving


@dataclass(slots=True)
class RawClient:
    """One connection that sends requests as bytes."""

    reader: asyncio.StreamReader
    stream: asyncio.StreamWriter

    @classmethod
    async def connect(cls, port: int) -> RawClient:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**22))

    async def ask(self, request: bytes) -> Answered:
        self.stream.write(request)
        return await self.answer(request.startswith(b"HEAD "))

    async def answer(self, is_head: bool = False) -> Answered:  # noqa: FBT001, FBT002 - of this file only
        async with asyncio.timeout(60):
            status, headers = await self.start()
            if is_head or status in {204, 304}:
                return Answered(status, headers, b"")
            answered = Answered(status, headers, b"")
            try:
                return answered._replace(body=await _body(self.reader, headers))
            except (asyncio.IncompleteReadError, ConnectionError):
                return answered._replace(is_whole=False)

    async def start(self) -> tuple[int, Headers]:
        """Read the head of an answer."""
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
        return int(first.split()[1]), [_header(line) for line in lines]

    async def chunk(self) -> bytes:
        """Read a chunk of an answer; raises IncompleteReadError if the connection ends before it."""
        async with asyncio.timeout(60):
            size = int((await self.reader.readuntil(b"\r\n"))[:-2], 16)
            return (await self.reader.readexactly(size + 2))[:-2]


async def _request(reader: asyncio.StreamReader) -> Received:
    first, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
    method, target, _ = first.split(b" ")
    headers = [_header(line) for line in lines]
    names = {name.lower() for name, _ in headers}
    has_body = bool(names & {b"content-length", b"transfer-encoding"})
    return Received(method, target, headers, await _body(reader, headers) if has_body else b"")


async def _body(reader: asyncio.StreamReader, headers: Headers) -> bytes:
    fields = {name.lower(): value for name, value in headers}
    if b"content-length" in fields:
        return await reader.readexactly(int(fields[b"content-length"]))
    if b"transfer-encoding" not in fields:
        return await reader.read()
    body = b""
    while size := int((await reader.readuntil(b"\r\n"))[:-2], 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body


def _header(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name, value.strip()


def post(path: str, body: bytes, *headers: str, host: str = "127.0.0.1") -> bytes:
    """Return the bytes of a request."""
    lines = [f"POST {path} HTTP/1.1", f"host: {host}", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body
