"""Later ACLs of keys: who may read old, restored, merged and branched versions.

The rule: a caller must match the ACL of the version and every later ACL of its key - the latest of the version's
incarnation and the current one, on this line and on each line it branched from. So deleting a key, branching off
before a key was restricted, restoring a snapshot, rolling back or merging never opens what was restricted since; boards
write that into the versions that a restore or merge brings in (``restrict``). They must also match the ACL that the key
has, or had when it was deleted, where they are brought in: only a write of the key there widens its ACL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.history.model import LATEST, ChangeKind
from weftline.kernel.patterns import Patterns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.history.lines import LineStore
    from weftline.history.model import CommitRange, Version

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
