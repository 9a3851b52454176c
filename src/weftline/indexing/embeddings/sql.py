"""SQL stores of the embedding cache and of tenants' embedding models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weftline.kernel.transaction import Transaction

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


# Owner of cached vectors that belong to no tenant: not a valid tenant name.
PLATFORM = "/platform"
# Digests per statement; shorter batches are padded with the last digest so that the statement stays the same.
_BATCH_SIZE = 50
_FIND = f"""
SELECT digest, vector, used_at FROM embedding_cache
WHERE tenant = $1 AND model = $2 AND digest IN ({", ".join(f"${place}" for place in range(3, _BATCH_SIZE + 3))})
"""  # noqa: S608 - placeholders
_IN_CHUNKS = f"""
SELECT digest FROM chunks
WHERE tenant = $1 AND digest IN ({", ".join(f"${place}" for place in range(2, _BATCH_SIZE + 2))})
"""  # noqa: S608 - placeholders
_DELETE = "DELETE FROM embedding_cache WHERE tenant = $1 AND model = $2 AND digest = $3"
_TOUCH = "UPDATE embedding_cache SET used_at = $1 WHERE tenant = $2 AND model = $3 AND digest = $4"
_LISTED = "SELECT model, role, since, share FROM tenant_models WHERE tenant = $1 AND model >= '' ORDER BY model "


def _batches(digests: Sequence[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(digests), _BATCH_SIZE):
        batch = list(digests[start : start + _BATCH_SIZE])
        yield batch + batch[-1:] * (_BATCH_SIZE - len(batch))


class VectorStore(SqlStore):
    """Embedding cache of a tenant, or of the platform without one: vectors by model and digest of the text."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction)
        self._tenant = transaction.tenant or PLATFORM

    async def find(self, model: str, digests: Sequence[bytes]) -> Mapping[bytes, CachedVector]:
        """Return the cached vectors."""
        found: dict[bytes, CachedVector] = {}
        for batch in _batches(digests):
            rows = await self._tx.all(_FIND, self._tenant, model, *batch)
            found |= {digest: CachedVector(vector, used_at) for digest, vector, used_at in rows}
        return found

    async def keep(self, model: str, vectors: Mapping[bytes, bytes], now: int, kind: CachedKind = "passage") -> None:
        """Store vectors; existing ones are kept."""
        # Sorted: concurrent writers of the same digests must lock them in one order.
        await self._tx.many(
            """
            INSERT INTO embedding_cache (tenant, model, digest, kind, vector, used_at) VALUES ($1, $2, $3, $4, $5, $6)
            ON CONFLICT (tenant, model, digest) DO NOTHING
            """,
            [(self._tenant, model, digest, kind, vector, now) for digest, vector in sorted(vectors.items())],
        )

    async def touch(self, model: str, digests: Sequence[bytes], now: int) -> None:
        """Update the time of the last use."""
        await self._tx.many(_TOUCH, [(now, self._tenant, model, digest) for digest in sorted(digests)])

    async def forget(self, model: str, digests: Sequence[bytes]) -> None:
        """Delete vectors, so that they are computed again."""
        await self._tx.many(_DELETE, [(self._tenant, model, digest) for digest in sorted(set(digests))])

    async def delete_unreferenced(self, digests: Sequence[bytes]) -> None:
        """Delete the vectors, of every model, whose text no chunk of the tenant contains any more."""
        unused = set(digests)
        for batch in _batches(sorted(unused)):
            unused -= {row[0] for row in await self._tx.all(_IN_CHUNKS, self._tenant, *batch)}
        if unused:
            for model in await self._models():
                await self.forget(model, list(unused))

    async def count(self) -> int:
        """Return the number of vectors of all models."""
        row = await self._tx.one("SELECT COUNT(*) FROM embedding_cache WHERE tenant = $1 AND kind > ''", self._tenant)
        return 0 if row is None else int(row[0])

    async def evict(self, limit: int) -> int:
        """Delete up to ``limit`` least recently used vectors, requested ones first; return how many."""
        # Locked rows are in use, or being evicted by another process.
        rows = await self._tx.all(
            """
            SELECT model, digest FROM embedding_cache WHERE tenant = $1 AND kind > ''
            ORDER BY kind, used_at LIMIT $2 {for_update_unless_locked}
            """,
            self._tenant,
            limit,
        )
        await self._tx.many(_DELETE, [(self._tenant, model, digest) for model, digest in rows])
        return len(rows)

    async def review(self, before: int, now: int, limit: int) -> int:
        """Delete vectors unused since ``before``; touch those that a chunk uses. Return how many were checked."""
        return sum([await self._review(kind, before, now, limit) for kind in get_args(CachedKind)])

    async def _review(self, kind: CachedKind, before: int, now: int, limit: int) -> int:
        rows = await self._tx.all(
            """
            SELECT model, digest, EXISTS (
                SELECT 1 FROM chunks c WHERE c.tenant = $1 AND c.digest = embedding_cache.digest)
            FROM embedding_cache WHERE tenant = $1 AND kind = $2 AND used_at < $3
            ORDER BY used_at LIMIT $4 {for_update_unless_locked}
            """,
            self._tenant,
            kind,
            before,
            limit,
        )
        await self._tx.many(_DELETE, [(self._tenant, model, digest) for model, digest, used in rows if not used])
        await self._tx.many(_TOUCH, [(now, self._tenant, model, digest) for model, digest, used in rows if used])
        return len(rows)

    async def _models(self) -> Sequence[str]:
        """Return the models with cached vectors: an index skip scan, one query per model."""
        models: list[str] = []
        while True:
            row = await self._tx.one(
                "SELECT MIN(model) FROM embedding_cache WHERE tenant = $1 AND model > $2",
                self._tenant,
                models[-1] if models else "",
            )
            if row is None or row[0] is None:
                return models
            models.append(row[0])


class TenantModelStore(SqlStore):
    """Models of the transaction's tenant."""

    async def listed(self) -> Sequence[TenantModel]:
        """Return the models with their roles, by name."""
        return [TenantModel(*row) for row in await self._tx.all(_LISTED, self._tenant)]

    async def semantic_search(self) -> bool:
        """Return whether the tenant's content is embedded and searched by meaning."""
        row = await self._tx.one("SELECT semantic_search FROM tenants WHERE tenant = $1", self._tenant)
        return row is not None and bool(row[0])

    async def set_semantic_search(self, *, on: bool) -> None:
        await self._tx.run("UPDATE tenants SET semantic_search = $1 WHERE tenant = $2", int(on), self._tenant)

    async def held(self) -> Sequence[TenantModel]:
        """Return the same, locked against changes until the transaction ends."""
        return [TenantModel(*row) for row in await self._tx.all(_LISTED + "{for_share}", self._tenant)]

    async def set(self, model: str, role: Role, now: int, share: float = 0.0) -> None:
        """Set the role of a model, and the share of queries it answers though it is not the serving one."""
        await self._tx.run(
            """
            INSERT INTO tenant_models (tenant, model, role, since, share) VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (tenant, model)
            DO UPDATE SET role = excluded.role, since = excluded.since, share = excluded.share
            """,
            self._tenant,
            model,
            role,
            now,
            round(share * SHARE_UNITS),
        )

    async def remove(self, model: str) -> bool:
        """Remove a model's role; False if it had none."""
        deleted = await self._tx.changed(
            "DELETE FROM tenant_models WHERE tenant = $1 AND model = $2", self._tenant, model
        )
        return deleted > 0
