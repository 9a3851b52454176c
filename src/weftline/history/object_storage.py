"""Large values outside the database: pointers, staging, and the index of stored objects."""

from __future__ import annotations

import hashlib
import re
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from weftline.kernel.errors import Conflict, NotFound, Unavailable
from weftline.kernel.fields import is_name
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.kernel.transaction import Transaction


# Pointers to large values outside the database, and the states of stored objects.
#
# As in git-LFS, the database stores a small pointer with the path, hash and size of the value. The same value of the
# same owner always has the same pointer; the object version in a bucket is kept in the index, not in the pointer.

_PLACE = re.compile(r"(?P<tenant>[^/]+)/(?P<owner>[^/]+)/(?P<sha256>[0-9a-f]{64})\Z")
_MICROSECONDS: Final = 1_000_000
# Uploads end long before this; one that is still pending then was abandoned.
PENDING_MICROS: Final = 3_600 * _MICROSECONDS
# Grace period of an unreferenced object, and lease of its removal. No upload, read or removal takes this long: work
# that began before ends before the object is deleted, and a process that has not deleted it by then is dead.
GRACE_MICROS: Final = 300 * _MICROSECONDS


class ObjectStorageUnavailable(Unavailable):
    """The object store is unavailable."""

    code = "OBJECT_STORAGE_UNAVAILABLE"
    hint = "Nothing was changed. Repeat the same call after a short wait; weftline doctor shows what is wrong."
    severity = "critical"


class ObjectBusy(Conflict):
    """The same value is being deleted from the object store right now."""

    code = "OBJECT_BUSY"
    hint = "Nothing was changed. Repeat the same call."


class ObjectMissing(NotFound):
    """The value is no longer in the object store."""

    code = "OBJECT_MISSING"
    hint = "It may have been replaced or deleted meanwhile: read again. If that fails, restore it from a backup."


class ObjectDamaged(Unavailable):
    """The object store returned bytes that differ from what was written."""

    code = "OBJECT_DAMAGED"
    hint = "Read an older version, write the value again, or have the operator restore the object from a backup."
    http_status = 500
    severity = "critical"
    recoverable = False


class ObjectState(StrEnum):
    """The lifecycle state of an object."""

    PENDING = "pending"
    KEPT = "kept"
    DOOMED = "doomed"
    DELETING = "deleting"


class Pointer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The database's reference to an object: path, hash and size."""

    object: str
    sha256: str
    size: int

    @classmethod
    def to(cls, tenant: str, owner: str, content: bytes) -> Pointer:
        """Return the pointer for a value of an owner; the value need not be stored yet."""
        sha256 = hashlib.sha256(content).hexdigest()
        return cls(_path(tenant, owner, sha256), sha256, len(content))

    @classmethod
    def decode(cls, text: str | bytes) -> Pointer:
        """Decode a pointer; refuse one with an invalid path."""
        try:
            pointer = msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ObjectDamaged("The pointer to a large value cannot be read.") from error
        if pointer != cls.at(pointer.object, pointer.size):
            raise ObjectDamaged("The pointer to a large value is invalid.")
        return pointer

    @classmethod
    def at(cls, path: str, size: int) -> Pointer:
        """Return the pointer to a path; refuse an invalid path."""
        place = _PLACE.match(path)
        if place is None or not (is_name(place["tenant"]) and is_name(place["owner"])) or size < 0:
            raise ObjectDamaged("The pointer to a large value is invalid.")
        return cls(path, place["sha256"], size)

    def encode(self) -> str:
        return msgspec.json.encode(self, order="deterministic").decode()

    @property
    def owner(self) -> str:
        return self.object.split("/")[1]

    def is_of(self, tenant: str) -> bool:
        return self.object.startswith(f"{tenant}/")

    def check(self, content: bytes) -> None:
        """Refuse bytes that do not match the pointer's size and hash."""
        if len(content) != self.size or hashlib.sha256(content).hexdigest() != self.sha256:
            raise ObjectDamaged


def _path(tenant: str, owner: str, sha256: str) -> str:
    # Names contain neither separators nor dots, so a path cannot escape its folder.
    if not (is_name(tenant) and is_name(owner)):
        raise ValueError("the tenant and the owner of an object are names")
    return f"{tenant}/{owner}/{sha256}"


# Ports of object storage: the store of bytes, and the index of objects in the database.
#
# Store and index cannot change atomically, so the index is always written first: pending before an upload, deleting
# before a removal. Whatever a crash leaves in the store is therefore in the index. A transaction must not wait for the
# object store. An operation therefore stages large values first; its transaction then keeps them, which fails if they
# were swept meanwhile; values for the answer are fetched after the commit.

_NOT_THERE = (
    "Nothing was changed. Repeat the same call; if that fails, write the value again or restore it from a backup."
)


class ObjectStore(Protocol):
    """Bytes by path, in a folder or a bucket."""

    async def put(self, path: str, content: bytes) -> str | None:
        """Store bytes durably and return their version, if the store has versions."""
        ...

    async def get(self, path: str, version: str | None, size: int) -> bytes:
        """Return the bytes of an object or of one version; ObjectDamaged if the size differs."""
        ...

    async def delete(self, path: str) -> None:
        """Delete an object; idempotent."""
        ...


class StoredObject(msgspec.Struct, frozen=True):
    """The index entry of an object."""

    path: str
    state: ObjectState
    size: int
    uploaded: bool
    version: str | None
    at: int


class UploadDecision(Enum):
    """Whether an object must be uploaded; one that is there may still be damaged."""

    THERE = "there"
    TO_UPLOAD = "to_upload"
    LEAVING = "leaving"


class UploadStart(NamedTuple):
    """The start of an upload; ``at`` identifies it, so that an upload that was superseded is ignored.

    ``version`` is the store's version of the present object, if it has versions.
    """

    decision: UploadDecision
    at: int
    version: str | None = None


class Staging(Protocol):
    """Uploads and downloads of large values."""

    async def stage(self, tenant: str, owner: str, contents: Sequence[bytes], *, epoch: int | None = None) -> None:
        """Upload values of an owner. They are swept after an hour unless a transaction keeps them."""
        ...

    async def fetch(self, tenant: str, pointer: Pointer) -> bytes:
        """Return the value of a pointer of this tenant, verified by hash."""
        ...


async def keep_staged(pointers: Iterable[Pointer], index: ObjectIndex) -> None:
    """Keep staged values in the transaction that references them; in sorted order, to avoid deadlocks."""
    for path in sorted({pointer.object for pointer in pointers}):
        if not await index.keep(path):
            raise ObjectBusy if await index.find(path) else ObjectMissing(hint=_NOT_THERE)


# The index of stored objects in SQL.

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
