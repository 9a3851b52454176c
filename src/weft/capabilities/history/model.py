"""A line: the history of one mutable thing, as commits that each name the one before.

A commit's hash covers its parent's hash and every change it makes; a change names its value by SHA-256. So the head
pins the whole past: no value, author or time can be altered without every later hash failing to match.
State is never copied into a commit. What stood at any moment is the latest change of each key up to it, which an
index finds directly, so a write costs the same however long or wide the line has become.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from weft.kernel.errors import Conflict, NotFound, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

EMPTY = bytes(32)
# Between a line and the name of its branch; names hold no such sign, so only branches have it.
BRANCH_MARK = "@"
# What the line itself is called among its branches.
MAIN = "main"
# Behind every commit there can be.
LATEST = 2**62
_PRUNE_EVERY = 8
_encode = msgspec.json.Encoder().encode


class VersionConflict(Conflict):
    """The entry has changed since the version you named."""

    code = "VERSION_CONFLICT"
    hint = "Read the key again, merge your change into what it says now, and write with if_version = current_version."
    related = ("shared_context", "get_memory")


class LineNotFound(NotFound):
    """There is no such line for you."""

    code = "LINE_NOT_FOUND"
    hint = "A line is named board:SESSION, context:AGENT, context:AGENT:MEMORY_TYPE or agent:AGENT; @BRANCH follows."
    related = ("context_history",)


class VersionNotFound(NotFound):
    """The line has no such version."""

    code = "VERSION_NOT_FOUND"
    hint = "Name a version by its number, by at least 6 digits of its hash or by a snapshot's label; see the log."
    related = ("context_history",)


class VersionPruned(Conflict):
    """Retention has removed what this version said."""

    code = "VERSION_PRUNED"
    hint = (
        "Choose a later version or a snapshot: what those say is kept. The log still tells who changed what and when."
    )
    related = ("context_history",)


class SnapshotNotFound(NotFound):
    """No snapshot of this line has this label."""

    code = "SNAPSHOT_NOT_FOUND"
    hint = "See the labels there are with list_snapshots of shared_context, or snapshots of context_history."
    related = ("shared_context", "context_history")


class SnapshotExists(Conflict):
    """A snapshot with this label exists already."""

    code = "SNAPSHOT_EXISTS"
    hint = "Snapshots never change; choose another label, such as one with a date or a number."
    related = ("shared_context", "context_history")


class ValueDamaged(Unavailable):
    """A value that is kept is not what was written."""

    code = "VALUE_DAMAGED"
    hint = "Read another version, or write the value anew. Whoever runs Weft can verify the line and restore a backup."
    http_status = 500
    severity = "critical"
    recoverable = False
    related = ("context_history",)


class BranchNotFound(NotFound):
    """The line has no branch of this name (any more)."""

    code = "BRANCH_NOT_FOUND"
    hint = "See the branches there are with the action branches. To go on without one, name main or switch to it."
    related = ("context_history",)


class BranchLimit(Conflict):
    """The line has as many branches as it may have."""

    code = "BRANCH_LIMIT"
    hint = "Merge what is finished, and delete branches that are no longer needed with the action delete_branch."
    related = ("context_history",)


class ChangeKind(StrEnum):
    """What a change did to its key."""

    WRITE = "write"
    DELETE = "delete"
    EXPIRE = "expire"


class ChangeMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What belongs to a version beside its value; what is left out is not written down and changes no hash."""

    tokens: int = 0
    expires_at: int | None = None
    readable_by: tuple[str, ...] | None = None
    writable_by: tuple[str, ...] | None = None
    size: int = 0
    metadata_hash: str | None = None
    # The value is kept outside the database, and what the blob holds is where.
    outside: bool = False
    media_type: str | None = None
    # The value did not come along with an import: here the key ends, and a record says what is known of the version.
    left_behind: bool = False


class Change(msgspec.Struct, frozen=True):
    """One key's new state. ``life`` tells apart a key and its namesake created after a deletion."""

    key: str
    life: int
    version: int
    act: ChangeKind
    blob_hash: bytes | None
    meta: ChangeMeta


class Author(msgspec.Struct, frozen=True):
    """Who made a commit: the name others see, and the principal behind it."""

    participant: str
    principal_id: str


SYSTEM = Author("system", "system")


class Head(msgspec.Struct, frozen=True):
    """Where a line stands. ``weight`` is what its live keys add up to, ``step`` the workflow step last named."""

    line_id: str
    seq: int
    hash: bytes
    weight: int
    next_expiry_at: int | None
    step: str | None = None

    @classmethod
    def of_new_line(cls, line_id: str) -> Head:
        return cls(line_id, 0, EMPTY, 0, None)


class Point(msgspec.Struct, frozen=True):
    """One moment of a line: right after commit ``seq``."""

    line_id: str
    seq: int
    hash: bytes


