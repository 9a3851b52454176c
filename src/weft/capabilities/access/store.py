"""What access needs of storage, and of whoever signs its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.capabilities.access.model import Principal, SigningKey, StoredKey, StoredToken


class AccessStore(Protocol):
    """Principals, keys and tokens of the transaction's tenant."""

    @property
    def tenant(self) -> str:
        """Return the tenant this transaction runs inside."""
        ...

    async def epoch(self) -> int | None:
        """Return the tenant's access epoch; None if there is no such tenant."""
        ...

    async def advance_epoch(self) -> None:
        """Make every process look up its callers again before their next call."""
        ...

    async def principal(self, principal_id: str) -> Principal | None: ...

    async def principals(self, after: str, limit: int) -> Sequence[Principal]: ...

    async def add_principal(self, principal: Principal) -> bool:
        """Add a principal; False if the id is taken."""
        ...

    async def update_principal(self, principal: Principal) -> None:
        """Keep what can change of a principal: its permissions, clearance, state and floor."""
        ...

    async def key(self, key_id: str) -> StoredKey | None: ...

    async def keys_of(self, principal_id: str) -> Sequence[StoredKey]: ...

    async def add_key(self, key: StoredKey) -> None: ...

    async def revoke_key(self, key_id: str, at: int) -> None:
        """End a key together with every token it was used to get."""
        ...

    async def token(self, token_id: str) -> StoredToken | None: ...

    async def add_token(self, token: StoredToken) -> None: ...

    async def revoke_token(self, token_id: str, at: int) -> None: ...

    async def forget_expired_tokens(self, principal_id: str, before: int) -> None: ...

    async def signing_keys(self) -> Sequence[SigningKey]:
        """Return the tenant's signing keys, newest first."""
        ...

    async def add_signing_key(self, key: SigningKey) -> None: ...

    async def retire_signing_keys(self, at: int, *, forget: bool) -> None:
        """Stop signing with the present keys; ``forget`` also stops accepting what they signed."""
        ...


class TokenCodec(Protocol):
    """Signs claims and checks signatures, with one algorithm that the token cannot choose."""

    def encode(self, claims: Mapping[str, Any], kid: str, secret: bytes) -> str: ...

    def kid_of(self, token: str) -> str | None:
        """Return the key id a token names, unverified; None if it is no token at all."""
        ...

    def decode(self, token: str, secret: bytes) -> Mapping[str, Any] | None:
        """Return the claims if the signature is right; None otherwise."""
        ...
