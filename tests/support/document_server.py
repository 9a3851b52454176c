"""An HTTP server with one document that supports conditional requests."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(slots=True)
class DocumentServer:
    """Serves ``body`` with an ETag, and 304 to requests that send it."""

    body: bytes = b"# Hello\n\nworld"
    tag: str = '"one"'
    status: int = 200
    location: str = ""
    media_type: str = "text/markdown; charset=utf-8"
    url: str = ""
    requests: list[dict[str, str]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        _, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.requests.append(headers)
        status, body = self.status, self.body
        if status == 200 and headers.get("if-none-match") == self.tag:
            status, body = 304, b""
        response_headers = {"etag": self.tag, "content-type": self.media_type, "content-length": str(len(body))}
        if self.location:
            response_headers["location"] = self.location
        header_lines = "".join(f"{name}: {value}\r\n" for name, value in response_headers.items())
        writer.write(f"HTTP/1.1 {status} OK\r\n{header_lines}\r\n".encode("latin-1") + body)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def document_server() -> AsyncIterator[DocumentServer]:
    """Run the server during the block."""
    given = DocumentServer()
    server = await asyncio.start_server(given.serve, "127.0.0.1", 0)
    given.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/docs/start.md"
    try:
        yield given
    finally:
        server.close()
