"""Connections of httpcore over asyncio itself: half the Python calls of the general one, on every read and write."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, cast

import httpcore2

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

# What is kept of an answer that nobody reads; further bytes stay with the sender.
_MAX_WAITING_BYTES = 65_536


class _Bytes(asyncio.Protocol):
    """The bytes of one connection, received before they are asked for, up to a limit."""

    def __init__(self) -> None:
        self.received: deque[bytes] = deque()
        self.error: Exception | None = None
        self.is_over = False
        self._waiting_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._is_full = self._is_paused = False

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None  # noqa: S101 - it is connected
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.received.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes > _MAX_WAITING_BYTES and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()
        _wake(self._reading)

    def eof_received(self) -> bool:
        self.is_over = True
        _wake(self._reading)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.error, self.is_over = exc, True
        _wake(self._reading)
        _wake(self._writing)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        _wake(self._writing)

    async def read(self) -> bytes:
        """Return what has come; nothing at the end."""
        while not self.received and not self.is_over:
            self._reading = asyncio.get_running_loop().create_future()
            await self._reading
        if not self.received:
            if self.error is not None:
                raise self.error
            return b""
        data = self.received.popleft()
        self._waiting_bytes -= len(data)
        if self._is_paused and self._waiting_bytes <= _MAX_WAITING_BYTES // 2:
            self._is_paused = False
            self.transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        if self.is_over and self.transport.is_closing():
            raise self.error or ConnectionResetError
        self.transport.write(data)
        while self._is_full and not self.is_over:
            self._writing = asyncio.get_running_loop().create_future()
            await self._writing
        if self.error is not None:
            raise self.error


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


class AsyncioStream(httpcore2.AsyncNetworkStream):
    """A connection."""

    def __init__(self, connection: _Bytes) -> None:
        self._connection = connection

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109 - as it is asked for
        try:
            if timeout is None:
                return await self._connection.read()
            async with asyncio.timeout(timeout):
                return await self._connection.read()
        except TimeoutError as error:
            raise httpcore2.ReadTimeout from error
        except OSError as error:
            raise httpcore2.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - likewise
        if not buffer:
            return
        try:
            if timeout is None:
                await self._connection.write(buffer)
                return
            async with asyncio.timeout(timeout):
                await self._connection.write(buffer)
        except TimeoutError as error:
            raise httpcore2.WriteTimeout from error
        except OSError as error:
            raise httpcore2.WriteError(str(error)) from error

    async def aclose(self) -> None:
        self._connection.transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - likewise
    ) -> httpcore2.AsyncNetworkStream:
        """Return the connection with TLS on it."""
        connection = _Bytes()
        try:
            async with asyncio.timeout(timeout):
                transport = await asyncio.get_running_loop().start_tls(
                    self._connection.transport, connection, ssl_context, server_hostname=server_hostname
                )
        except TimeoutError as error:
            await self.aclose()
            raise httpcore2.ConnectTimeout from error
        except OSError as error:
            await self.aclose()
            raise httpcore2.ConnectError(str(error)) from error
        assert transport is not None  # noqa: S101 - it was not closed
        connection.connection_made(transport)
        return AsyncioStream(connection)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - of httpcore
        connection = self._connection
        if info == "is_readable":
            return bool(connection.received) or connection.is_over
        names = {"ssl_object": "ssl_object", "client_addr": "sockname", "server_addr": "peername", "socket": "socket"}
        return connection.transport.get_extra_info(names[info]) if info in names else None


class AsyncioNetwork(httpcore2.AsyncNetworkBackend):
    """Opens connections."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - likewise
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        local = None if local_address is None else (local_address, 0)
        try:
            async with asyncio.timeout(timeout):
                transport, connection = await asyncio.get_running_loop().create_connection(
                    _Bytes, host, port, local_addr=local
                )
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout from error
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        for option in socket_options or ():
            transport.get_extra_info("socket").setsockopt(*option)
        return AsyncioStream(connection)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
