"""What history needs of storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from weft.capabilities.history.model import (
        Commit,
        CommitRange,
        Damage,
        Head,
        Line,
        Point,
        StoredCommit,
        Tag,
        Version,
    )


class Limits(NamedTuple):
    """Which old values may go: replaced, or written, before a moment, or behind so many newer ones. None: no limit."""

    replaced_before: int | None
    versions: int | None
    written_before: int | None = None


class Rule(NamedTuple):
    """How long old values of a line stay: for so many days, or so many versions of each key. None sets no limit.

    A push that changes ``snapshot_from`` entries or more first gives the state before it a name; 0: no push does.
    None leaves that to what is said for all lines of the sort.
    """

    days: int | None
    versions: int | None
    snapshot_from: int | None = None


class PruneCursor(NamedTuple):
    """How far pruning got in a line."""

    key: str
    seq: int


class Pruned(NamedTuple):
    """What one step of pruning removed, and where the next one begins; None at the end of the line."""

    versions: int
    freed: int
    first_seq: int
    last_seq: int
    reached: PruneCursor | None


class Pin(NamedTuple):
    """A moment that is kept for as long as its holder needs it."""

    seq: int
    holder: str


class ChangeRef(NamedTuple):
    """Where one commit changed one key."""

    line_id: str
    key: str
    seq: int


class LineStore(Protocol):
    """Lines, their commits and tags, and the values they name.

    A branch is a line that goes on from a moment of another. Whatever is asked of it covers the past it shares.
    """

    async def create(self, line_id: str) -> None:
        """Start an empty line, unless there is one already."""
        ...

    async def branch(self, line_id: str, base: Point, *, weight: int, next_expiry_at: int | None) -> bool:
        """Start a line that goes on from a moment of another, sharing all before it; False if there is one already."""
        ...

    async def lock(self, line_id: str) -> Head | None:
        """Return the head, keeping other writers of this line waiting until the transaction ends."""
        ...

    async def find(self, line_id: str) -> Line | None: ...

    async def branches(self, trunk: str) -> Sequence[Line]:
        """Return the branches of a line, and the branches of those."""
        ...

    async def page(self, after: str, limit: int) -> Sequence[str]:
        """Return ids of lines behind another, in an order of the database's own."""
        ...

    async def children(self, line_id: str) -> Sequence[str]:
        """Return the lines that go on from this one."""
        ...

    async def put_blob(self, blob_hash: bytes, content: str, *, outside: str | None = None) -> None:
        """Keep a value under its hash; keeping it twice is keeping it once. ``outside`` is where it points to."""
        ...

    async def put_blobs(self, contents: Mapping[bytes, str]) -> None:
        """Keep many values under their hashes."""
        ...

    async def append(self, head: Head, commit: Commit, *, weight: int, next_expiry_at: int | None) -> Head:
        """Add a commit behind ``head`` and return the new head."""
        ...

    async def append_all(self, head: Head, commits: Sequence[tuple[Commit, int]]) -> Head:
        """Add many commits behind ``head``, each with what the line weighs then, and return the new head."""
        ...

    async def set_next_expiry(self, line_id: str, next_expiry_at: int | None) -> None:
        """Note when the next key of a line expires, where no commit does it."""
        ...

    async def last_life(self, line_id: str, key: str) -> int:
        """Return the number of the key's latest life, 0 if it never lived."""
        ...

    async def versions(self, line_id: str, key: str, life: int, limit: int) -> Sequence[Version]:
        """Return the changes of one life of a key, newest first."""
        ...

    async def versions_at(self, spots: Sequence[ChangeRef]) -> Mapping[ChangeRef, Version]:
        """Return what commits made of keys: many, of any lines, in few statements."""
        ...

    async def versions_of(self, moments: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], Sequence[Version]]:
        """Return everything that commits, named by line and number, changed: by key and without values."""
        ...

    async def numbered(self, line_id: str, key: str, life: int, version: int) -> Sequence[Version]:
        """Return the changes that bear a version's number: its writing, and its end if it is gone."""
        ...

    async def changes_behind(self, line_id: str, after: int, limit: int) -> Sequence[Version]:
        """Return what the next commits of a line itself changed, oldest first: whole commits, of about ``limit``."""
        ...

    async def past(self, line_id: str, at: int) -> Sequence[CommitRange]:
        """Return the stretches that lead up to commit ``at``, newest first: one, but for a branch."""
        ...

    async def latest(self, line_id: str, key: str, at: int) -> Version | None:
        """Return what commit ``at`` or the last before it made of a key, if it was live then."""
        ...

    async def state_at(
        self, line_id: str, seq: int, touched: Iterable[CommitRange] | None = None, *, values: bool = True
    ) -> Sequence[Version]:
        """Return every key that was live right after commit ``seq``, or those of them that some stretch changed.

        Without ``values`` only what they say is left out, which is quicker.
        """
        ...

    async def log(self, line_id: str, at: int, limit: int, key: str | None = None) -> Sequence[StoredCommit]:
        """Return commits from ``at`` backwards, newest first; those that changed one key if it is given."""
        ...

    async def commit_at(self, line_id: str, seq: int) -> StoredCommit | None: ...

    async def weight_at(self, line_id: str, seq: int) -> int | None:
        """Return what a line weighed after a commit; None if that was not noted."""
        ...

    async def commits_by_hash(self, line_id: str, prefix: str) -> Sequence[StoredCommit]:
        """Return the first two commits whose hash begins so, in hexadecimal."""
        ...

    async def merged_moments(self, line_id: str, after: int, upto: int) -> Sequence[tuple[str, int]]:
        """Return, for each line that commits of a stretch brought in, how far; a line that is gone is left out."""
        ...

    async def prune(self, line_id: str, key: str, keep: int) -> None:
        """Forget the values behind a key's newest ``keep``, unless something needs them; that they existed stays.

        Meant to be called every few versions: it looks at the next several only.
        """
        ...

    async def prune_some(self, line_id: str, begin: PruneCursor, limits: Limits) -> Pruned:
        """Forget what may go among the next several hundred changes, whatever their keys."""
        ...

    async def pin(self, line_id: str, seq: int, holder: str) -> None:
        """Keep what stood at a moment from being pruned for as long as the holder needs it."""
        ...

    async def unpin(self, holder: str) -> None: ...

    async def pinned(self, line_id: str) -> Sequence[Pin]:
        """Return which moments of a line are kept, and for whom."""
        ...

    async def tag(self, line_id: str, tag: Tag) -> bool:
        """Name a moment; False if the label is taken."""
        ...

    async def forget_moments(self, line_id: str, limits: Limits) -> None:
        """Forget names that came by themselves: given too long ago, or behind so many newer ones."""
        ...

    async def untag(self, line_id: str, label: str) -> bool:
        """Forget a name; False if there is none."""
        ...

    async def tags(self, line_id: str) -> Sequence[Tag]:
        """Return all tags of a line, oldest first."""
        ...

    async def find_tag(self, line_id: str, label: str) -> Tag | None:
        """Return the tag with this label."""
        ...

    async def verify(self, line_id: str) -> Damage | None:
        """Recompute every hash; return what does not match, or None. A branch answers for its own commits."""
        ...

    async def pointers(self, line_id: str, after: bytes, limit: int) -> Sequence[tuple[bytes, str]]:
        """Return what stands for those values of a line that are kept outside, by hash, behind another."""
        ...

    async def sweep(self) -> None:
        """Drop values that were in someone else's hands when they were last forgotten."""
        ...

    async def erase(self, line_id: str, sparing: Collection[bytes] = ()) -> None:
        """Remove a line with everything only it refers to, but for values that a commit is about to refer to.

        What was decided about a branch goes with its line.
        """
        ...


class RetentionStore(Protocol):
    """The rules a tenant has set for how long old values stay."""

    async def rules(self) -> Mapping[str, Rule]:
        """Return the rules by what they are for: a sort of line, or one line, whose own rule goes first."""
        ...


class Switch(NamedTuple):
    """The branch that someone works on. ``gone``: it was deleted since, even if another has its name by now."""

    branch: str
    gone: bool = False


class SwitchStore(Protocol):
    """Who works on which branch of what. To whoever is not in it, a line means the line itself.

    A switch outlives its branch: whoever made it must be told, not find themselves on the line itself.
    """

    async def of(self, trunk: str, principal_id: str) -> Switch | None:
        """Return what a principal has switched to, whether or not it is still there."""
        ...

    async def switch(self, trunk: str, principal_id: str, branch: str | None) -> None:
        """Have a principal work on a branch from now on; None: on the line itself."""
        ...
