"""Checkouts in SQL: which branch each principal works on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.history.store import Checkout
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from weftline.kernel.transaction import Transaction


_SWITCH = """
INSERT INTO switches (tenant, line_id, principal_id, branch, gone) VALUES ($1, $2, $3, $4, 0)
ON CONFLICT (tenant, line_id, principal_id) DO UPDATE SET branch = excluded.branch, gone = 0
"""


class SqlCheckoutStore(SqlStore):
    """CheckoutStore of one tenant."""

    async def of(self, trunk: str, principal_id: str) -> Checkout | None:
        row = await self._tx.one(
            "SELECT branch, gone FROM switches WHERE tenant = $1 AND line_id = $2 AND principal_id = $3",
            self._tx.tenant,
            trunk,
            principal_id,
        )
        return None if row is None else Checkout(row[0], bool(row[1]))

    async def switch(self, trunk: str, principal_id: str, branch: str | None) -> None:
        if branch is None:
            await self._tx.run(
                "DELETE FROM switches WHERE tenant = $1 AND line_id = $2 AND principal_id = $3",
                self._tx.tenant,
                trunk,
                principal_id,
            )
            return
        await self._tx.run(_SWITCH, self._tx.tenant, trunk, principal_id, branch)


async def note_branch_gone(transaction: Transaction, trunk: str, branch: str) -> None:
    """Mark the checkouts of a deleted branch as gone, also if a new branch gets its name."""
    await transaction.run(
        "UPDATE switches SET gone = 1 WHERE tenant = $1 AND line_id = $2 AND branch = $3",
        transaction.tenant,
        trunk,
        branch,
    )
