"""Reading a request body before the SDK does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.kernel.errors import ContentTooLarge
from weftline.transports.http.http_io import check_length, hold

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope


class ReadAhead:
    """Request body that is read here and can be read again by the SDK."""

    def __init__(self, scope: Scope, receive: Receive, limit: int) -> None:
        self._scope = scope
        self._receive = receive
        self._limit = limit
        self._messages: list[Message] = []
        self.body: bytes | None = None

    async def read(self) -> bytes | None:
        """Return the body; None if it is too large, which the SDK then refuses, or incomplete.

        Raises ServerBusy if too much is kept for the caller.
        """
        try:
            check_length(self._scope, self._limit)
        except ContentTooLarge:
            return None
        size = 0
        while True:
            message = await self._receive()
            self._messages.append(message)
            size += len(message.get("body", b""))
            if message["type"] != "http.request" or size > self._limit:
                return None
            if not message.get("more_body", False):
                self.body = b"".join([part.get("body", b"") for part in self._messages])
                return self.body
            hold(self._scope, len(message.get("body", b"")))

    async def __call__(self) -> Message:
        return self._messages.pop(0) if self._messages else await self._receive()
