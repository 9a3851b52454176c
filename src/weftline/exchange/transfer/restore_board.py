"""Plans the restore of a board from its versions: batches of commits, tags, and the entries that result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from msgspec import structs

from weftline.exchange.transfer.decode import lacks_value
from weftline.history.model import (
    SYSTEM,
    Author,
    Change,
    ChangeKind,
    ChangeMeta,
    Commit,
    Tag,
    new_salt,
)
from weftline.history.snapshot_quota import snapshot_owner
from weftline.kernel.clock import to_micros
from weftline.kernel.identity import ANYONE
from weftline.state.board.model import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from weftline.exchange.transfer.bundle_format import BundleSnapshot
    from weftline.history.model import Version
    from weftline.kernel.identity import Actor

T = TypeVar("T")
# Limits of one batch.
_MAX_ROWS = 200
_MAX_CHARACTERS = 2**20
_NOT_IN_BUNDLE = "not in the bundle"


class RowBatch(Generic[T]):
    """Collects rows and passes them on in batches."""

    def __init__(self, write: Callable[[Sequence[T]], None]) -> None:
        self._write = write
        self._rows: list[T] = []
        self._size = 0

    def add(self, row: T, size: int = 0) -> None:
        self._rows.append(row)
        self._size += size
        if len(self._rows) >= _MAX_ROWS or self._size >= _MAX_CHARACTERS:
            self.finish()

    def finish(self) -> None:
        rows, self._rows, self._size = self._rows, [], 0
        if rows:
            self._write(rows)


class PendingCommit(NamedTuple):
    """A commit with the total tokens of the board after it, and its new values."""

    commit: Commit
    tokens: int
    values: dict[bytes, str]


class NewCommits(NamedTuple):
    """Commits to append."""

    commits: Sequence[PendingCommit]


class NewTag(NamedTuple):
    """A tag of the commits before it."""

    tag: Tag


class NewEntries(NamedTuple):
    """Current entries of the board."""

    entries: Sequence[Entry]


class NextExpiry(NamedTuple):
    """When the first entry expires."""

    at: int | None


BoardStep = NewCommits | NewTag | NewEntries | NextExpiry


@dataclass(frozen=True, slots=True)
class _CommitInfo:
    """Author, time, reason and step of a commit."""

    author: Author
    at: int
    reason: str
    step: str | None = None
    salt: bytes | None = None


class BoardPlan:
    """Plans the restore of a board commit by commit, from versions in their original order."""

    def __init__(self, emit: Callable[[BoardStep], None], line_id: str, actor: Actor, *, history: bool) -> None:
        self._emit = emit
        self._actor = actor
        self._history = history
        self._line_id = line_id
        self._seq = 0
        self._tokens = 0
        self._current: dict[str, Entry] = {}
        self._versions: list[Version] = []
        self._pending = RowBatch[PendingCommit](lambda commits: emit(NewCommits(commits)))

    def add(self, version: Version) -> None:
        """Add a version; consecutive versions with one seq form one commit."""
        if self._versions and self._versions[0].seq != version.seq:
            self._commit()
        if not self._versions:
            self._fill_up_to(version.seq - 1, version.committed_at)
        self._versions.append(version)

    def add_snapshot(self, snapshot: BundleSnapshot) -> None:
        self._commit()
        # A named snapshot counts for the caller: its author may be unknown here.
        owner = None if snapshot.automatic else snapshot_owner(self._line_id, self._actor)
        created_at = to_micros(snapshot.created_at)
        tag = Tag(snapshot.label, snapshot.seq, snapshot.created_by, created_at, snapshot.automatic, owner)
        self._fill_up_to(tag.seq, tag.created_at)
        self._pending.finish()
        self._emit(NewTag(tag))

    def finish(self, lost: Mapping[str, tuple[int, int]], now: int, *, is_open: bool) -> None:
        """Plan the current entries and the next expiry. ``lost`` keys are deleted now."""
        self._commit()
        if lost:
            tombstones = tuple(
                _tombstone(Change(key, *number, ChangeKind.WRITE, None, ChangeMeta())) for key, number in lost.items()
            )
            self._add_commit(_CommitInfo(SYSTEM, now, _NOT_IN_BUNDLE), tombstones)
        self._pending.finish()
        entries = RowBatch[Entry](lambda some: self._emit(NewEntries(some)))
        for entry in self._current.values():
            entries.add(entry)
        entries.finish()
        expiries = [entry.expires_at for entry in self._current.values() if entry.expires_at is not None]
        self._emit(NextExpiry(min(expiries, default=None) if is_open else None))

    def _fill_up_to(self, seq: int, at: int) -> None:
        """Fill missing commits with empty ones, so that later commits keep their numbers."""
        while self._history and self._seq < seq:
            self._add_commit(_CommitInfo(SYSTEM, at, _NOT_IN_BUNDLE))

    def _commit(self) -> None:
        versions, self._versions = self._versions, []
        if not versions:
            return
        first = versions[0]
        author = Author(first.author, first.principal_id)
        info = _CommitInfo(author, first.committed_at, first.reason, first.step, versions[-1].salt)
        if all(map(lacks_value, versions)):
            info = _CommitInfo(SYSTEM, first.committed_at, _NOT_IN_BUNDLE, first.step)
        for version in versions:
            self._set_current(version)
        changes = tuple(_tombstone(each.change) if lacks_value(each) else each.change for each in versions)
        self._add_commit(info, changes, _values(versions))

    def _add_commit(
        self, info: _CommitInfo, changes: tuple[Change, ...] = (), values: dict[bytes, str] | None = None
    ) -> None:
        for change in changes:
            if change.act is not ChangeKind.WRITE:
                self._remove(change.key)
        self._seq += 1
        salt = info.salt or new_salt()
        commit = Commit(self._line_id, self._seq, info.author, info.at, info.reason, info.step, changes, salt=salt)
        brought = values or {}
        self._pending.add(PendingCommit(commit, self._tokens, brought), sum(map(len, brought.values())))

    def _remove(self, key: str) -> None:
        before = self._current.pop(key, None)
        self._tokens -= before.tokens if before else 0

    def _set_current(self, version: Version) -> None:
        change, meta = version.change, version.change.meta
        self._remove(change.key)
        if change.blob_hash is None:
            return
        self._tokens += meta.tokens
        self._current[change.key] = Entry(
            key=change.key,
            incarnation=change.incarnation,
            version=change.version,
            blob_hash=change.blob_hash,
            tokens=meta.tokens,
            written_by=version.author,
            written_at=version.committed_at,
            expires_at=meta.expires_at,
            readable_by=ANYONE if meta.readable_by is None else meta.readable_by,
            writable_by=ANYONE if meta.writable_by is None else meta.writable_by,
            trust=meta.trust,
            media_type=meta.media_type,
        )


def _values(versions: Sequence[Version]) -> dict[bytes, str]:
    return {each.change.blob_hash: each.value for each in versions if each.change.blob_hash and each.value is not None}


def _tombstone(change: Change) -> Change:
    """Return a deletion in place of a version without value: no older version may become the current one."""
    readers = ChangeMeta(readable_by=change.meta.readable_by, not_imported=True)
    return structs.replace(change, act=ChangeKind.DELETE, blob_hash=None, meta=readers)
