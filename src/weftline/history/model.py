"""A line: the version history of one context, as a chain of commits (git for key-value state).

A commit's hash covers its parents' hashes, every change and a random salt; a change names its value by SHA-256. So the
head pins the whole history: no value, author or time can be altered without every later hash failing to match. Callers
see hashes of commits that they may not read in full; without the salt, which is not shown, they cannot guess the rest.
Commits hold changes, not state. The state at a version is the latest change of each key up to it, which an index finds
directly, so a write costs the same however long the history and however many keys.
"""

from __future__ import annotations

import hashlib
import os
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weftline.kernel.errors import Conflict, NotFound
from weftline.safety.trust.model import TrustLabel

if TYPE_CHECKING:
    from collections.abc import Sequence

EMPTY = bytes(32)
# Between line id and branch name; no other name may contain it.
BRANCH_MARK = "@"
# Name of the line itself among its branches.
MAIN = "main"
# Greater than every sequence number.
LATEST = 2**62
# Suffix of the key that holds the metadata of another entry; keys from requests cannot contain it.
_METADATA = "#metadata"
_PRUNE_EVERY = 8
_SALT_BYTES = 16
_encode = msgspec.json.Encoder().encode


class VersionConflict(Conflict):
    """The entry was changed after the version you expected."""

    code = "VERSION_CONFLICT"
    hint = "Read the key again, merge your change into its current value, and write with if_version = current_version."
    related = ("shared_context", "get_memory")


class LineNotFound(NotFound):
    """There is no context with this context_id, or you cannot see it."""

    code = "CONTEXT_NOT_FOUND"
    hint = (
        "A context_id is board:SESSION, window:SESSION:AGENT, agent:AGENT, context:AGENT, team:NAME or user:ID; append "
        ":MEMORY_TYPE for a part of the last three, @BRANCH for a branch."
    )
    related = ("context_history",)


class VersionNotFound(NotFound):
    """The context has no such version."""

    code = "VERSION_NOT_FOUND"
    hint = "Give a version number, at least 6 digits of a hash, or a snapshot label; `history.log` lists versions."
    related = ("context_history",)


class VersionPruned(Conflict):
    """Retention has removed the value of this version."""

    code = "VERSION_PRUNED"
    hint = "Choose a later version or a snapshot. The log still shows who changed what and when."
    related = ("context_history",)


class SnapshotNotFound(NotFound):
    """No snapshot of this context has this label."""

    code = "SNAPSHOT_NOT_FOUND"
    hint = "List the labels with `history.snapshots`."
    related = ("shared_context", "context_history")


def no_snapshot(label: str) -> SnapshotNotFound:
    return SnapshotNotFound(f"There is no snapshot '{label[:100]}'.", resource_id=label[:100])


class SnapshotExists(Conflict):
    """A snapshot with this label already exists."""

    code = "SNAPSHOT_EXISTS"
    hint = "Snapshots are immutable; choose another label, such as one with a date or a number."
    related = ("shared_context", "context_history")


class BranchNotFound(NotFound):
    """The context has no branch of this name, or it was deleted."""

    code = "BRANCH_NOT_FOUND"
    hint = "List the branches with `history.branches`. To work on the context itself, switch to main."
    related = ("context_history",)


class BranchLimit(Conflict):
    """The context has reached its maximum number of branches."""

    code = "BRANCH_LIMIT"
    hint = "Merge finished branches, and delete the ones no longer needed with `history.delete_branch`."
    related = ("context_history",)


class ChangeKind(StrEnum):
    """What a change did to its key."""

    WRITE = "write"
    DELETE = "delete"
    EXPIRE = "expire"


class ChangeMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    """Attributes of a version besides its value; defaults are not stored and do not change hashes."""

    tokens: int = 0
    expires_at: int | None = None
    readable_by: tuple[str, ...] | None = None
    writable_by: tuple[str, ...] | None = None
    size: int = 0
    metadata_hash: str | None = None
    # The value is in object storage; the blob holds a pointer to it.
    outside: bool = False
    media_type: str | None = None
    # The value was not imported: the key ends here, and a record describes the version.
    not_imported: bool = False
    # Source and trust, unless those of the author.
    trust: TrustLabel | None = None
    # Of a version of a part of a composite line: how many entries it has.
    entries: int | None = None


class KeyNumber(NamedTuple):
    """The numbers of a change of a key; zeros before the first.

    Versions go on when a key is created again: a version names one value for good, so that compare-and-set cannot
    replace another than the one that was read.
    """

    incarnation: int = 0
    version: int = 0

    @classmethod
    def of(cls, change: Change) -> KeyNumber:
        return cls(change.incarnation, change.version)

    def not_below(self, before: KeyNumber) -> KeyNumber:
        """Return the numbers with at least this version."""
        return KeyNumber(self.incarnation, max(self.version, before.version))

    @property
    def next(self) -> KeyNumber:
        return KeyNumber(self.incarnation, self.version + 1)

    @property
    def created_again(self) -> KeyNumber:
        return KeyNumber(self.incarnation + 1, self.version + 1)


class Change(msgspec.Struct, frozen=True):
    """New state of one key. ``incarnation`` counts how often the key was created again after a deletion."""

    key: str
    incarnation: int
    version: int
    act: ChangeKind
    blob_hash: bytes | None
    meta: ChangeMeta


class Author(msgspec.Struct, frozen=True):
    """Author of a commit: display name and principal."""

    participant: str
    principal_id: str


SYSTEM = Author("system", "system")


class Head(msgspec.Struct, frozen=True):
    """Latest commit of a line. ``weight`` is the total size of its live keys, ``step`` the last workflow step."""

    line_id: str
    seq: int
    hash: bytes
    weight: int
    next_expiry_at: int | None
    step: str | None = None

    def has_expired(self, now: int) -> bool:
        """Tell whether the expiry of an entry is due."""
        return self.next_expiry_at is not None and self.next_expiry_at <= now

    @classmethod
    def of_new_line(cls, line_id: str) -> Head:
        return cls(line_id, 0, EMPTY, 0, None)


class Point(msgspec.Struct, frozen=True):
    """A version of a line: the state right after commit ``seq``."""

    line_id: str
    seq: int
    hash: bytes


def new_salt() -> bytes:
    return os.urandom(_SALT_BYTES)


class Commit(msgspec.Struct, frozen=True):
    """One commit. ``merged`` is the point of the other line that a merge commit merged.

    ``salt`` is None in commits of earlier versions of Weftline: short values can be guessed from their hashes.
    """

    line_id: str
    seq: int
    author: Author
    committed_at: int
    reason: str
    step: str | None
    changes: tuple[Change, ...]
    merged: Point | None = None
    salt: bytes | None = msgspec.field(default_factory=new_salt)

    def hash_after(self, *parents: bytes, weight: int | None = None) -> bytes:
        """Return the commit's hash, given the hashes of its parents and the line's weight after it."""
        return hashlib.sha256(self.content_after(*parents, weight=weight)).digest()

    def content_after(self, *parents: bytes, weight: int | None = None) -> bytes:
        """Return the bytes that are hashed.

        The line id is not part of them: a line is only a name for a commit and its ancestors.
        Changes are sorted by key because storage does not keep their order.
        """
        content: tuple[object, ...] = (
            [parent.hex() for parent in parents],
            self.author.participant,
            self.author.principal_id,
            self.committed_at,
            self.reason,
            self.step,
            [
                (c.key, c.incarnation, c.version, c.act, c.blob_hash.hex() if c.blob_hash else None, c.meta)
                for c in sorted(self.changes, key=lambda change: change.key)
            ],
        )
        if self.merged is not None:
            content += (self.merged.line_id, self.merged.seq)
        if weight is not None:
            content += (weight,)
        if self.salt is not None:
            content += (self.salt.hex(),)
        return _encode(content)


