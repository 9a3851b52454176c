"""An HTTP embedding service with the OpenAI API that gives scripted answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from weft.testing.embedder import WordEmbedder

DIMENSIONS = 64


@dataclass(slots=True)
class Answer:
    """What the service says to one call: what it should, unless told otherwise."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    # Makes something else of what would be said.
    change: Callable[[dict[str, Any]], object] | None = None
    # Says nothing, and hangs up.
    silent: bool = False


@dataclass(slots=True)
class EmbeddingService:
    """Keeps what it was asked, with which headers; says what is scripted first, then what it should."""

    url: str = ""
    script: list[Answer] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    # A text that it never takes, and what it says to a call that holds it.
    poison: str = ""
    refusal: int = 422
    at_once: int = 0
    most_at_once: int = 0
    _embedder: WordEmbedder = field(default_factory=lambda: WordEmbedder(dimensions=DIMENSIONS))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := (await _head(reader)):
            headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
            self.headers.append({"": head.split("\r\n")[0], **headers})
            self.asked.append(json.loads(await reader.readexactly(int(headers["content-length"]))))
            answer = self.script.pop(0) if self.script else self._usual()
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            content = await self._content(answer, self.asked[-1])
            self.at_once -= 1
            if answer.silent:
                break
            said = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
            writer.write(
                f"HTTP/1.1 {answer.status} .\r\ncontent-length: {len(content)}\r\n{said}\r\n".encode() + content
            )
            await writer.drain()
        writer.close()

    def _usual(self) -> Answer:
        is_poisoned = bool(self.poison) and any(self.poison in text for text in self.asked[-1]["input"])
        return Answer(self.refusal) if is_poisoned else Answer()

    async def _content(self, answer: Answer, asked: dict[str, Any]) -> bytes:
        await asyncio.sleep(0.005)
        vectors = await self._embedder.embed(asked["input"], "passage")
        # In another order, and of another length, as both may be.
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
