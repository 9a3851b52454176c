"""Background jobs: lease, cursor and due time of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.kernel.transaction import RowLease, SqlStore

if TYPE_CHECKING:
    from weftline.kernel.transaction import Transaction


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


class Progress(NamedTuple):
    """How far a job got (``cursor``, empty at its beginning), and what it did on the way (``done``)."""

    cursor: str = ""
    done: str = ""


class JobStore(SqlStore):
    """The jobs of a tenant. Until its lease ends, only the holder of a job may continue it."""

    async def claim(self, job: str, holder: str, now: int, until: int, *, due_by: int) -> Progress | None:
        """Take the lease of a job that is due by then and return its progress; None if it is not due or leased."""
        await self._tx.run(_ADD_JOB, self._tenant, job)
        claimed = await self._tx.changed(_CLAIM, holder, until, self._tenant, job, now, due_by)
        return await self.progress(job) if claimed else None

    async def renew(self, job: str, holder: str, until: int) -> Progress | None:
        """Extend a lease and lock the job until the transaction ends; return its progress, None if it is lost."""
        renewed = await RowLease(self._tx, "jobs", job=job).renew(holder, until)
        return await self.progress(job) if renewed else None

    async def held(self, job: str) -> Progress:
        """Return the progress of a job, leased or not, locked until the transaction ends; created unless it exists."""
        row = await self._tx.one(_HOLD, self._tenant, job)
        assert row is not None  # noqa: S101 - what was written is returned
        return Progress(*row)

    async def save(self, job: str, progress: Progress) -> None:
        await self._tx.run(_SAVE, progress.cursor, progress.done, self._tenant, job)

    async def release(self, job: str, due_at: int) -> None:
        """End a lease; the job resumes from its progress when it is due."""
        await self._tx.run(
            "UPDATE jobs SET holder = NULL, lease_until = 0, due_at = $1 WHERE tenant = $2 AND job = $3",
            due_at,
            self._tenant,
            job,
        )

    async def finish(self, job: str, due_at: int) -> None:
        """End a lease and reset the progress: the job starts over when it is due."""
        await self.save(job, Progress())
        await self.release(job, due_at)

    async def drop(self, job: str) -> None:
        """Delete a job that is not repeated."""
        await self._tx.run("DELETE FROM jobs WHERE tenant = $1 AND job = $2", self._tenant, job)

    async def progress(self, job: str) -> Progress | None:
        """Return the progress of a job, leased or not; None if it was never claimed."""
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
