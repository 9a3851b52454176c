"""Read access to a board, or to a branch of it, for one caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import structs

from weftline.history.key_acls import AclHistory, KeyVersion, later_acls, later_acls_of_base
from weftline.history.line_kinds import line_of
from weftline.history.model import LATEST, VersionPruned, line_name
from weftline.history.revisions import snapshots_of
from weftline.kernel.errors import MAX_COMPARED, InvalidInput, close_names
from weftline.kernel.identity import ANYONE
from weftline.kernel.patterns import intersect_acls
from weftline.state.board.model import Entry, EntryWithValue, KeyNotFound, check_key, check_value_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.history.lines import LineStore
    from weftline.history.model import Tag, Version
    from weftline.kernel.identity import Actor
    from weftline.kernel.patterns import Patterns
    from weftline.sessions.model import Session
    from weftline.state.board.service import Boards
    from weftline.state.board.sql import EntryStore


async def restrict(
    lines: LineStore, versions: Sequence[Version], source_id: str, target_id: str, current: Mapping[str, Entry]
) -> list[Version]:
    """Return versions of ``source_id``, to be restored on or merged into ``target_id``, with their ACLs narrowed.

    Each ACL is intersected with every later one on both lines and with that of the current entry on the target.
    """
    gone = [version.change.key for version in versions if version.change.key not in current]
    tombstones = {last.change.key: _acl_of(last) for last in await lines.last_changes(target_id, gone, LATEST)}
    source_acls = await later_acls(lines, source_id, versions)
    target_acls = source_acls if source_id == target_id else await later_acls(lines, target_id, versions)
    restricted: list[Version] = []
    for version, on_source, on_target in zip(versions, source_acls, target_acls, strict=True):
        entry = current.get(version.change.key)
        # Of a deleted key, the ACL that it had; a new key is open.
        target_acl = tombstones.get(version.change.key, ANYONE) if entry is None else entry.readers
        # A new value that resolves a merge (seq 0) is a write: the ACLs of earlier versions do not restrict it.
        later = (*on_source, *on_target) if version.seq else ()
        restricted.append(_with_acl(version, intersect_acls(_acl_of(version), *later, target_acl)))
    return restricted


def _with_acl(version: Version, patterns: Patterns) -> Version:
    meta = structs.replace(version.change.meta, readable_by=unless_open(patterns))
    return structs.replace(version, change=structs.replace(version.change, meta=meta))


def unless_open(patterns: Patterns) -> Patterns | None:
    """Return an ACL as history stores it: None for everyone."""
    return None if patterns == ANYONE else patterns


@dataclass(frozen=True, slots=True)
class VersionAcl:
    """Read access of one caller to versions of any board; each line's ACLs are loaded once."""

    actor: Actor
    lines: LineStore
    _acls: dict[str, AclHistory] = field(default_factory=dict)

    async def readable(self, line_id: str, versions: Sequence[Version]) -> list[tuple[Version, Patterns]]:
        """Return the versions that the caller may read, each with its effective ACL."""
        acls = await self._acls_of(line_id)
        later = await acls.of([KeyVersion.of(version) for version in versions])
        return [
            (version, intersect_acls(*acls_of_version))
            for version, acls_of_key in zip(versions, later, strict=True)
            if self._matches(acls_of_version := (_acl_of(version), *acls_of_key))
        ]

    async def may_know(self, line_id: str, versions: Sequence[KeyVersion]) -> list[bool]:
        """Tell for each version whether the later ACLs of its key admit the caller."""
        acls = await self._acls_of(line_id)
        return [self._matches(later) for later in await acls.of(versions)]

    async def _acls_of(self, line_id: str) -> AclHistory:
        if line_id not in self._acls:
            self._acls[line_id] = AclHistory(self.lines, await self.lines.past(line_id, LATEST))
        return self._acls[line_id]

    def _matches(self, acls: Sequence[Patterns]) -> bool:
        return all(patterns == ANYONE or self.actor.matches(patterns) for patterns in acls)


def _acl_of(version: Version) -> Patterns:
    patterns = version.change.meta.readable_by
    return ANYONE if patterns is None else patterns


# Entries of a branch, read from its history; only the main board has a materialised table.