class StoredCommit(msgspec.Struct, frozen=True):
    """A commit with its hash. On a branch it may belong to the line that the branch started from."""

    commit: Commit
    hash: bytes


class Version(msgspec.Struct, frozen=True):
    """A change with its commit, and its value unless that was pruned. Exports and imports also set the ``salt``."""

    change: Change
    seq: int
    author: str
    committed_at: int
    value: str | None
    reason: str = ""
    step: str | None = None
    principal_id: str = ""
    salt: bytes | None = None


class Tag(msgspec.Struct, frozen=True):
    """A snapshot: label of a version. ``automatic`` ones were made by Weftline and are pruned by retention.

    ``owner`` is the agent for whom a named one counts.
    """

    label: str
    seq: int
    created_by: str
    created_at: int
    automatic: bool = False
    owner: str | None = None

    def seal(self, commit_hash: bytes) -> bytes:
        """Return the hash by which verification detects a changed tag."""
        content = (self.label, self.seq, self.created_by, self.created_at, self.automatic, commit_hash.hex())
        return hashlib.sha256(_encode(content)).digest()


class Damage(msgspec.Struct, frozen=True):
    """An integrity error. ``detail`` may name keys and is for admins; ``kind`` names none."""

    detail: str
    kind: str


class Line(msgspec.Struct, frozen=True):
    """A line. A branch starts from version ``base_seq`` of ``base_line``."""

    head: Head
    trunk: str | None = None
    base_line: str | None = None
    base_seq: int = 0

    @property
    def branch(self) -> str | None:
        return branch_of(self.head.line_id)


class CommitRange(msgspec.Struct, frozen=True):
    """Commits of one line: greater than ``after``, up to and including ``upto``. A branch's ancestry has several."""

    line_id: str
    after: int
    upto: int


def version_conflict(key: str, current: int, expected: int, **changes: Any) -> VersionConflict:  # noqa: ANN401 - JSON
    """Return the error for a key that is not at the expected version; 0: the key does not exist."""
    return VersionConflict(
        f"The key '{key}' is at version {current}, not {expected}."
        if current
        else f"The key '{key}' does not exist, so it is not at version {expected}.",
        key=key,
        current_version=current,
        expected_version=expected,
        **changes,
    )


def prune_due(version: int, keep: int) -> bool:
    """Tell whether to prune a key after a write: every few versions."""
    return version > keep and version % _PRUNE_EVERY == 0


def line_name(trunk: str, branch: str | None) -> str:
    """Return the id of a branch, or of the line itself."""
    return trunk if branch is None else f"{trunk}{BRANCH_MARK}{branch}"


def branch_of(line_id: str) -> str | None:
    return line_id.partition(BRANCH_MARK)[2] or None


def trunk_of(line_id: str) -> str:
    return line_id.partition(BRANCH_MARK)[0]


def no_line(line_id: str, *, denied: bool = False) -> LineNotFound:
    """Return the error for a line that the caller cannot see; ``denied`` if it exists."""
    shown = line_id[:100]
    error = LineNotFound(f"There is no context '{shown}'.", resource_type="context", resource_id=shown)
    error.denial = denied
    return error


def no_branch(branch: str) -> BranchNotFound:
    return BranchNotFound(f"There is no branch '{branch}'.", resource_type="branch", resource_id=branch)


def shared_commits(ours: Sequence[CommitRange], theirs: Sequence[CommitRange]) -> CommitRange | None:
    """Return the newest commits that two ancestries, newest first, have in common; None if there are none."""
    known = {commits.line_id: commits for commits in theirs}
    for commits in ours:
        other = known.get(commits.line_id)
        if other is not None:
            return CommitRange(commits.line_id, commits.after, min(commits.upto, other.upto))
    return None


def metadata_key(key: str) -> str:
    """Return the key that holds the metadata of an entry."""
    return key + _METADATA


def is_metadata(key: str) -> bool:
    return key.endswith(_METADATA)


def blob_hash(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()
