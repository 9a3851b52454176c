"""A small embedding service with the OpenAI API, for a second model."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from weftline.testing.embedder import WordEmbedder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DIMENSIONS = 64
MODEL = "words"


@asynccontextmanager
async def embedding_service() -> AsyncIterator[str]:
    """Yield the base URL of a service that embeds by words."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    embedder = WordEmbedder(dimensions=DIMENSIONS)
    with suppress(OSError, EOFError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
            texts = json.loads(await reader.readexactly(length))["input"]
            vectors = await embedder.embed(texts, "passage")
            rows = [{"index": place, "embedding": vector.tolist()} for place, vector in enumerate(vectors)]
            body = json.dumps({"object": "list", "data": rows, "usage": {"total_tokens": 1}}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
    writer.close()
