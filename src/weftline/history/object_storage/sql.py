"""The index of stored objects in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.history.object_storage.model import GRACE_MICROS, PENDING_MICROS, ObjectState
from weftline.history.object_storage.store import StoredObject, UploadDecision, UploadStart
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.transaction import Transaction

# The version column is NULL until the upload has finished; this is the version in stores without versions.
_NO_VERSION = ""
_OBJECT = "SELECT path, state, size, version, at FROM objects WHERE tenant = $1 AND path = $2 "
# ``doom`` has no clock: the grace period begins when a sweep first sees the object.
_UNNOTICED = 0
# Longer than any backup; a backup that died blocks removals no longer than this.
_HOLD_MICROS = 24 * 3_600 * 1_000_000
_DUE = "state <> 'kept' AND at <= $1 AND (state IN ('doomed', 'deleting') OR at <= $2)"
_BEGIN = """
INSERT INTO objects (tenant, path, state, size, at) VALUES ($1, $2, 'pending', $3, $4)
ON CONFLICT DO NOTHING
"""
_UPLOADED = """
UPDATE objects SET version = $1
WHERE tenant = $2 AND path = $3 AND state IN ('pending', 'kept') AND at = $4
"""
_KEEP = """
UPDATE objects SET state = 'kept'
WHERE tenant = $1 AND path = $2 AND state IN ('pending', 'kept') AND version IS NOT NULL
"""
_DUE_PATHS = f"""
SELECT path FROM objects WHERE {_DUE} AND tenant = $3 AND at <> $4
ORDER BY at LIMIT $5 {{for_update_unless_locked}}
"""  # noqa: S608 - our own column names
_NOTICE_DOOMED = """
UPDATE objects SET at = $1 WHERE tenant = $2 AND state = 'doomed' AND at = $3 AND path IN (
    SELECT path FROM objects
    WHERE tenant = $2 AND state <> 'kept' AND state = 'doomed' AND at = $3 LIMIT $4)
"""


class ObjectIndex(SqlStore):
    """The objects of the transaction's tenant, or of a given one, with their states."""

    def __init__(self, transaction: Transaction, tenant: str | None = None) -> None:
        super().__init__(transaction)
        self._tenant = transaction.tenant if tenant is None else tenant

    async def begin(self, path: str, size: int, now: int) -> UploadStart:
        """Record that an upload is about to start. A doomed object is revived and uploaded again."""
        await self._tx.run(_BEGIN, self._tenant, path, size, now)
        found = await self._locked(path)
        if found is None or found.state is ObjectState.DELETING:
            return UploadStart(UploadDecision.LEAVING, now)
        if found.state is ObjectState.KEPT:
            return UploadStart(UploadDecision.THERE, found.at, found.version)
        if found.state is ObjectState.DOOMED or found.at <= now - PENDING_MICROS // 2:
            return await self._restart(found, now)
        return UploadStart(
            UploadDecision.THERE if found.uploaded else UploadDecision.TO_UPLOAD, found.at, found.version
        )

    async def uploaded(self, path: str, begun_at: int, version: str | None) -> bool:
        """Record a finished upload; False if the object was doomed or its upload restarted meanwhile."""
        changed = await self._tx.changed(
            _UPLOADED, _NO_VERSION if version is None else version, self._tenant, path, begun_at
        )
        return changed > 0

    async def keep(self, path: str) -> bool:
        """Mark an uploaded object as referenced; False if it is missing or being deleted."""
        changed = await self._tx.changed(_KEEP, self._tenant, path)
        return changed > 0

    async def doom(self, path: str) -> None:
        """Mark an object as unreferenced. It is deleted after a grace period, see ``claim``."""
        await self._tx.run(
            "UPDATE objects SET state = 'doomed', at = $1 WHERE tenant = $2 AND path = $3 AND state = 'kept'",
            _UNNOTICED,
            self._tenant,
            path,
        )

    async def find(self, path: str) -> StoredObject | None:
        return _stored(await self._tx.one(_OBJECT, self._tenant, path))

    async def claim(self, now: int, limit: int) -> Sequence[str]:
        """Lease objects for deletion: doomed ones, abandoned uploads, and those of expired leases."""
        await self._notice_doomed(now, limit)
        rows = await self._tx.all(_DUE_PATHS, now - GRACE_MICROS, now - PENDING_MICROS, self._tenant, _UNNOTICED, limit)
        for (path,) in rows:
            await self._tx.run(
                "UPDATE objects SET state = 'deleting', at = $1 WHERE tenant = $2 AND path = $3",
                now,
                self._tenant,
                path,
            )
        return [row[0] for row in rows]

    async def cleared(self, path: str, claimed_at: int) -> None:
        """Drop the index entry of an object that was deleted under this lease."""
        await self._tx.run(
            "DELETE FROM objects WHERE tenant = $1 AND path = $2 AND state = 'deleting' AND at = $3",
            self._tenant,
            path,
            claimed_at,
        )

    async def _locked(self, path: str) -> StoredObject | None:
        return _stored(await self._tx.one(_OBJECT + "{for_update}", self._tenant, path))

    async def _notice_doomed(self, now: int, limit: int) -> None:
        await self._tx.run(_NOTICE_DOOMED, now, self._tenant, _UNNOTICED, limit)

    async def _restart(self, found: StoredObject, now: int) -> UploadStart:
        # A different timestamp, so that a concurrent upload started earlier cannot finish this one.
        at = max(now, found.at + 1)
        await self._tx.run(
            "UPDATE objects SET state = 'pending', version = NULL, at = $1 WHERE tenant = $2 AND path = $3",
            at,
            self._tenant,
            found.path,
        )
        return UploadStart(UploadDecision.TO_UPLOAD, at)


async def tenants_to_clear(transaction: Transaction, now: int) -> list[str]:
    """Return the tenants with objects to remove."""
    rows = await transaction.all(
        f"SELECT DISTINCT tenant FROM objects WHERE {_DUE}",  # noqa: S608 - constants only
        now - GRACE_MICROS,
        now - PENDING_MICROS,
    )
    return [row[0] for row in rows]


_HOLD_REMOVALS = """
INSERT INTO jobs (tenant, job, cursor, holder, lease_until, due_at, progress)
VALUES ('', $1, '', $2, $3, $4, '')
"""


async def hold_removals(transaction: Transaction, holder: str, now: int) -> None:
    """Block the deletion of objects of all tenants during a backup."""
    await transaction.run("DELETE FROM jobs WHERE tenant = '' AND job LIKE 'hold:%' AND lease_until <= $1", now)
    await transaction.run(_HOLD_REMOVALS, f"hold:{holder}", holder, now + _HOLD_MICROS, now)


async def release_removals(transaction: Transaction, holder: str) -> None:
    await transaction.run("DELETE FROM jobs WHERE tenant = '' AND job = $1", f"hold:{holder}")


async def removals_are_held(transaction: Transaction, now: int) -> bool:
    sql = "SELECT 1 FROM jobs WHERE tenant = '' AND job LIKE 'hold:%' AND lease_until > $1 LIMIT 1"
    return await transaction.one(sql, now) is not None


def _stored(row: tuple[str, str, int, str | None, int] | None) -> StoredObject | None:
    if row is None:
        return None
    path, state, size, version, at = row
    return StoredObject(path, ObjectState(state), size, version is not None, version or None, at)
