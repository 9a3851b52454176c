"""Read ACL of board versions: who may read old, restored, merged and branched versions.

The rule: a caller must match the ACL of the version and every later ACL of its key - the latest of the version's
incarnation and the current one, on this line and on each line it branched from. So deleting a key, branching off
before a key was restricted, restoring a snapshot, rolling back or merging never opens what was restricted since;
``restrict`` writes that into the versions that a restore or merge brings in. They must also match the ACL that the key
has, or had when it was deleted, where they are brought in: only a write of the key there widens its ACL.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weftline.history.model import LATEST, ChangeKind
from weftline.kernel.identity import ANYONE
from weftline.state.board.model import intersect_acls

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.history.model import CommitRange, Version
    from weftline.history.store import LineStore
    from weftline.kernel.identity import Actor
    from weftline.state.board.model import Entry, Patterns

# From this many keys on, keys are looked up together.
_BULK_KEYS = 10


class KeyVersion(NamedTuple):
    """One change of a key: its incarnation and commit."""

    key: str
    incarnation: int
    seq: int

    @classmethod
    def of(cls, version: Version) -> KeyVersion:
        return cls(version.change.key, version.change.incarnation, version.seq)


async def later_acls(lines: LineStore, line_id: str, versions: Sequence[Version]) -> list[tuple[Patterns, ...]]:
    """Return, for each version, the later ACLs of its key on the line and on those it branched from."""
    return await later_key_acls(lines, line_id, [KeyVersion.of(version) for version in versions])


async def later_key_acls(lines: LineStore, line_id: str, versions: Sequence[KeyVersion]) -> list[tuple[Patterns, ...]]:
    """Return the same for changes of keys."""
    return await AclHistory(lines, await lines.past(line_id, LATEST)).of(versions)


async def later_acls_of_base(lines: LineStore, line_id: str, versions: Sequence[Version]) -> list[tuple[Patterns, ...]]:
    """Return the same, but only from the lines that a branch started from."""
    acls = AclHistory(lines, (await lines.past(line_id, LATEST))[1:])
    return await acls.of([KeyVersion.of(version) for version in versions])


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


class AclHistory:
    """Later ACLs of keys on a line and its ancestors; each key is looked up once."""

    def __init__(self, lines: LineStore, past: Sequence[CommitRange]) -> None:
        self._lines = [_LineAcls(lines, commits) for commits in past]

    async def of(self, versions: Sequence[KeyVersion]) -> list[tuple[Patterns, ...]]:
        for line in self._lines:
            await line.prepare(versions)
        return [tuple([acl for line in self._lines for acl in await line.of(version)]) for version in versions]


class _LineAcls:
    """Later ACLs on one line for the keys that it shares up to a commit."""

    def __init__(self, lines: LineStore, commits: CommitRange) -> None:
        self._lines = lines
        self._line_id = commits.line_id
        self._shared_upto = commits.upto
        self._has_later = True
        self._current: dict[str, Version | None] = {}
        self._known: dict[tuple[str, int], tuple[Patterns, ...]] = {}

    async def prepare(self, versions: Iterable[KeyVersion]) -> None:
        shared = {version.key for version in versions if version.seq <= self._shared_upto}
        keys = shared - self._current.keys()
        if self._shared_upto < LATEST:
            line = await self._lines.find(self._line_id) if shared else None
            self._has_later = line is not None and line.head.seq > self._shared_upto
        if len(keys) < _BULK_KEYS or not self._has_later:
            return
        self._current |= dict.fromkeys(keys)
        for last in await self._lines.last_changes(self._line_id, sorted(keys), LATEST):
            change = last.change
            self._current[change.key] = last if change.act is ChangeKind.WRITE else None
            self._known[change.key, change.incarnation] = _acls([last])

    async def of(self, version: KeyVersion) -> tuple[Patterns, ...]:
        if version.seq > self._shared_upto or not self._has_later:
            return ()
        about = version.key, version.incarnation
        if about not in self._known:
            self._known[about] = await self._look_up(*about)
        return self._known[about]

    async def _look_up(self, key: str, incarnation: int) -> tuple[Patterns, ...]:
        if key not in self._current:
            self._current[key] = await self._lines.latest(self._line_id, key, LATEST)
        current = self._current[key]
        later = [] if current is None else [current]
        if current is None or current.change.incarnation != incarnation:
            later += await self._lines.versions(self._line_id, key, incarnation, 1)
        return _acls(later)


def _acls(versions: Iterable[Version]) -> tuple[Patterns, ...]:
    """Return the ACLs of versions that do not admit everyone."""
    return tuple(each.change.meta.readable_by for each in versions if each.change.meta.readable_by is not None)


def _acl_of(version: Version) -> Patterns:
    patterns = version.change.meta.readable_by
    return ANYONE if patterns is None else patterns
