"""A value outside the database, what is kept in its stead, and the rules both obey.

The database keeps a small pointer that names the value by place, hash and size, as git-LFS does. The same value of the
same owner always has the same pointer, so which version of it a bucket holds is no part of it: the index knows that.
"""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from typing import Final

import msgspec

from weft.kernel.errors import Conflict, NotFound, Unavailable
from weft.kernel.ids import is_name

_PLACE = re.compile(r"(?P<tenant>[^/]+)/(?P<owner>[^/]+)/(?P<sha256>[0-9a-f]{64})\Z")
_MICROSECONDS: Final = 1_000_000
# Uploads end long before this; what is still on its way then has been given up.
PENDING_MICROS: Final = 3_600 * _MICROSECONDS
# How long a doomed object stays, and a claim to remove one holds. No upload, read or removal takes as long, so what
# began before an object was doomed is over before it goes, and whoever has not removed it by then has died.
GRACE_MICROS: Final = 300 * _MICROSECONDS


class ObjectStorageUnavailable(Unavailable):
    """The storage for large values cannot be used at the moment."""

    code = "OBJECT_STORAGE_UNAVAILABLE"
    hint = "Nothing was changed. Repeat the same call after a short wait; weft doctor shows what is wrong."
    severity = "critical"


class ObjectBusy(Conflict):
    """The same value is being removed from the storage for large values at this moment."""

    code = "OBJECT_BUSY"
    hint = "Nothing was changed. Repeat the same call."


class ObjectMissing(NotFound):
    """The value is no longer in the storage for large values."""

    code = "OBJECT_MISSING"
    hint = "It may have been replaced or removed while you read: read again. If it stays so, restore it from a backup."


class ObjectDamaged(Unavailable):
    """What the storage for large values holds is not what was written there."""

    code = "OBJECT_DAMAGED"
    hint = "Read an older version, or write the value anew; whoever runs Weft can restore the object from a backup."
    http_status = 500
    severity = "critical"
    recoverable = False


class ObjectState(StrEnum):
    """Where an object stands between its upload and its end."""

    PENDING = "pending"
    KEPT = "kept"
    DOOMED = "doomed"
    DELETING = "deleting"


class Pointer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the database keeps in place of a value that lies outside."""

    object: str
    sha256: str
    size: int

    @classmethod
    def to(cls, tenant: str, owner: str, content: bytes) -> Pointer:
        """Return the pointer to a value of an owner, whether or not it is stored yet."""
        sha256 = hashlib.sha256(content).hexdigest()
        return cls(_path(tenant, owner, sha256), sha256, len(content))

    @classmethod
    def decode(cls, text: str | bytes) -> Pointer:
        """Read a pointer back, refusing one that names no place we could have chosen."""
        try:
            pointer = msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ObjectDamaged("The pointer to a large value cannot be read.") from error
        if pointer != cls.at(pointer.object, pointer.size):
            raise ObjectDamaged("The pointer to a large value leads nowhere.")
        return pointer

    @classmethod
    def at(cls, path: str, size: int) -> Pointer:
        """Return the pointer to a place, refusing one that we could not have chosen."""
        place = _PLACE.match(path)
        if place is None or not (is_name(place["tenant"]) and is_name(place["owner"])) or size < 0:
            raise ObjectDamaged("The pointer to a large value leads nowhere.")
        return cls(path, place["sha256"], size)

    def encode(self) -> str:
        return msgspec.json.encode(self, order="deterministic").decode()

    @property
    def owner(self) -> str:
        return self.object.split("/")[1]

    def is_of(self, tenant: str) -> bool:
        return self.object.startswith(f"{tenant}/")

    def check(self, content: bytes) -> None:
        """Refuse bytes that are not those the pointer was made from."""
        if len(content) != self.size or hashlib.sha256(content).hexdigest() != self.sha256:
            raise ObjectDamaged


def _path(tenant: str, owner: str, sha256: str) -> str:
    # Nothing but names that hold no separator and no dot ever becomes a path.
    if not (is_name(tenant) and is_name(owner)):
        raise ValueError("the tenant and the owner of an object are names")
    return f"{tenant}/{owner}/{sha256}"
