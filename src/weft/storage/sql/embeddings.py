"""Vectors of texts that were embedded before, and what models are to tenants, in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from weft.capabilities.indexing.embeddings.store import KeptFor, KeptVector, TenantModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weft.capabilities.indexing.embeddings.store import Role
    from weft.storage.sql.database import Transaction

# Texts that belong to nobody are kept under a name that no tenant can have; only the system's own work gets there.
PLATFORM = "/platform"
# A statement for so many at once; the last is named again where there are fewer.
_FIND_AT_ONCE = 50
_FIND = f"""
SELECT digest, vector, used_at FROM embedding_cache
WHERE tenant = $1 AND model = $2 AND digest IN ({", ".join(f"${place}" for place in range(3, _FIND_AT_ONCE + 3))})
"""  # noqa: S608 - placeholders
_IN_CHUNKS = f"""
SELECT digest FROM chunks
WHERE tenant = $1 AND digest IN ({", ".join(f"${place}" for place in range(2, _FIND_AT_ONCE + 2))})
"""  # noqa: S608 - placeholders
_FORGET = "DELETE FROM embedding_cache WHERE tenant = $1 AND model = $2 AND digest = $3"
_NOTE_USE = "UPDATE embedding_cache SET used_at = $1 WHERE tenant = $2 AND model = $3 AND digest = $4"
_LISTED = "SELECT model, role, since FROM tenant_models WHERE tenant = $1 AND model >= '' ORDER BY model "


def _batches(digests: Sequence[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(digests), _FIND_AT_ONCE):
        some = list(digests[start : start + _FIND_AT_ONCE])
        yield some + some[-1:] * (_FIND_AT_ONCE - len(some))


class SqlVectorStore:
    """Vectors of one tenant; or of the platform, for whoever works on the whole installation."""

    __slots__ = ("_tenant", "_tx")

    def __init__(self, transaction: Transaction) -> None:
        self._tx = transaction
        self._tenant = transaction.tenant or PLATFORM

    async def find(self, model: str, digests: Sequence[bytes]) -> Mapping[bytes, KeptVector]:
        found: dict[bytes, KeptVector] = {}
        for some in _batches(digests):
            rows = await self._tx.all(_FIND, self._tenant, model, *some)
            found |= {digest: KeptVector(vector, used_at) for digest, vector, used_at in rows}
        return found

    async def keep(self, model: str, vectors: Mapping[bytes, bytes], now: int, kind: KeptFor = "passage") -> None:
        # In one order, as others may keep some of them at the same time.
        await self._tx.many(
            """
            INSERT INTO embedding_cache (tenant, model, digest, kind, vector, used_at) VALUES ($1, $2, $3, $4, $5, $6)
            ON CONFLICT (tenant, model, digest) DO NOTHING
            """,
            [(self._tenant, model, digest, kind, vector, now) for digest, vector in sorted(vectors.items())],
        )

    async def note_use(self, model: str, digests: Sequence[bytes], now: int) -> None:
        await self._tx.many(_NOTE_USE, [(now, self._tenant, model, digest) for digest in sorted(digests)])

    async def forget(self, model: str, digests: Sequence[bytes]) -> None:
        await self._tx.many(_FORGET, [(self._tenant, model, digest) for digest in sorted(set(digests))])

    async def forget_unused(self, digests: Sequence[bytes]) -> None:
        unused = set(digests)
        for some in _batches(sorted(unused)):
            unused -= {row[0] for row in await self._tx.all(_IN_CHUNKS, self._tenant, *some)}
        if unused:
            for model in await self._models():
                await self.forget(model, list(unused))

    async def count(self) -> int:
        row = await self._tx.one("SELECT COUNT(*) FROM embedding_cache WHERE tenant = $1 AND kind > ''", self._tenant)
        return 0 if row is None else int(row[0])

    async def drop_unused(self, limit: int) -> int:
        # Locked ones are in use this very moment, or being dropped by someone else.
        rows = await self._tx.all(
            """
            SELECT model, digest FROM embedding_cache WHERE tenant = $1 AND kind > ''
            ORDER BY kind, used_at LIMIT $2 {for_update_unless_locked}
            """,
            self._tenant,
            limit,
        )
        await self._tx.many(_FORGET, [(self._tenant, model, digest) for model, digest in rows])
        return len(rows)

    async def review(self, before: int, now: int, limit: int) -> int:
        return sum([await self._review(kind, before, now, limit) for kind in get_args(KeptFor)])

    async def _review(self, kind: KeptFor, before: int, now: int, limit: int) -> int:
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
        await self._tx.many(_FORGET, [(self._tenant, model, digest) for model, digest, used in rows if not used])
        await self._tx.many(_NOTE_USE, [(now, self._tenant, model, digest) for model, digest, used in rows if used])
        return len(rows)

    async def _models(self) -> Sequence[str]:
        """Return the models that there are vectors of, leaping from one to the next instead of reading all vectors."""
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


class SqlTenantModelStore:
    """What models are to one tenant."""

    __slots__ = ("_tenant", "_tx")

    def __init__(self, transaction: Transaction) -> None:
        self._tx = transaction
        self._tenant = transaction.tenant

    async def listed(self) -> Sequence[TenantModel]:
        return [TenantModel(*row) for row in await self._tx.all(_LISTED, self._tenant)]

    async def held(self) -> Sequence[TenantModel]:
        return [TenantModel(*row) for row in await self._tx.all(_LISTED + "{for_share}", self._tenant)]

    async def set(self, model: str, role: Role, now: int) -> None:
        await self._tx.run(
            """
            INSERT INTO tenant_models (tenant, model, role, since) VALUES ($1, $2, $3, $4)
            ON CONFLICT (tenant, model) DO UPDATE SET role = excluded.role, since = excluded.since
            """,
            self._tenant,
            model,
            role,
            now,
        )

    async def remove(self, model: str) -> bool:
        gone = await self._tx.changed("DELETE FROM tenant_models WHERE tenant = $1 AND model = $2", self._tenant, model)
        return gone > 0
