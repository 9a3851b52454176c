"""A provider of language models that costs little: it answers at once, with JSON or with a stream."""

from __future__ import annotations

import asyncio
import os

import uvloop

_BODY = b'{"model":"claude-sonnet-4-5","content":"%b","usage":{"input_tokens":900,"output_tokens":100}}' % (
    b"x" * 2_000
)
_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_EVENT = b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"%b"}}\n\n' % (b"x" * 20)
_CHUNK = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)


class Provider(asyncio.Protocol):
    """A connection. ``x-stream: N`` asks for N events; ``x-hold: 1`` leaves the stream open after them.

    ``x-delay: N`` asks to wait N milliseconds before the answer, as a model thinks.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._received[:end]).lower()
        if len(self._received) < end + 4 + int(_field(head, b"content-length") or 0):
            return
        self._received.clear()
        events = _field(head, b"x-stream")
        if not events:
            delay = int(_field(head, b"x-delay") or 0) / 1_000
            asyncio.get_running_loop().call_later(delay, self._transport.write, _JSON)
            return
        self._transport.write(_STREAM)
        for _ in range(int(events)):
            self._transport.write(_CHUNK)
        if not _field(head, b"x-hold"):
            self._transport.write(b"0\r\n\r\n")


def _field(head: bytes, name: bytes) -> bytes:
    _, found, rest = head.partition(b"\r\n" + name + b":")
    return rest.partition(b"\r\n")[0].strip() if found else b""


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Provider, "127.0.0.1", int(os.environ["PORT"]))
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
