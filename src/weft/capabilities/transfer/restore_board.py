"""A board made again from its versions, many at a time: whoever waits for the transaction waits for few statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from msgspec import structs

from weft.capabilities.board.model import Entry
from weft.capabilities.history.model import SYSTEM, Author, Change, ChangeKind, ChangeMeta, Commit, Head, Tag
from weft.capabilities.sessions.model import line_of
from weft.kernel.clock import to_micros
from weft.kernel.identity import ANYONE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from weft.capabilities.board.store import EntryStore
    from weft.capabilities.history.model import Version
    from weft.capabilities.history.store import LineStore
    from weft.capabilities.transfer.bundle_format import BundleSnapshot
    from weft.capabilities.transfer.decode import BoardVersion

T = TypeVar("T")
# So many rows, or so many characters in them, are written at once.
_MOST_ROWS = 200
_MOST_CHARACTERS = 2**20
_NOT_HERE = "not in the bundle"


class RowBatch(Generic[T]):
    """Rows on their way into the database, written before they are too many to hold."""

    def __init__(self, write: Callable[[Sequence[T]], Awaitable[None]]) -> None:
        self._write = write
        self._rows: list[T] = []
        self._size = 0

    async def add(self, row: T, size: int = 0) -> None:
        self._rows.append(row)
        self._size += size
        if len(self._rows) >= _MOST_ROWS or self._size >= _MOST_CHARACTERS:
            await self.finish()

    async def finish(self) -> None:
        rows, self._rows, self._size = self._rows, [], 0
        if rows:
            await self._write(rows)


@dataclass(frozen=True, slots=True)
class _Why:
    """What a commit says of itself."""

    author: Author
    at: int
    reason: str
    step: str | None = None


class _Step(NamedTuple):
    """A commit with what the board weighs then, and the values that it brings."""

    commit: Commit
    weight: int
    values: dict[bytes, str]


class BoardRestore:
    """A board that is made again, commit by commit. Its versions come in the order they had."""

    def __init__(self, lines: LineStore, entries: EntryStore, session_id: str, *, history: bool) -> None:
        self._lines = lines
        self._entries = entries
        self._session_id = session_id
        self._history = history
        self._head = Head.of_new_line(line_of(session_id))
        self._seq = 0
        self._weight = 0
        self._standing: dict[str, Entry] = {}
        self._together: list[BoardVersion] = []
        self._steps = RowBatch[_Step](self._append)

    async def add(self, made: BoardVersion) -> None:
        """Add a change; those of one commit come together."""
        if self._together and self._together[0].version.seq != made.version.seq:
            await self._commit()
        if not self._together:
            await self._go_past(made.version.seq - 1, made.version.committed_at)
        self._together.append(made)

    async def name(self, snapshot: BundleSnapshot) -> None:
        await self._commit()
        tag = Tag(snapshot.label, snapshot.seq, snapshot.created_by, to_micros(snapshot.created_at), snapshot.automatic)
        await self._go_past(tag.seq, tag.created_at)
        await self._steps.finish()
        await self._lines.tag(self._head.line_id, tag)

    async def finish(self, lost: Mapping[str, tuple[int, int]], now: int, *, is_open: bool) -> None:
        """Put what stands where it is read, and have it end when its time is over. ``lost`` keys end now."""
        await self._commit()
        if lost:
            ends = tuple(
                _end(Change(key, *number, ChangeKind.WRITE, None, ChangeMeta())) for key, number in lost.items()
            )
            await self._step(_Why(SYSTEM, now, _NOT_HERE), ends)
        await self._steps.finish()
        await self._entries.put_all(self._session_id, list(self._standing.values()))
        expiries = [entry.expires_at for entry in self._standing.values() if entry.expires_at is not None]
        await self._lines.set_next_expiry(self._head.line_id, min(expiries, default=None) if is_open else None)

    async def _go_past(self, seq: int, at: int) -> None:
        """Leave room for commits that did not come along, so that every later one has the number it had."""
        while self._history and self._seq < seq:
            await self._step(_Why(SYSTEM, at, _NOT_HERE))

    async def _commit(self) -> None:
        together, self._together = self._together, []
        if not together:
            return
        first = together[0].version
        why = _Why(Author(first.author, first.principal_id), first.committed_at, first.reason, first.step)
        if all(made.is_silent for made in together):
            why = _Why(SYSTEM, first.committed_at, _NOT_HERE, first.step)
        for made in together:
            self._stand(made.version)
        changes = tuple(_end(made.version.change) if made.is_silent else made.version.change for made in together)
        await self._step(why, changes, _values(together))

    async def _step(self, why: _Why, changes: tuple[Change, ...] = (), values: dict[bytes, str] | None = None) -> None:
        for change in changes:
            if change.act is not ChangeKind.WRITE:
                self._fall(change.key)
        self._seq += 1
        commit = Commit(self._head.line_id, self._seq, why.author, why.at, why.reason, why.step, changes)
        brought = values or {}
        await self._steps.add(_Step(commit, self._weight, brought), sum(map(len, brought.values())))

    async def _append(self, steps: Sequence[_Step]) -> None:
        await self._lines.put_blobs({name: value for step in steps for name, value in step.values.items()})
        self._head = await self._lines.append_all(self._head, [(step.commit, step.weight) for step in steps])

    def _fall(self, key: str) -> None:
        before = self._standing.pop(key, None)
        self._weight -= before.tokens if before else 0

    def _stand(self, version: Version) -> None:
        change, meta = version.change, version.change.meta
        self._fall(change.key)
        if change.blob_hash is None:
            return
        self._weight += meta.tokens
        self._standing[change.key] = Entry(
            key=change.key,
            life=change.life,
            version=change.version,
            blob_hash=change.blob_hash,
            tokens=meta.tokens,
            written_by=version.author,
            written_at=version.committed_at,
            expires_at=meta.expires_at,
            readable_by=ANYONE if meta.readable_by is None else meta.readable_by,
            writable_by=ANYONE if meta.writable_by is None else meta.writable_by,
        )


def _values(together: Sequence[BoardVersion]) -> dict[bytes, str]:
    versions = [made.version for made in together]
    return {each.change.blob_hash: each.value for each in versions if each.change.blob_hash and each.value is not None}


def _end(change: Change) -> Change:
    """Return the end of a key that is known, but not what it said: nothing older may be taken for what stands."""
    readers = ChangeMeta(readable_by=change.meta.readable_by, left_behind=True)
    return structs.replace(change, act=ChangeKind.DELETE, blob_hash=None, meta=readers)
