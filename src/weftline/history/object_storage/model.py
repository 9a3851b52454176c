"""Pointers to large values outside the database, and the states of stored objects.

As in git-LFS, the database stores a small pointer with the path, hash and size of the value. The same value of the same
owner always has the same pointer; the object version in a bucket is kept in the index, not in the pointer.
"""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from typing import Final

import msgspec

from weftline.kernel.errors import Conflict, NotFound, Unavailable
from weftline.kernel.fields import is_name

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
