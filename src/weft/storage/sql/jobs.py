"""Background jobs in SQL: lease, cursor and due time of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.kernel.jobs import Progress

if TYPE_CHECKING:
    from weft.storage.sql.database import Transaction


class SqlJobStore:
    """Jobs, as rows of one tenant."""

    __slots__ = ("_tenant", "_tx")

    def __init__(self, transaction: Transaction) -> None:
        self._tx = transaction
        self._tenant = transaction.tenant

    async def claim(self, job: str, holder: str, now: int, until: int, *, due_by: int) -> Progress | None:
        await self._tx.run(
            """
            INSERT INTO jobs (tenant, job, cursor, lease_until, due_at, progress) VALUES ($1, $2, '', 0, 0, '')
            ON CONFLICT DO NOTHING
            """,
            self._tenant,
            job,
        )
        claimed = await self._tx.changed(
            """
            UPDATE jobs SET holder = $1, lease_until = $2
            WHERE tenant = $3 AND job = $4 AND lease_until <= $5 AND due_at <= $6
            """,
            holder,
            until,
            self._tenant,
            job,
            now,
            due_by,
        )
        return await self.progress(job) if claimed else None

    async def renew(self, job: str, holder: str, until: int) -> Progress | None:
        renewed = await self._tx.changed(
            "UPDATE jobs SET lease_until = $1 WHERE tenant = $2 AND job = $3 AND holder = $4",
            until,
            self._tenant,
            job,
            holder,
        )
        return await self.progress(job) if renewed else None

    async def save(self, job: str, progress: Progress) -> None:
        await self._tx.run(
            "UPDATE jobs SET cursor = $1, progress = $2 WHERE tenant = $3 AND job = $4",
            progress.cursor,
            progress.done,
            self._tenant,
            job,
        )

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


async def tenants_with_due(transaction: Transaction, job: str, now: int) -> list[str]:
    """Return the tenants for which a job is due or was never run, and not leased."""
    rows = await transaction.all(
        """
        SELECT tenants.tenant FROM tenants LEFT JOIN jobs j ON j.tenant = tenants.tenant AND j.job = $1
        WHERE j.job IS NULL OR (j.due_at <= $2 AND j.lease_until <= $2)
        ORDER BY tenants.tenant
        """,
        job,
        now,
    )
    return [row[0] for row in rows]
