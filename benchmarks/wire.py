"""A minimal HTTP client: requests are prepared bytes, answers are checked and discarded."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import uvloop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
    from typing import TypeVar

    T = TypeVar("T")

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
_INFO = {"name": "benchmark", "version": "1"}
_ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": _INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
}
_TOOL = "shared_context"
_REFUSALS = (b'"isError":true', b'"error":{"code"', b'"success":false')


class Refused(Exception):
    """The server did not answer with success."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response."""

    status: int
    head: bytes
    body: bytes

    def header(self, name: str) -> str | None:
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.strip().lower() == name.encode():
                return value.strip().decode()
        return None

    @property
    def is_refusal(self) -> bool:
        """Return whether this is an error in HTTP or in MCP."""
        return self.status >= 300 or any(sign in self.body for sign in _REFUSALS)

    def check(self) -> None:
        """Raise unless this is a success in HTTP and in MCP."""
        if self.is_refusal:
            raise Refused(f"{self.status} {self.body[:500]!r}")

    def message(self) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON-RPC message, from a JSON body or from the single event of a stream."""
        text = self.body if self.body.startswith(b"{") else self.body[self.body.index(b"data: {") + 6 :]
        message, _ = json.JSONDecoder().raw_decode(text.decode())
        return message

    def result(self) -> Any:  # noqa: ANN401 - JSON
        """Return a tool's answer."""
        return self.message()["result"]["structuredContent"]


class Connection:
    """One keep-alive connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int, host: str = "127.0.0.1") -> Connection:
        connection = cls(*await asyncio.open_connection(host, port, limit=2**20))
        opened = _opened.get()
        if opened is not None:
            opened.append(connection)
        return connection

    async def exchange(self, request: bytes) -> Answer:
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        lowered = head.lower()
        start = lowered.find(b"content-length:")
        if start < 0 and b"transfer-encoding: chunked" in lowered:
            return Answer(int(head[9:12]), head, await self._chunks())
        length = int(head[start + 15 : head.index(b"\r\n", start)]) if start >= 0 else 0
        body = await self._reader.readexactly(length) if length else b""
        return Answer(int(head[9:12]), head, body)

    async def _chunks(self) -> bytes:
        return b"".join([chunk async for chunk in self._each_chunk()])

    async def _each_chunk(self) -> AsyncIterator[bytes]:
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readexactly(2)

    async def chunks(self, request: bytes) -> AsyncIterator[bytes]:
        """Send a request and yield the chunks of its response as they come."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise Refused(head.partition(b"\r\n")[0].decode())
        async for chunk in self._each_chunk():
            yield chunk

    async def hold(self, start: bytes, drip: bytes = b"", every_seconds: float = 1.0) -> list[int]:
        """Send the start of a request and wait until the server ends the connection; return the status, if it sent one.

        ``drip`` is sent again and again meanwhile.
        """
        self._writer.write(start)
        received = b""
        while True:
            try:
                async with asyncio.timeout(every_seconds if drip else None):
                    if not (chunk := await self._reader.read(65_536)):
                        break
                received = (received + chunk)[:16]
            except TimeoutError:
                if self._writer.is_closing():
                    break
                self._writer.write(drip)
        self._writer.close()
        return [int(received[9:12])] if received.startswith(b"HTTP/1.1 ") else []

    async def leave_unread(self, content: bytes) -> int:
        """Send requests, read the first status and nothing more."""
        self._writer.write(content)
        status = int((await self._reader.readexactly(16))[9:12])
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]
        return status

    async def ask(self, request: bytes) -> Answer:
        answer = await self.exchange(request)
        answer.check()
        return answer

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    def abort(self) -> None:
        self._writer.transport.abort()


# Connections that are aborted at the end of the block that opened them.
_opened: ContextVar[list[Connection] | None] = ContextVar("opened", default=None)


@contextmanager
def aborting_connections() -> Iterator[None]:
    """Abort all connections that are opened in the block, also those of its tasks."""
    opened: list[Connection] = []
    token = _opened.set(opened)
    try:
        yield
    finally:
        _opened.reset(token)
        for connection in opened:
            connection.abort()


def request(method: str, path: str, token: str | None, body: Any = None, **headers: str) -> bytes:  # noqa: ANN401 - JSON
    content = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1"]
    if token is not None:
        lines.append(f"authorization: Bearer {token}")
    if content:
        lines += ["content-type: application/json", f"content-length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


async def drive(connections: Sequence[Connection], requests: Sequence[Sequence[bytes]]) -> None:
    """Send every connection's own requests, one after the other on each, all connections at once."""
    await asyncio.gather(*(_send_all(connection, own) for connection, own in zip(connections, requests, strict=True)))


async def _send_all(connection: Connection, requests: Sequence[bytes]) -> None:
    for prepared in requests:
        (await connection.exchange(prepared)).check()


async def connect(port: int, count: int) -> list[Connection]:
    return [await Connection.open(port) for _ in range(count)]


@dataclass(slots=True)
class McpClient:
    """A client of one era. In the older one it has a session, which ``start`` opens."""

    connection: Connection
    token: str | None
    era: str
    headers: dict[str, str] = field(default_factory=dict)
    path: str = "/mcp"
    _session: str | None = None
    _id: int = 0

    async def start(self) -> None:
        if self.era == MODERN:
            return
        hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": _INFO}
        answer = await self.connection.ask(self._post(self._message("initialize", hello)))
        self._session = answer.header("mcp-session-id")
        await self.connection.ask(self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    def write(self, session_id: str, key: str, value: str) -> bytes:
        """Return the request that writes to a board."""
        arguments = {"action": "write", "session_id": session_id, "key": key, "value": value}
        return self.call(_TOOL, arguments)

    def call(self, tool: str, arguments: dict[str, Any]) -> bytes:
        """Return the request that calls a tool."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if self.era == MODERN:
            params["_meta"] = _ENVELOPE
        return self._post(self._message("tools/call", params))

    def list_tools(self) -> bytes:
        """Return the request that lists the tools."""
        return self._post(self._message("tools/list", {"_meta": _ENVELOPE} if self.era == MODERN else {}))

    def listen(self, uris: Sequence[str]) -> bytes:
        """Return the request of the newer era that subscribes to resources."""
        params = {"notifications": {"resourceSubscriptions": list(uris)}, "_meta": _ENVELOPE}
        return self._post(self._message("subscriptions/listen", params))

    async def tools(self) -> list[dict[str, Any]]:
        """Return the list of tools."""
        answer = await self.connection.ask(self.list_tools())
        listed: list[dict[str, Any]] = answer.message()["result"]["tools"]
        return listed

    def _message(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._id += 1
        return {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}

    def _post(self, message: dict[str, Any]) -> bytes:
        headers = {"accept": "application/json, text/event-stream", **self.headers}
        if self.era == MODERN:
            headers |= {"mcp_protocol_version": MODERN, "mcp_method": message["method"]}
            if "name" in message["params"]:
                headers["mcp_name"] = message["params"]["name"]
        elif self._session is not None:
            headers |= {"mcp_protocol_version": LEGACY, "mcp_session_id": self._session}
        return request("POST", self.path, self.token, message, **headers)


def texts(size: int) -> Iterator[str]:
    """Yield texts of one length, all different, as a board's values are."""
    sentence = "The retry budget is spent by the second attempt, so the queue must be drained before the deploy. "
    number = 0
    while True:
        number += 1
        yield f"{number:08d} {sentence * (size // len(sentence) + 1)}"[:size]


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop, to keep the client light."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
