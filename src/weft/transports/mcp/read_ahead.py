"""Reading a request body before the SDK does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Message, Receive


class ReadAhead:
    """Request body that is read here and can be read again by the SDK."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._messages: list[Message] = []

    async def read(self, limit: int) -> bytes | None:
        """Return the body; None if it is too large or incomplete."""
        size = 0
        while True:
            message = await self._receive()
            self._messages.append(message)
            size += len(message.get("body", b""))
            if message["type"] != "http.request" or size > limit:
                return None
            if not message.get("more_body", False):
                return b"".join([part.get("body", b"") for part in self._messages])

    async def __call__(self) -> Message:
        return self._messages.pop(0) if self._messages else await self._receive()
