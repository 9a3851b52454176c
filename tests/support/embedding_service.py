"""An HTTP embedding service with the OpenAI API that gives scripted answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from weftline.testing.embedder import WordEmbedder

DIMENSIONS = 64


@dataclass(slots=True)
class Answer:
    """A scripted response; by default the correct one."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    # Replaces the correct body.
    change: Callable[[dict[str, Any]], object] | None = None
    # Closes the connection without a response.
    silent: bool = False


@dataclass(slots=True)
class EmbeddingService:
    """Records requests and their headers; gives the scripted responses first, then correct ones."""

    url: str = ""
    script: list[Answer] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    # A text that it always refuses, and the status of that refusal.
    poison: str = ""
    refusal: int = 422
    concurrent: int = 0
    max_concurrent: int = 0
    _embedder: WordEmbedder = field(default_factory=lambda: WordEmbedder(dimensions=DIMENSIONS))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := (await _head(reader)):
            headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
            self.headers.append({"": head.split("\r\n")[0], **headers})
            self.requests.append(json.loads(await reader.readexactly(int(headers["content-length"]))))
            answer = self.script.pop(0) if self.script else self._default_answer()
            self.concurrent += 1
            self.max_concurrent = max(self.max_concurrent, self.concurrent)
            content = await self._content(answer, self.requests[-1])
            self.concurrent -= 1
            if answer.silent:
                break
            header_lines = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
            writer.write(
                f"HTTP/1.1 {answer.status} .\r\ncontent-length: {len(content)}\r\n{header_lines}\r\n".encode() + content
            )
            await writer.drain()
        writer.close()

    def _default_answer(self) -> Answer:
        is_poisoned = bool(self.poison) and any(self.poison in text for text in self.requests[-1]["input"])
        return Answer(self.refusal) if is_poisoned else Answer()

    async def _content(self, answer: Answer, request: dict[str, Any]) -> bytes:
        await asyncio.sleep(0.005)
        vectors = await self._embedder.embed(request["input"], "passage")
        # Rows in another order, and vectors not normalised: the API allows both.
        rows = [{"index": place, "embedding": (vector * 3).tolist()} for place, vector in enumerate(vectors)]
        body: Any = {"object": "list", "data": rows[::-1], "usage": {"total_tokens": 1}}
        if answer.change is not None:
            body = answer.change(body)
        return body if isinstance(body, bytes) else json.dumps(body).encode()


async def _head(reader: asyncio.StreamReader) -> str:
    try:
        return (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return ""


@asynccontextmanager
async def embedding_service() -> AsyncIterator[EmbeddingService]:
    service = EmbeddingService()
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield service
    finally:
        server.close()