class BranchEntries:
    """EntryStore of one branch. Writes are no-ops: the commit itself is the write."""

    def __init__(self, lines: LineStore, line_id: str) -> None:
        self._lines = lines
        self._line_id = line_id

    async def get(self, session_id: str, key: str) -> Entry | None:
        found = await self.read(session_id, [key])
        return found[0].entry if found else None

    async def read(self, session_id: str, keys: Sequence[str]) -> Sequence[EntryWithValue]:
        del session_id
        found = [await self._lines.latest(self._line_id, key, LATEST) for key in keys]
        return await self._entries([version for version in found if version is not None])

    async def list(self, session_id: str) -> Sequence[Entry]:
        del session_id
        return [found.entry for found in await self._current(values=False)]

    async def keys_after(self, session_id: str, key: str, limit: int) -> Sequence[str]:
        return [entry.key for entry in await self.list(session_id) if entry.key > key][:limit]

    async def read_all(self, session_id: str) -> Sequence[EntryWithValue]:
        del session_id
        return await self._current(values=True)

    async def put(self, session_id: str, entry: Entry) -> None:
        pass

    async def put_all(self, session_id: str, entries: Sequence[Entry]) -> None:
        pass

    async def remove(self, session_id: str, key: str) -> None:
        pass

    async def remove_all(self, session_id: str, keys: Sequence[str]) -> None:
        pass

    async def count(self, session_id: str) -> int:
        return len(await self.list(session_id))

    async def next_expiry(self, session_id: str) -> int | None:
        expiries = [entry.expires_at for entry in await self.list(session_id) if entry.expires_at is not None]
        return min(expiries, default=None)

    async def add_reads(self, session_id: str, key: str, reads: int, last_read_at: int) -> None:
        pass

    async def _current(self, *, values: bool) -> Sequence[EntryWithValue]:
        versions = await self._lines.state_at(self._line_id, LATEST, values=values)
        return await self._entries(sorted(versions, key=lambda version: version.change.key))

    async def _entries(self, versions: Sequence[Version]) -> Sequence[EntryWithValue]:
        later = await later_acls_of_base(self._lines, self._line_id, versions)
        return [
            EntryWithValue(_entry(version, later_acls), version.value or "", lost=version.value is None)
            for version, later_acls in zip(versions, later, strict=True)
        ]


def _entry(version: Version, later_acls: tuple[Patterns, ...]) -> Entry:
    change = version.change
    return Entry(
        key=change.key,
        incarnation=change.incarnation,
        version=change.version,
        blob_hash=change.blob_hash or b"",
        tokens=change.meta.tokens,
        written_by=version.author,
        written_at=version.committed_at,
        expires_at=change.meta.expires_at,
        readable_by=change.meta.readable_by or ANYONE,
        writable_by=change.meta.writable_by or ANYONE,
        later_acls=later_acls,
        trust=change.meta.trust,
        media_type=change.meta.media_type,
    )


@dataclass(slots=True)
class BoardView:
    """A board opened for reading."""

    boards: Boards
    session: Session
    branch: str | None
    now: int
    entries: EntryStore | BranchEntries = field(init=False)

    def __post_init__(self) -> None:
        on_branch = self.branch is not None
        self.entries = BranchEntries(self.boards.lines, self.line_id) if on_branch else self.boards.entries

    @property
    def line_id(self) -> str:
        return line_name(line_of(self.session.session_id), self.branch)

    async def live(self) -> Sequence[Entry]:
        """Return every unexpired entry, also those that the caller may not read."""
        return [e for e in await self.entries.list(self.session.session_id) if e.lives_at(self.now)]

    async def read(self, keys: Sequence[str]) -> dict[str, EntryWithValue]:
        """Return the given keys that exist and that the caller may read."""
        for key in keys:
            check_key(key, namespaces=self.session.config.namespaces)
        found = await self.entries.read(self.session.session_id, keys)
        visible = {f.entry.key: f for f in found if f.entry.lives_at(self.now) and f.entry.readable(self.boards.actor)}
        for key, each in visible.items():
            if each.lost:
                raise VersionPruned(f"The value of '{key}' was pruned before the branch started.", key=key)
        if self.branch is None:
            for key in visible:
                self.boards.tally.note(self.boards.actor.tenant, self.session.session_id, key, self.now)
        return visible

    async def readable(self) -> Sequence[EntryWithValue]:
        """Return every unexpired entry that the caller may read, with its value."""
        entries = await self.entries.read_all(self.session.session_id)
        return [f for f in entries if f.entry.lives_at(self.now) and f.entry.readable(self.boards.actor)]

    async def missing(self, key: str) -> KeyNotFound:
        """Return the error for a missing key, with similar keys as alternatives."""
        readable = [entry.key for entry in (await self.live())[:MAX_COMPARED] if entry.readable(self.boards.actor)]
        where = "The board" if self.branch is None else f"The branch '{self.branch}' of the board"
        return KeyNotFound(
            f"{where} has no key '{key}'.",
            resource_type="key",
            resource_id=key,
            available_alternatives=close_names(key, readable),
        )

    def checked_tokens(self, value: str) -> int:
        """Return the size of a new value; raises ValueTooLarge."""
        tokens = self._count(value)
        check_value_size(tokens, self.session.config)
        return tokens

    def _count(self, value: str) -> int:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput("value: not valid text (it holds half of a surrogate pair)", field="value") from error
        # An empty value counts as one token, so that a board of empty keys fills up too.
        return max(1, self.boards.counters.named(self.session.config.tokenizer)(value))

    async def snapshots(self) -> list[Tag]:
        return await snapshots_of(self.boards.lines, self.line_id)

    async def visible(self, versions: Iterable[Version]) -> list[Version]:
        """Return the versions that the caller may read: by their own ACL and by every later one of the key."""
        readable = [v for v in versions if self.boards.actor.matches(v.change.meta.readable_by or ANYONE)]
        later = await later_acls(self.boards.lines, self.line_id, readable)
        return [v for v, acls in zip(readable, later, strict=True) if all(map(self.boards.actor.matches, acls))]
