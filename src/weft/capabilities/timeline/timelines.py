"""Lines of every sort, opened for one caller, and the moments that callers name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from weft.capabilities.board.lines import BoardLines
from weft.capabilities.context.lines import ContextLines
from weft.capabilities.history.merging import states_apart
from weft.capabilities.history.model import EMPTY, Point, Version, VersionNotFound
from weft.capabilities.history.store import LineStore, SwitchStore
from weft.capabilities.memory.lines import MemoryLines
from weft.capabilities.timeline.model import HEAD, sort_of
from weft.capabilities.timeline.store import ReviewStore
from weft.kernel.clock import Clock, to_micros
from weft.kernel.identity import Actor
from weft.kernel.ids import is_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.capabilities.history.keeping import Keeper, LockedLine, OpenLine
    from weft.capabilities.history.merging import State
    from weft.capabilities.history.model import Head, Recorded

_HEADS = frozenset({HEAD, "latest"})
_NUMBER = re.compile(r"[0-9]{1,16}\Z")
_HASH = re.compile(r"[0-9a-f]{6,64}\Z")


class Present(Point, frozen=True):
    """The last moment of a line, which lasts until now."""


class Timelines(msgspec.Struct, frozen=True):
    """Everything that looking at and changing lines needs, gathered for the caller of one operation."""

    actor: Actor
    lines: LineStore
    switches: SwitchStore
    reviews: ReviewStore
    boards: BoardLines
    contexts: ContextLines
    memories: MemoryLines
    clock: Clock

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    def keeper(self, line_id: str) -> Keeper:
        """Return who keeps lines of this sort."""
        keepers: dict[str, Keeper] = {
            "board": self.boards,
            "agent": self.contexts,
            "context": self.contexts,
            "memory": self.memories,
        }
        return keepers[sort_of(line_id)]

    async def to_read(self, line_id: str) -> OpenLine:
        return await self.keeper(line_id).to_read(line_id)

    async def to_write(self, line_id: str) -> LockedLine:
        return await self.keeper(line_id).to_write(line_id)

    async def moment(self, line: OpenLine, name: str) -> Point:
        """Return the moment that a caller means: by its number, a snapshot's label or its hash, in this order."""
        head = line.head
        if name in _HEADS:
            return present(head)
        if _NUMBER.match(name) and int(name) <= head.seq:
            return await self.at(line, int(name))
        seq = await self._labelled(line, name) if is_name(name) else None
        if seq is not None:
            return await self.at(line, seq)
        return await self._hashed(line, name)

    async def at(self, line: OpenLine, seq: int) -> Point:
        found = await self.lines.commit_at(line.head.line_id, seq) if seq else None
        return Point(line.head.line_id, seq, found.hash if found else EMPTY)

    async def states(self, one: Point, other: Point, *, values: bool) -> tuple[State, State]:
        """Return of two moments those keys that may differ, without what had expired by then."""
        before, after = await states_apart(self.lines, one, other, values=values)
        return await self.living(before, one), await self.living(after, other)

    async def living(self, state: Mapping[str, Version], at: Point) -> State:
        """Leave out what had expired at a moment, whether or not anybody had noticed."""
        if all(version.change.meta.expires_at is None for version in state.values()):
            return dict(state)
        then = await self._when(at)
        return {key: version for key, version in state.items() if not _expired(version, then)}

    async def _when(self, at: Point) -> int:
        """Return until when a moment lasted. Whoever names a version always gets the same; only the present goes on."""
        if isinstance(at, Present):
            return self.now
        commit = await self.lines.commit_at(at.line_id, at.seq)
        return commit.commit.committed_at if commit else 0

    async def _labelled(self, line: OpenLine, label: str) -> int | None:
        # A branch knows its own snapshots, even before its first commit, and those of the past it shares.
        past = await self.lines.past(line.head.line_id, line.head.seq)
        for line_id, upto in {line.head.line_id: line.head.seq, **{each.line_id: each.upto for each in past}}.items():
            tag = await self.lines.find_tag(line_id, label)
            if tag is not None and tag.seq <= upto:
                return tag.seq
        return None

    async def _hashed(self, line: OpenLine, name: str) -> Point:
        prefix = name.lower()
        found = await self.lines.commits_by_hash(line.head.line_id, prefix) if _HASH.match(prefix) else ()
        if len(found) > 1:
            raise VersionNotFound(
                f"More than one version has a hash that begins with '{prefix}'.",
                hint="Give more digits of the hash, or the version's number.",
                resource_id=prefix,
            )
        if not found:
            raise no_version(name)
        return Point(line.head.line_id, found[0].commit.seq, found[0].hash)


def present(head: Head) -> Present:
    return Present(head.line_id, head.seq, head.hash)


def no_version(name: str) -> VersionNotFound:
    shown = name[:100]
    return VersionNotFound(f"The line has no version '{shown}'.", resource_type="version", resource_id=shown)


async def seen(line: OpenLine, state: Mapping[str, Version]) -> State:
    """Return what of a state the caller may read."""
    return {version.change.key: version for version in await line.visible(state.values())}


async def seen_changes(line: OpenLine, commits: Sequence[Recorded]) -> list[list[Version]]:
    """Return, for each commit, those of its changes that the caller may know of."""
    versions = [[_version(commit, place) for place in range(len(commit.commit.changes))] for commit in commits]
    visible = await line.visible(version for of_commit in versions for version in of_commit)
    known = {(version.seq, version.change.key) for version in visible}
    return [[version for version in group if (version.seq, version.change.key) in known] for group in versions]


def names(versions: Iterable[Version]) -> list[str]:
    return sorted(version.change.key for version in versions)


def _version(recorded: Recorded, place: int) -> Version:
    commit = recorded.commit
    return Version(
        commit.changes[place],
        commit.seq,
        commit.author.participant,
        commit.committed_at,
        None,
        commit.reason,
        commit.step,
    )


def _expired(version: Version, at: int) -> bool:
    expires_at = version.change.meta.expires_at
    return expires_at is not None and expires_at <= at
