"""HTTP/1.1 protocol of uvicorn with a limit on the size of the headers."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MAX_HEAD_BYTES = 65_536
_REFUSAL = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection whose request line and headers exceed the limit; uvicorn has none."""

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
        # Counted afterwards: the data may contain the end of the headers and part of the body.
        self._head_bytes += len(data)
        if self._in_head and self._head_bytes > _MAX_HEAD_BYTES:
            self.transport.write(_REFUSAL)
            self.transport.close()
