"""An HTTP server that records webhooks and gives scripted answers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable

TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as it came in."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def seq(self) -> int:
        return int(self.event["sequence"])


@dataclass(slots=True)
class Receiver:
    """Answers every call with ``status``, or with the result of ``answer``."""

    url: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    answer: Callable[[Call], int] | None = None
    # While this is not set, calls are not answered.
    open: asyncio.Event = field(default_factory=asyncio.Event)
    calls: list[Call] = field(default_factory=list)
    connections: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _serving: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = field(default_factory=dict)

    @property
    def seqs(self) -> list[int]:
        return [call.seq for call in self.calls]

    @property
    def types(self) -> list[str]:
        return [call.event["type"] for call in self.calls]

    @property
    def times(self) -> Counter[str]:
        """Return how often each delivery was made."""
        return Counter(call.id for call in self.calls)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS), self._changed:
            await self._changed.wait_for(holds)

    async def wait_for_calls(self, calls: int) -> list[Call]:
        """Wait until ``calls`` calls have arrived in total."""
        await self.until(lambda: len(self.calls) >= calls)
        return self.calls

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._serving[writer] = asyncio.current_task()
        try:
            while call := await _read(reader):
                async with self._changed:
                    self.calls.append(call)
                    self._changed.notify_all()
                await self.open.wait()
                status = self.status if self.answer is None else self.answer(call)
                header_lines = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
                writer.write(f"HTTP/1.1 {status} OK\r\n{header_lines}content-length: 2\r\n\r\nok".encode())
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def end(self) -> None:
        """Close all connections."""
        self.open.set()
        for writer in self._serving:
            # close() would wait for clients that keep their connections open.
            writer.transport.abort()
        await asyncio.gather(*filter(None, self._serving.values()), return_exceptions=True)


@asynccontextmanager
async def receiver(*, secured: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[Receiver]:
    """Run a receiver during the block."""
    receiver = Receiver()
    receiver.open.set()
    server = await asyncio.start_server(receiver.serve, host, 0, ssl=secured)
    port = server.sockets[0].getsockname()[1]
    receiver.url = f"{'https' if secured else 'http'}://{host}:{port}/hook"
    try:
        yield receiver
    finally:
        server.close()
        await receiver.end()


async def _read(reader: asyncio.StreamReader) -> Call | None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Call(first.split()[1], headers, await reader.readexactly(int(headers.get("content-length", "0"))))
