"""The port to lines, the types of the stores of history, and the port to the pruning job."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from weftline.history.line_kinds import EditProof
    from weftline.history.model import (
        Change,
        ChangeMeta,
        Commit,
        CommitRange,
        Damage,
        Head,
        KeyNumber,
        Line,
        Point,
        StoredCommit,
        Tag,
        Version,
    )
    from weftline.kernel.identity import Actor

# Prefix of the pin holders of sessions.
SESSION_HOLDER = "session:"


class Limits(NamedTuple):
    """Which values pruning may remove: replaced before a time, older than N versions, written before a time."""

    replaced_before: int | None
    versions: int | None
    written_before: int | None = None


class Rule(NamedTuple):
    """Retention rule: keep old values for ``days``, or ``versions`` of each key. None sets no limit.

    A push that changes ``snapshot_from`` entries or more is preceded by an automatic snapshot; 0: never; None: as the
    rule of the subject.
    """

    days: int | None
    versions: int | None
    snapshot_from: int | None = None


class PruneCursor(NamedTuple):
    """Position of pruning within a line."""

    key: str
    seq: int


class Pruned(NamedTuple):
    """What one pruning batch removed, and the position to continue at; None at the end of the line."""

    versions: int
    freed: int
    first_seq: int
    last_seq: int
    reached: PruneCursor | None


class Pin(NamedTuple):
    """A version protected from pruning, and its holder."""

    seq: int
    holder: str


class ChangeRef(NamedTuple):
    """The change of one key by one commit."""

    line_id: str
    key: str
    seq: int


class OriginalVersion(NamedTuple):
    """A version of a key as it was written, whatever its readers are shown since a redaction."""

    line_id: str
    key: str
    seq: int
    incarnation: int
    version: int
    shown_hash: bytes
    hash: bytes
    value: str
    meta: ChangeMeta


class LineStore(Protocol):
    """Lines with their commits, tags and values.

    A branch is a line that starts from a version of another. Queries on it include the shared ancestry.
    """

    async def create(self, line_id: str) -> None:
        """Create an empty line, if it does not exist."""
        ...

    async def branch(self, line_id: str, base: Point, *, weight: int, next_expiry_at: int | None) -> bool:
        """Create a line that starts from a point of another; False if it exists already. Copies nothing."""
        ...

    async def lock(self, line_id: str) -> Head | None:
        """Return the head, and block other writers of this line until the transaction ends."""
        ...

    async def find(self, line_id: str) -> Line | None: ...

    async def heads(self, line_ids: Sequence[str]) -> Mapping[str, Head]:
        """Return the heads of those lines that exist, by line."""
        ...

    async def branches(self, trunk: str) -> Sequence[Line]:
        """Return the branches of a line, including branches of branches."""
        ...

    async def page(self, after: str, limit: int) -> Sequence[str]:
        """Return the next line ids, in the database's order."""
        ...

    async def roots(
        self, prefixes: Sequence[str], after: str, limit: int, *, nested: Sequence[str] = ()
    ) -> Sequence[str]:
        """Return the next lines PREFIX:NAME of these kinds, without branches: by kind, then in the database's order.

        Of ``nested`` kinds also lines with several names, such as PREFIX:NAME:NAME.
        """
        ...

    async def children(self, line_id: str) -> Sequence[str]:
        """Return the lines that start from this one."""
        ...

    async def put_blob(self, blob_hash: bytes, content: str, *, outside: str | None = None) -> None:
        """Store a value under its hash; idempotent. ``outside`` is the object that a pointer refers to."""
        ...

    async def put_blobs(self, contents: Mapping[bytes, str]) -> None: ...

    async def append(
        self,
        head: Head,
        commit: Commit,
        *,
        weight: int,
        next_expiry_at: int | None,
        proof: EditProof | None = None,
    ) -> Head:
        """Append a commit after ``head`` and return the new head.

        A line that binds agents needs ``proof``: the edit is checked again, against what is stored, and signed.
        """
        ...

    async def is_signed(self, line_id: str, seq: int, commit_hash: bytes, state: Sequence[Change]) -> bool:
        """Tell whether a version of a line that binds agents is signed with this hash and this state."""
        ...

    async def append_all(self, head: Head, commits: Sequence[tuple[Commit, int]]) -> Head:
        """Append commits, each with the line's weight after it, and return the new head."""
        ...

    async def set_next_expiry(self, line_id: str, next_expiry_at: int | None) -> None:
        """Set when the next key of a line expires, without a commit."""
        ...

    async def last_number(self, line_id: str, key: str) -> KeyNumber:
        """Return the numbers that a key counts on from: of its last change, or of an erased line of the same name."""
        ...

    async def before_first(self, line_id: str) -> KeyNumber:
        """Return the numbers that a new key counts on from: not zero if an erased line had the same name."""
        ...

    async def versions(self, line_id: str, key: str, incarnation: int, limit: int) -> Sequence[Version]:
        """Return the changes of one incarnation of a key, newest first."""
        ...

    async def versions_at(self, refs: Sequence[ChangeRef]) -> Mapping[ChangeRef, Version]:
        """Return many changes, of any lines, in few statements."""
        ...

    async def versions_of(self, commits: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], Sequence[Version]]:
        """Return all changes of commits, given as line and number: by key, without values."""
        ...

    async def changes_of_version(self, line_id: str, key: str, incarnation: int, version: int) -> Sequence[Version]:
        """Return the changes with a version's number: its write and, if it was deleted, the deletion."""
        ...

    async def changes_after(self, line_id: str, after: int, limit: int) -> Sequence[Version]:
        """Return the next changes of a line itself, oldest first: whole commits, about ``limit`` changes."""
        ...

    async def past(self, line_id: str, at: int) -> Sequence[CommitRange]:
        """Return the ancestry of commit ``at``, newest first: one range, several for a branch."""
        ...

    async def latest(self, line_id: str, key: str, at: int) -> Version | None:
        """Return a key as of commit ``at``; None if it did not exist then."""
        ...

    async def latest_in_lines(self, line_ids: Sequence[str], key: str) -> Mapping[str, Version]:
        """Return a key as it is now in each line that has it, by line; of lines that are no branches."""
        ...

    async def latest_of_each(self, line_id: str, keys: Sequence[str], at: int) -> Sequence[Version]:
        """Return keys as of commit ``at``, without values and without those that did not exist then."""
        ...

    async def last_changes(self, line_id: str, keys: Sequence[str], at: int) -> Sequence[Version]:
        """Return the last change of each key up to commit ``at``, deletions too, without values."""
        ...

    async def state_at(
        self, line_id: str, seq: int, touched: Iterable[CommitRange] | None = None, *, values: bool = True
    ) -> Sequence[Version]:
        """Return every key that existed right after commit ``seq``, or those that the ``touched`` commits changed.

        Faster without ``values``.
        """
        ...

    async def log(self, line_id: str, at: int, limit: int, key: str | None = None) -> Sequence[StoredCommit]:
        """Return commits from ``at`` backwards, newest first; only those that changed ``key`` if given."""
        ...

    async def commit_at(self, line_id: str, seq: int) -> StoredCommit | None: ...

    async def is_salted(self, line_id: str, seq: int) -> bool:
        """Tell whether nothing can be guessed from the hash of a version."""
        ...

    async def weight_at(self, line_id: str, seq: int) -> int | None:
        """Return the line's weight after a commit; None if it was not stored."""
        ...

    async def commits_by_hash(self, line_id: str, prefix: str) -> Sequence[StoredCommit]:
        """Return the first two commits whose hash starts with these hexadecimal digits.

        On a line with ACLs, commits without salt are not found: a match would confirm a guess of a hidden value.
        """
        ...

    async def merged_points(self, line_id: str, after: int, upto: int) -> Sequence[tuple[str, int]]:
        """Return, for each line merged by these commits, up to which version; deleted lines are left out."""
        ...

    async def originals(self, line_id: str, key: str) -> Sequence[OriginalVersion]:
        """Return the versions of a key on the line and all its branches, as they were written."""
        ...

    async def copied_keys(self, lines: str, key: str, mark: str) -> Sequence[tuple[str, str]]:
        """Return the keys that are this one, or end with it after a mark, on all lines that begin with ``lines``."""
        ...

    async def seals(self, trunks: Sequence[str]) -> bytes:
        """Return a digest of what redactions show on these lines and all their branches: each one changes it."""
        ...

    async def seal(self, version: OriginalVersion, shown: str, meta: ChangeMeta) -> None:
        """Show every reader another value instead, and no reason; the hash of the commit stays what it is."""
        ...

    async def unseal(self, version: OriginalVersion) -> None:
        """Show again what was written."""
        ...

    async def prune(self, line_id: str, key: str, keep: int) -> None:
        """Remove a key's values beyond the newest ``keep``, unless pinned; the versions themselves stay.

        Call it every few versions: it handles only the next several.
        """
        ...

    async def prune_batch(self, line_id: str, begin: PruneCursor, limits: Limits) -> Pruned:
        """Remove values beyond the limits among the next several hundred changes."""
        ...

    async def pin(self, line_id: str, seq: int, holder: str) -> None:
        """Protect the state at a version from pruning until its holder unpins it."""
        ...

    async def unpin(self, holder: str) -> None: ...

    async def pinned(self, line_id: str) -> Sequence[Pin]: ...

    async def tag(self, line_id: str, tag: Tag) -> bool:
        """Add a tag; False if the label is taken."""
        ...

    async def delete_automatic_tags(self, line_id: str, limits: Limits) -> None:
        """Delete automatic tags beyond the limits."""
        ...

    async def untag(self, line_id: str, label: str) -> bool:
        """Delete a tag; False if there is none."""
        ...

    async def tags(self, line_id: str) -> Sequence[Tag]:
        """Return all tags of a line, oldest first."""
        ...

    async def find_tag(self, line_id: str, label: str) -> Tag | None: ...

    async def verify(self, line_id: str) -> Damage | None:
        """Recompute every hash; return the first mismatch. Of a branch, only its own commits are checked."""
        ...

    async def pointers(self, line_id: str, after: bytes, limit: int) -> Sequence[tuple[bytes, str]]:
        """Return the next pointers to values in object storage, by blob hash."""
        ...

    async def sweep(self) -> None:
        """Delete unreferenced values that a concurrent transaction still used when they were released."""
        ...

    async def erase(self, line_id: str, sparing: Collection[bytes] = ()) -> None:
        """Delete a line, its reviews and every value only it refers to, except values a commit is about to use."""
        ...


class Checkout(NamedTuple):
    """The branch that a principal works on. ``gone``: it was deleted, even if a new one has its name."""

    branch: str
    gone: bool = False


class IndexedSnapshot(NamedTuple):
    """A snapshot in the index of all lines."""

    line_id: str
    label: str
    seq: int
    created_by: str
    created_at: int
    automatic: bool


class SnapshotPosition(NamedTuple):
    """Cursor of the snapshot index."""

    created_at: int
    line_id: str
    label: str


class PruningRun(NamedTuple):
    """Result of a pruning run. ``started`` is False while another process runs it."""

    started: bool
    finished: bool
    versions: int
    bytes: int


class Pruner(Protocol):
    """The pruning job, run on demand."""

    async def prune(self, actor: Actor, line_id: str | None) -> PruningRun:
        """Prune one line, or all lines of the tenant, within the time a caller should wait."""
        ...
