"""Storage ports of the embedding cache and of tenants' models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

# Role of a model for a tenant: used by searches, being migrated to, kept for a rollback, or usable.
Role = Literal["serving", "building", "kept", "allowed"]
# A share of queries is stored as a whole number out of this many.
SHARE_UNITS = 1_000
# A vector was requested by a caller, or belongs to a searchable passage. The former are evicted first.
CachedKind = Literal["asked", "passage"]


class CachedVector(msgspec.Struct, frozen=True, gc=False):
    """A half-precision vector and the time of its last use, in microseconds."""

    vector: bytes
    used_at: int


class TenantModel(msgspec.Struct, frozen=True):
    """A model's role for a tenant, and since when, in microseconds. ``share``: queries out of 1,000 it answers."""

    model: str
    role: Role
    since: int
    share: int = 0


class VectorStore(Protocol):
    """Embedding cache: vectors by model and digest of the text."""

    async def find(self, model: str, digests: Sequence[bytes]) -> Mapping[bytes, CachedVector]:
        """Return the cached vectors."""
        ...

    async def keep(self, model: str, vectors: Mapping[bytes, bytes], now: int, kind: CachedKind = "passage") -> None:
        """Store vectors; existing ones are kept."""
        ...

    async def touch(self, model: str, digests: Sequence[bytes], now: int) -> None:
        """Update the time of the last use."""
        ...

    async def forget(self, model: str, digests: Sequence[bytes]) -> None:
        """Delete vectors, so that they are computed again."""
        ...

    async def delete_unreferenced(self, digests: Sequence[bytes]) -> None:
        """Delete the vectors, of every model, whose text no chunk of the tenant contains any more."""
        ...

    async def count(self) -> int:
        """Return the number of vectors of all models."""
        ...

    async def evict(self, limit: int) -> int:
        """Delete up to ``limit`` least recently used vectors, requested ones first; return how many."""
        ...

    async def review(self, before: int, now: int, limit: int) -> int:
        """Delete vectors unused since ``before``; touch those that a chunk uses. Return how many were checked."""
        ...


class TenantModelStore(Protocol):
    """Models of the transaction's tenant."""

    async def listed(self) -> Sequence[TenantModel]:
        """Return the models with their roles, by name."""
        ...

    async def semantic_search(self) -> bool:
        """Return whether the tenant's content is embedded and searched by meaning."""
        ...

    async def set_semantic_search(self, *, on: bool) -> None: ...

    async def held(self) -> Sequence[TenantModel]:
        """Return the same, locked against changes until the transaction ends."""
        ...

    async def set(self, model: str, role: Role, now: int, share: float = 0.0) -> None:
        """Set the role of a model, and the share of queries it answers though it is not the serving one."""
        ...

    async def remove(self, model: str) -> bool:
        """Remove a model's role; False if it had none."""
        ...
