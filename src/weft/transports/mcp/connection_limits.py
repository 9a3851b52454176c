"""How many connections of the handshake era each principal has open, so that nobody can take them all."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from weft.kernel.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Container

    from starlette.types import Message, Scope, Send

    from weft.kernel.identity import Actor

MOST_OF_ONE_PRINCIPAL = 2_000
_SESSION_HEADER = b"mcp-session-id"


class TooManyConnections(Unavailable):
    """You have too many MCP connections open."""

    code = "TOO_MANY_CONNECTIONS"
    hint = (
        "Close those you no longer use with DELETE on the MCP endpoint; idle ones end by themselves after half an hour."
    )
    http_status = 429


class OpenConnections:
    """Remembers who opened which connection; ``living`` says which of them are still there."""

    def __init__(self, living: Container[str], most: int = MOST_OF_ONE_PRINCIPAL) -> None:
        self._living = living
        self._most = most
        self._opened: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def watch(self, scope: Scope, actor: Actor, send: Send) -> Send:
        """Return a ``send`` that notes the connection an answer opens; refuse to open one too many."""
        if any(name == _SESSION_HEADER for name, _ in scope["headers"]):
            return send
        opened = self._opened[actor.tenant, actor.principal_id]
        if len(opened) >= self._most:
            opened.intersection_update({session for session in opened if session in self._living})
        if len(opened) >= self._most:
            raise TooManyConnections(f"You have {len(opened)} MCP connections open.", limit=self._most)

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                opened.update(value.decode() for name, value in message["headers"] if name == _SESSION_HEADER)
            await send(message)

        return noting
