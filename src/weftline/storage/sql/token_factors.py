"""SQL store of learned factors of token estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.models.language_models.factors import TokenFactor

if TYPE_CHECKING:
    from weftline.kernel.transaction import Transaction


class SqlTokenFactorStore:
    """Token factors of one tenant."""

    __slots__ = ("_tenant", "_tx")

    def __init__(self, transaction: Transaction) -> None:
        self._tx = transaction
        self._tenant = transaction.tenant

    async def find(self, agent_id: str, model: str) -> TokenFactor | None:
        row = await self._tx.one(
            "SELECT agent_id, model, factor, samples, updated_at FROM token_factors "
            "WHERE tenant = $1 AND agent_id = $2 AND model = $3",
            self._tenant,
            agent_id,
            model,
        )
        return None if row is None else TokenFactor(*row)

    async def put(self, factor: TokenFactor) -> None:
        await self._tx.run(
            """
            INSERT INTO token_factors (tenant, agent_id, model, factor, samples, updated_at)
            VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (tenant, agent_id, model) DO UPDATE SET
                factor = excluded.factor, samples = excluded.samples, updated_at = excluded.updated_at
            """,
            self._tenant,
            factor.agent_id,
            factor.model,
            factor.factor,
            factor.samples,
            factor.updated_at,
        )

    async def count(self, agent_id: str) -> int:
        row = await self._tx.one(
            "SELECT COUNT(*) FROM token_factors WHERE tenant = $1 AND agent_id = $2", self._tenant, agent_id
        )
        return 0 if row is None else int(row[0])
