"""The HTTP server in the process of a test, with limits that the test chooses and time that it moves."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import uvicorn
from sse_starlette.sse import AppStatus

from weftline.transports.http.application import HttpApplication
from weftline.transports.http.connections import SWEEP_STEPS, ConnectionLimits, ConnectionTable
from weftline.transports.server import http_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from weftline.app.app import App

_ANSWER_SECONDS = 60


@dataclass(slots=True)
class Stream:
    """One connection of a client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, content: bytes) -> None:
        self.writer.write(content)
        await self.writer.drain()

    async def answer(self) -> bytes:
        """Return what the server sends next; nothing if it has closed the connection."""
        async with asyncio.timeout(_ANSWER_SECONDS):
            try:
                return await self.reader.read(65_536)
            except ConnectionError:
                return b""

    async def rest(self) -> bytes:
        """Return all that the server sends until it closes the connection."""
        received = b""
        while more := await self.answer():
            received += more
        return received

    @property
    def is_open(self) -> bool:
        return not self.reader.at_eof()


@dataclass(slots=True)
class Served:
    """A running server."""

    port: int
    connections: ConnectionTable
    streams: list[Stream] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def connect(self, content: bytes = b"") -> Stream:
        """Open a connection, send something and wait until the server has taken notice of it."""
        stream = Stream(*await asyncio.open_connection("127.0.0.1", self.port))
        self.streams.append(stream)
        if content:
            await stream.send(content)
        await asyncio.sleep(0.05)
        return stream

    async def pass_seconds(self, seconds: int) -> None:
        """Let all connections grow older."""
        for _ in range(seconds):
            for step in range(SWEEP_STEPS):
                self.connections.sweep(step)
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)


@asynccontextmanager
async def served(app: App, limits: ConnectionLimits | None = None) -> AsyncIterator[Served]:
    """Run the server during the block."""
    application = HttpApplication(app, limits=limits)
    server = http_server(app.settings, application)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    # Time passes only where the test says so.
    server.on_tick = partial(uvicorn.Server.on_tick, server)  # type: ignore[method-assign]
    serving = asyncio.create_task(server._serve([listener]))
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event to wait for
        await asyncio.sleep(0.01)
    running = Served(listener.getsockname()[1], application.connections)
    try:
        yield running
    finally:
        for stream in running.streams:
            stream.writer.close()
        server.should_exit = True
        await serving
        # Of the whole process: streams of later tests would end at once.
        AppStatus.should_exit = False
