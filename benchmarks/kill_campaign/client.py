"""A client that goes on after its server was killed."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from benchmarks.wire import Answer, Connection, Refused, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_RETRY_SECONDS = 0.02
# The database is unavailable; or a load balancer has lost its server.
_UNKNOWN = (502, 503, 504)
# For an answer, on a busy machine.
_PATIENCE_SECONDS = 120.0


class OutcomeUnknown(Exception):
    """The server was killed before it answered: the call may or may not have happened."""


class CallRefused(Exception):
    """The server answered with an error."""


class RunningServer:
    """The address of the server that runs now; its port changes at each start."""

    def __init__(self, host: str = "127.0.0.1", port: int | None = None) -> None:
        self.host = host
        self.port = port
        self.api_key = ""


class Client:
    """Calls operations over one connection, and opens another one to the next server."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._connection: Connection | None = None
        self._port: int | None = None

    async def call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        return json.loads((await self.send(method, path, body)).body or b"{}")

    async def send(self, method: str, path: str, body: object = None) -> Answer:
        """Send one request and return its response, once a server accepts connections."""
        connection = await self._connected()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                answer = await connection.exchange(request(method, path, self._server.api_key, body))
        except (OSError, EOFError, ValueError) as error:
            self._connection = None
            raise OutcomeUnknown from error
        if answer.status in _UNKNOWN:
            raise OutcomeUnknown
        if answer.status >= 300:
            raise CallRefused(f"{method} {path}: {answer.status} {answer.body[:300]!r}")
        return answer

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        """Yield the chunks of a response without end, until the server is gone."""
        connection = await self._connected()
        try:
            async for chunk in connection.chunks(request("GET", path, self._server.api_key)):
                yield chunk
        except (OSError, EOFError, ValueError, Refused) as error:
            raise OutcomeUnknown from error
        finally:
            # Not to be used for another request.
            self._connection = None
            connection.abort()

    async def _connected(self) -> Connection:
        while self._connection is None or self._port != self._server.port:
            self._port = self._server.port
            try:
                if self._port is None:
                    raise ConnectionError
                self._connection = await Connection.open(self._port, self._server.host)
            except OSError:
                self._connection = None
                await asyncio.sleep(_RETRY_SECONDS)
        return self._connection
