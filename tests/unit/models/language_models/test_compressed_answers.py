"""An endpoint cannot fill the memory with a small compressed answer."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from weftline.models.language_models.chat_model import ChatCaller, ChatMessage, ChatModelError, ChatRequest
from weftline.providers.chat_models.endpoint import ChatEndpoint, OpenAICompatible


async def test_compressed_answers_are_refused_unread() -> None:
    asked: list[bytes] = []
    body = gzip.compress(b" " * 2**20)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    endpoint = ChatEndpoint(OpenAICompatible(), f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "model")
    request = ChatRequest("", (ChatMessage("user", "Hello."),), 10, ChatCaller("tenant", "agent", "session"))
    with pytest.raises(ChatModelError, match="compressed") as raised:
        await endpoint.attempt(request, 10.0)
    assert raised.value.kind == "malformed"
    assert b"accept-encoding: identity" in asked[0].lower()
    await endpoint.close()
    server.close()
