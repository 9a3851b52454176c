"""Limit of open handshake-era connections per principal."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from weft.kernel.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Container

    from starlette.types import Message, Scope, Send

    from weft.kernel.identity import Actor

MAX_PER_PRINCIPAL = 2_000
_SESSION_HEADER = b"mcp-session-id"


class TooManyConnections(Unavailable):
    """Too many MCP connections are open."""

    code = "TOO_MANY_CONNECTIONS"
    hint = "Close unused connections with DELETE on the MCP endpoint; idle ones are closed after half an hour."
    http_status = 429


class OpenConnections:
    """Connections opened by each principal; ``living`` holds those that are still open."""

    def __init__(self, living: Container[str], limit: int = MAX_PER_PRINCIPAL) -> None:
        self._living = living
        self._limit = limit
        self._opened: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def watch(self, scope: Scope, actor: Actor, send: Send) -> Send:
        """Return a ``send`` that records the connection a response opens; raise if the limit is reached."""
        if any(name == _SESSION_HEADER for name, _ in scope["headers"]):
            return send
        opened = self._opened[actor.tenant, actor.principal_id]
        if len(opened) >= self._limit:
            opened.intersection_update({session for session in opened if session in self._living})
        if len(opened) >= self._limit:
            raise TooManyConnections(f"You have {len(opened)} MCP connections open.", limit=self._limit)

        async def recording(message: Message) -> None:
            if message["type"] == "http.response.start":
                opened.update(value.decode() for name, value in message["headers"] if name == _SESSION_HEADER)
            await send(message)

        return recording
