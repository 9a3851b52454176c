"""What embedding needs of storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

# What a model is to a tenant: the one its searches use, the one it is being migrated to, or one that it may use.
Role = Literal["serving", "building", "allowed"]
# What a vector was made for: something that a caller asked for, or a passage of what can be found. The first go first.
KeptFor = Literal["asked", "passage"]


class KeptVector(msgspec.Struct, frozen=True, gc=False):
    """A vector in halves, and when it was last noted to be of use, in microseconds."""

    vector: bytes
    used_at: int


class TenantModel(msgspec.Struct, frozen=True):
    """What a model is to a tenant, and since when, in microseconds."""

    model: str
    role: Role
    since: int


class VectorStore(Protocol):
    """Vectors of texts that were embedded before, by model and by what the text is."""

    async def find(self, model: str, digests: Sequence[bytes]) -> Mapping[bytes, KeptVector]:
        """Return those that are kept."""
        ...

    async def keep(self, model: str, vectors: Mapping[bytes, bytes], now: int, kind: KeptFor = "passage") -> None:
        """Keep vectors; one that is kept already stays as it is."""
        ...

    async def note_use(self, model: str, digests: Sequence[bytes], now: int) -> None:
        """Note that these are of use, so that others go first."""
        ...

    async def forget(self, model: str, digests: Sequence[bytes]) -> None:
        """Drop these: they are to be made anew."""
        ...

    async def forget_unused(self, digests: Sequence[bytes]) -> None:
        """Drop those of these, of every model, that no chunk of the tenant is made of any more."""
        ...

    async def count(self) -> int:
        """Return how many are kept, whatever the model."""
        ...

    async def drop_unused(self, limit: int) -> int:
        """Drop as many of those that were not used for longest, asked ones first; return how many went."""
        ...

    async def review(self, before: int, now: int, limit: int) -> int:
        """Drop what was not used since, but note the use of what a chunk is made of; return how many were judged."""
        ...


class TenantModelStore(Protocol):
    """What models are to the transaction's tenant."""

    async def listed(self) -> Sequence[TenantModel]:
        """Return all that has been said of models, by their names."""
        ...

    async def held(self) -> Sequence[TenantModel]:
        """Return the same, keeping whoever would say something else waiting until the transaction ends."""
        ...

    async def set(self, model: str, role: Role, now: int) -> None:
        """Say what a model is, whatever was said of it before."""
        ...

    async def remove(self, model: str) -> bool:
        """Say nothing of a model any more; False if nothing was said."""
        ...
