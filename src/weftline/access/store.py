"""Ports of access: the codec of tokens, and what higher rooms do for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class AgentInstructions(Protocol):
    """Sets the system prompt of a new agent."""

    async def define(self, agent_id: str, text: str) -> None: ...


class LineKeys(Protocol):
    """The key that signs the versions of layers and definitions."""

    async def rotate(self, now: int) -> None:
        """Replace the key. What it signed stays valid, but nobody can sign with it any more."""
        ...


class TokenCodec(Protocol):
    """Signs and verifies claims with one fixed algorithm, whatever the token's header names."""

    def encode(self, claims: Mapping[str, Any], kid: str, secret: bytes) -> str: ...

    def kid_of(self, token: str) -> str | None:
        """Return the unverified key id of a token; None if the text is not a token."""
        ...

    def decode(self, token: str, secret: bytes) -> Mapping[str, Any] | None:
        """Return the claims if the signature is valid; None otherwise."""
        ...
