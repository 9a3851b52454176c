"""SQL store of learned factors of token estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.capabilities.language_models.factors import TokenFactor

if TYPE_CHECKING:
    from weft.storage.sql.database import Transaction


class SqlTokenFactorStore:
    """Token factors of one tenant."""

    __slots__ = ("_tenant", "_tx")

    def __init__(self, transaction: Transaction) -> None:
        self._tx = transaction
        self._tenant = transaction.tenant

    async def find(self, model: str) -> TokenFactor | None:
        row = await self._tx.one(
            "SELECT model, factor, samples, updated_at FROM token_factors WHERE tenant = $1 AND model = $2",
            self._tenant,
            model,
        )
        return None if row is None else TokenFactor(*row)

    async def put(self, factor: TokenFactor) -> None:
        await self._tx.run(
            """
            INSERT INTO token_factors (tenant, model, factor, samples, updated_at) VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (tenant, model) DO UPDATE SET
                factor = excluded.factor, samples = excluded.samples, updated_at = excluded.updated_at
            """,
            self._tenant,
            factor.model,
            factor.factor,
            factor.samples,
            factor.updated_at,
        )

    async def count(self) -> int:
        row = await self._tx.one("SELECT COUNT(*) FROM token_factors WHERE tenant = $1 AND model >= ''", self._tenant)
        return 0 if row is None else int(row[0])
