"""Lines of every sort, opened for one caller, and the moments that callers name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.capabilities.agent_context.history_backend import ContextLines
from weft.capabilities.board.history_backend import BoardLines
from weft.capabilities.history.line_ids import sort_of
from weft.capabilities.history.model import Point, Version
from weft.capabilities.history.operation_ports import ReviewStore
from weft.capabilities.history.revisions import point_at, resolve_revision
from weft.capabilities.history.store import LineStore, SwitchStore
from weft.capabilities.history.three_way import states_apart
from weft.capabilities.memory.history_backend import MemoryLines
from weft.kernel.clock import Clock, to_micros
from weft.kernel.identity import Actor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.capabilities.history.line_backend import LineBackend, LockedLine, OpenLine
    from weft.capabilities.history.model import Head, StoredCommit
    from weft.capabilities.history.three_way import State


class Present(Point, frozen=True):
    """The last moment of a line, which lasts until now."""


class History(msgspec.Struct, frozen=True):
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

    def keeper(self, line_id: str) -> LineBackend:
        """Return who keeps lines of this sort."""
        keepers: dict[str, LineBackend] = {
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

    async def moment(self, line: OpenLine, name: str | int) -> Point:
        """Return the moment of a line that a caller means."""
        return await resolve_revision(self.lines, present(line.head), name)

    async def at(self, line: OpenLine, seq: int) -> Point:
        return await point_at(self.lines, present(line.head), seq)

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


def present(head: Head) -> Present:
    return Present(head.line_id, head.seq, head.hash)


async def seen(line: OpenLine, state: Mapping[str, Version]) -> State:
    """Return what of a state the caller may read."""
    return {version.change.key: version for version in await line.visible(state.values())}


async def seen_changes(line: OpenLine, commits: Sequence[StoredCommit]) -> list[list[Version]]:
    """Return, for each commit, those of its changes that the caller may know of."""
    versions = [[_version(commit, place) for place in range(len(commit.commit.changes))] for commit in commits]
    visible = await line.visible(version for of_commit in versions for version in of_commit)
    known = {(version.seq, version.change.key) for version in visible}
    return [[version for version in group if (version.seq, version.change.key) in known] for group in versions]


def names(versions: Iterable[Version]) -> list[str]:
    return sorted(version.change.key for version in versions)


def _version(recorded: StoredCommit, place: int) -> Version:
    commit = recorded.commit
    return Version(
        commit.changes[place],
        commit.seq,
        commit.author.participant,
        commit.committed_at,
        None,
        commit.reason,
        commit.step,
        commit.author.principal_id,
    )


def _expired(version: Version, at: int) -> bool:
    expires_at = version.change.meta.expires_at
    return expires_at is not None and expires_at <= at
