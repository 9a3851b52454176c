"""HTTP/1.1 as uvicorn reads it, less the patience for a request whose head never ends."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_LONGEST_HEAD_BYTES = 65_536
_REFUSAL = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class BoundedHttp(HttpToolsProtocol):
    """Hangs up on a request line and headers beyond any sensible size; uvicorn would keep collecting them."""

    _head_bytes = 0
    _in_head = True

    def on_message_begin(self) -> None:
        self._head_bytes, self._in_head = 0, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Counted afterwards: what just came may hold the end of the head, and a body behind it.
        self._head_bytes += len(data)
        if self._in_head and self._head_bytes > _LONGEST_HEAD_BYTES:
            self.transport.write(_REFUSAL)
            self.transport.close()
