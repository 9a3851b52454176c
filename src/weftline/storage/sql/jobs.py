"""Background jobs in SQL: lease, cursor and due time of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.kernel.ports import Progress
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from weftline.kernel.transaction import Transaction


class RowLease:
    """The lease of one row, in its columns ``holder`` and ``lease_until``: of a job, a document or a webhook.

    Keys and further values are passed as parameters; table, columns and SQL fragments are constants of the callers.
    """

    __slots__ = ("_keys", "_table", "_tx", "_values")

    def __init__(self, transaction: Transaction, table: str, **key: str | int) -> None:
        self._tx = transaction
        self._table = table
        self._keys = ["tenant", *key]
        self._values = (transaction.tenant, *key.values())

    async def take(self, holder: str, until: int, *, also: str = "") -> None:
        """Give the lease to a holder; the row is locked already. ``also`` sets further columns."""
        await self._update(f"holder = $1, lease_until = $2{also} WHERE {self._where(3)}", holder, until, *self._values)

    async def renew(self, holder: str, until: int, *, only_if: str = "") -> bool:
        """Extend the lease and lock the row until the transaction ends; False if the holder has lost it."""
        changes = f"lease_until = $1 WHERE {self._where(2)} AND holder = ${len(self._keys) + 2}{only_if}"
        return await self._update(changes, until, *self._values, holder) > 0

    async def release(self, holder: str, until: int, *, also: str = "") -> None:
        """End the lease if the holder has it; the row is not claimed before ``until``."""
        where = f"{self._where(2)} AND holder = ${len(self._keys) + 2}"
        await self._update(f"holder = NULL, lease_until = $1{also} WHERE {where}", until, *self._values, holder)

    def _where(self, first: int) -> str:
        # SQLite numbers parameters in the order they appear in.
        return " AND ".join(f"{column} = ${place}" for place, column in enumerate(self._keys, first))

    async def _update(self, changes: str, *values: str | int) -> int:
        return await self._tx.changed(f"UPDATE {self._table} SET {changes}", *values)  # noqa: S608 - constants only


_ADD_JOB = """
INSERT INTO jobs (tenant, job, cursor, lease_until, due_at, progress) VALUES ($1, $2, '', 0, 0, '')
ON CONFLICT DO NOTHING
"""
_HOLD = """
INSERT INTO jobs (tenant, job, cursor, lease_until, due_at, progress) VALUES ($1, $2, '', 0, 0, '')
ON CONFLICT (tenant, job) DO UPDATE SET cursor = jobs.cursor RETURNING cursor, progress
"""
_CLAIM = """
UPDATE jobs SET holder = $1, lease_until = $2
WHERE tenant = $3 AND job = $4 AND lease_until <= $5 AND due_at <= $6
"""
_SAVE = "UPDATE jobs SET cursor = $1, progress = $2 WHERE tenant = $3 AND job = $4"


class SqlJobStore(SqlStore):
    """Jobs of one tenant."""

    async def claim(self, job: str, holder: str, now: int, until: int, *, due_by: int) -> Progress | None:
        await self._tx.run(_ADD_JOB, self._tenant, job)
        claimed = await self._tx.changed(_CLAIM, holder, until, self._tenant, job, now, due_by)
        return await self.progress(job) if claimed else None

    async def renew(self, job: str, holder: str, until: int) -> Progress | None:
        renewed = await RowLease(self._tx, "jobs", job=job).renew(holder, until)
        return await self.progress(job) if renewed else None

    async def held(self, job: str) -> Progress:
        row = await self._tx.one(_HOLD, self._tenant, job)
        assert row is not None  # noqa: S101 - what was written is returned
        return Progress(*row)

    async def save(self, job: str, progress: Progress) -> None:
        await self._tx.run(_SAVE, progress.cursor, progress.done, self._tenant, job)

    async def release(self, job: str, due_at: int) -> None:
        await self._tx.run(
            "UPDATE jobs SET holder = NULL, lease_until = 0, due_at = $1 WHERE tenant = $2 AND job = $3",
            due_at,
            self._tenant,
            job,
        )

    async def finish(self, job: str, due_at: int) -> None:
        await self.save(job, Progress())
        await self.release(job, due_at)

    async def drop(self, job: str) -> None:
        await self._tx.run("DELETE FROM jobs WHERE tenant = $1 AND job = $2", self._tenant, job)

    async def progress(self, job: str) -> Progress | None:
        row = await self._tx.one("SELECT cursor, progress FROM jobs WHERE tenant = $1 AND job = $2", self._tenant, job)
        return None if row is None else Progress(*row)


_TENANTS_WITH_DUE = """
SELECT tenants.tenant FROM tenants LEFT JOIN jobs j ON j.tenant = tenants.tenant AND j.job = $1
WHERE j.job IS NULL OR (j.due_at <= $2 AND j.lease_until <= $2)
ORDER BY tenants.tenant
"""


async def tenants_with_due(transaction: Transaction, job: str, now: int) -> list[str]:
    """Return the tenants for which a job is due or was never run, and not leased."""
    rows = await transaction.all(_TENANTS_WITH_DUE, job, now)
    return [row[0] for row in rows]