class Commit(msgspec.Struct, frozen=True):
    """One step of a line. ``merged`` is the other line's moment that a merge brought in."""

    line_id: str
    seq: int
    author: Author
    committed_at: int
    reason: str
    step: str | None
    changes: tuple[Change, ...]
    merged: Point | None = None

    def hash_after(self, *parents: bytes, weight: int | None = None) -> bytes:
        """Return the commit's identity, given the hashes of the commits it follows and what the line weighs then."""
        return hashlib.sha256(self.content_after(*parents, weight=weight)).digest()

    def content_after(self, *parents: bytes, weight: int | None = None) -> bytes:
        """Return what the hash covers.

        It says what was done and after what, not on which line: a line is only a name for a commit and its past.
        Changes count in the order of their keys, as storage does not keep the order in which they were made.
        """
        content: tuple[object, ...] = (
            [parent.hex() for parent in parents],
            self.author.participant,
            self.author.principal_id,
            self.committed_at,
            self.reason,
            self.step,
            [
                (c.key, c.life, c.version, c.act, c.blob_hash.hex() if c.blob_hash else None, c.meta)
                for c in sorted(self.changes, key=lambda change: change.key)
            ],
        )
        if self.merged is not None:
            content += (self.merged.line_id, self.merged.seq)
        if weight is not None:
            content += (weight,)
        return _encode(content)


class StoredCommit(msgspec.Struct, frozen=True):
    """A commit as the log shows it. On a branch it may belong to the line that the branch came from."""

    commit: Commit
    hash: bytes


class Version(msgspec.Struct, frozen=True):
    """A change as history shows it: with its commit, and its value unless that was pruned."""

    change: Change
    seq: int
    author: str
    committed_at: int
    value: str | None
    reason: str = ""
    step: str | None = None
    principal_id: str = ""


class Tag(msgspec.Struct, frozen=True):
    """A named moment of a line; ``automatic`` if nobody asked for it."""

    label: str
    seq: int
    created_by: str
    created_at: int
    automatic: bool = False

    def seal(self, commit_hash: bytes) -> bytes:
        """Return what tells whether the tag is still the one that was set."""
        content = (self.label, self.seq, self.created_by, self.created_at, self.automatic, commit_hash.hex())
        return hashlib.sha256(_encode(content)).digest()


class Damage(msgspec.Struct, frozen=True):
    """What of a line is not as it was written. ``kind`` says it without any name that not all may know."""

    told: str
    kind: str


class Line(msgspec.Struct, frozen=True):
    """A line as it is listed. A branch goes on from ``base``, a moment of another line."""

    head: Head
    trunk: str | None = None
    base_line: str | None = None
    base_seq: int = 0

    @property
    def branch(self) -> str | None:
        return branch_of(self.head.line_id)


class CommitRange(msgspec.Struct, frozen=True):
    """Commits of one line, behind ``after`` up to and with ``upto``. A branch's past is several of these."""

    line_id: str
    after: int
    upto: int


def check_version(key: str, current: int, expected: int | None) -> None:
    """Refuse a change meant for another version than the key is at; 0 stands for a key that does not exist."""
    if expected is None or expected == current:
        return
    raise VersionConflict(
        f"The key '{key}' is at version {current}, not {expected}."
        if current
        else f"The key '{key}' does not exist (any more), so it is not at version {expected}.",
        key=key,
        current_version=current,
        expected_version=expected,
    )


def prune_due(life: int, version: int, keep: int) -> bool:
    """Tell whether a key just written may have values to forget: every few versions, and when it lives again."""
    return (version > keep and version % _PRUNE_EVERY == 0) or (version == 1 and life > 1)


def line_name(trunk: str, branch: str | None) -> str:
    """Return the id of a line's branch, or of the line itself."""
    return trunk if branch is None else f"{trunk}{BRANCH_MARK}{branch}"


def branch_of(line_id: str) -> str | None:
    return line_id.partition(BRANCH_MARK)[2] or None


def trunk_of(line_id: str) -> str:
    return line_id.partition(BRANCH_MARK)[0]


def no_line(line_id: str, *, denied: bool = False) -> LineNotFound:
    """Return the error for a line that is not there for the caller; ``denied`` if it is there for others."""
    shown = line_id[:100]
    error = LineNotFound(f"There is no line '{shown}'.", resource_type="line", resource_id=shown)
    error.denial = denied
    return error


def no_branch(branch: str) -> BranchNotFound:
    return BranchNotFound(f"There is no branch '{branch}' (any more).", resource_type="branch", resource_id=branch)


def meeting_point(ours: Sequence[CommitRange], theirs: Sequence[CommitRange]) -> CommitRange | None:
    """Return the last stretch that two pasts, newest first, have in common; None if they share nothing."""
    known = {stretch.line_id: stretch for stretch in theirs}
    for stretch in ours:
        other = known.get(stretch.line_id)
        if other is not None:
            return CommitRange(stretch.line_id, stretch.after, min(stretch.upto, other.upto))
    return None


def blob_hash(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()
