"""Ports of access: its store, and the codec of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from weftline.access.model import Memberships, Principal, SigningKey, StoredKey, StoredToken


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
        """Invalidate the cached callers of the tenant in every process."""
        ...

    async def lock_tree(self) -> None:
        """Let no other transaction create, disable or enable principals of the tenant until this one ends."""
        ...

    async def principal(self, principal_id: str) -> Principal | None: ...

    async def find_principals(self, principal_ids: Sequence[str]) -> Mapping[str, Principal]:
        """Return the principals with these ids, by id and in their order, without those that do not exist."""
        ...

    async def ancestors(self, principal_id: str) -> Sequence[Principal]:
        """Return the principals above one, the nearest first."""
        ...

    async def below(self, principal_id: str) -> Sequence[Principal]:
        """Return all active principals below one, by id."""
        ...

    async def clearance_of_type(self, agent_type: str) -> int:
        """Return the highest clearance of the principals of a type, also of disabled ones; 0 if there are none."""
        ...

    async def is_type_named_by_others(self, agent_type: str, orchestrator_id: str) -> bool:
        """Tell whether ACLs written outside of an orchestrator's tree name a type that no agent in the tree has."""
        ...

    async def is_foreign_type(self, agent_type: str, orchestrator_id: str) -> bool:
        """Tell whether a human has this type, or agents of other trees and no active agent of this orchestrator's."""
        ...

    async def agents_below(self, orchestrator_id: str) -> int:
        """Return how many agents below an orchestrator are not disabled."""
        ...

    async def active_agents(self) -> int:
        """Return how many agents of the tenant are not disabled."""
        ...

    async def principals(self, after: str, limit: int) -> Sequence[Principal]: ...

    async def active_principals(self, after: str, limit: int) -> Sequence[Principal]:
        """Return principals that are not disabled, by id."""
        ...

    async def near(self, principal_id: str, after: str, limit: int) -> Sequence[Principal]:
        """Return active principals above and below one in the tree, with the same parent, or in one of its teams."""
        ...

    async def add_principal(self, principal: Principal) -> bool:
        """Add a principal; False if the id is taken."""
        ...

    async def update_principal(self, principal: Principal) -> None:
        """Store the mutable fields of a principal: permissions, clearance, disabled state, search threshold."""
        ...

    async def disable_below(self, root: Principal, instead_of: str | None) -> Sequence[str]:
        """Disable the active principals below one with it, and return their ids.

        Those disabled with ``instead_of``, a principal above it, count as disabled with it from now on.
        """
        ...

    async def height(self, principal_id: str) -> int:
        """Return the levels of the tree of a principal: 1 if nothing is below it."""
        ...

    async def move(self, principal: Principal, parent_id: str) -> None:
        """Put a principal with everything below it under another one, in the tree of that one.

        What was disabled with a principal that is no longer above it is disabled with the moved one.
        """
        ...

    async def enable_below(self, principal_id: str) -> Sequence[str]:
        """Enable the principals that were disabled with one, and return their ids."""
        ...

    async def terminate_session(self, principal_id: str, session_id: str, at: int) -> int | None:
        """Refuse a principal in a session; return in how many it is refused now, None if it was refused already."""
        ...

    async def reinstate_session(self, principal_id: str, session_id: str) -> bool:
        """Admit a principal to a session again; False if it was not refused."""
        ...

    async def memberships(self, principal: Principal) -> Memberships:
        """Return a principal's teams and the humans it serves: above it in the tree, or in its teams."""
        ...

    async def memberships_of(self, principals: Sequence[Principal]) -> Mapping[str, Memberships]:
        """Return the memberships of several principals, by id."""
        ...

    async def step_tools(self, name: str, owners: Collection[str]) -> frozenset[str] | None:
        """Return the tools of a step of the tenant or of one of these principals; None if there is no such step.

        A step of the tenant comes before one of a principal with the same name.
        """
        ...

    async def key(self, key_id: str) -> StoredKey | None: ...

    async def keys_of(self, principal_id: str) -> Sequence[StoredKey]: ...

    async def add_key(self, key: StoredKey) -> None: ...

    async def revoke_key(self, key_id: str, at: int) -> None:
        """Revoke a key and every token issued for it."""
        ...

    async def token(self, token_id: str) -> StoredToken | None: ...

    async def add_token(self, token: StoredToken) -> None: ...

    async def lock_tokens(self, principal_id: str) -> None:
        """Let no other transaction exchange or revoke tokens of a principal until this one ends."""
        ...

    async def revoke_token(self, token_id: str, at: int) -> None: ...

    async def revoke_sign_in(self, token: StoredToken, at: int) -> None:
        """Revoke a token with all that were refreshed from the same one: they have its key and its time of proof."""
        ...

    async def revoke_tokens_of(self, principal_id: str, at: int) -> None:
        """Revoke every token of a principal."""
        ...

    async def forget_expired_tokens(self, principal_id: str, before: int) -> None: ...

    async def signing_keys(self) -> Sequence[SigningKey]:
        """Return the tenant's signing keys, newest first."""
        ...

    async def add_signing_key(self, key: SigningKey) -> None: ...

    async def retire_signing_keys(self, at: int, *, forget: bool) -> None:
        """Stop signing with the current keys; ``forget`` also invalidates the tokens they signed."""
        ...


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
