"""Who works on which branch, in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.storage.sql.database import Transaction


class SqlSwitchStore:
    """Switches, as rows of one tenant."""

    __slots__ = ("_tx",)

    def __init__(self, transaction: Transaction) -> None:
        self._tx = transaction

    async def branch_of(self, trunk: str, principal_id: str) -> str | None:
        row = await self._tx.one(
            "SELECT branch FROM switches WHERE tenant = $1 AND line_id = $2 AND principal_id = $3",
            self._tx.tenant,
            trunk,
            principal_id,
        )
        return None if row is None else row[0]

    async def switch(self, trunk: str, principal_id: str, branch: str | None) -> None:
        if branch is None:
            await self._tx.run(
                "DELETE FROM switches WHERE tenant = $1 AND line_id = $2 AND principal_id = $3",
                self._tx.tenant,
                trunk,
                principal_id,
            )
            return
        await self._tx.run(
            """
            INSERT INTO switches (tenant, line_id, principal_id, branch) VALUES ($1, $2, $3, $4)
            ON CONFLICT (tenant, line_id, principal_id) DO UPDATE SET branch = excluded.branch
            """,
            self._tx.tenant,
            trunk,
            principal_id,
            branch,
        )
