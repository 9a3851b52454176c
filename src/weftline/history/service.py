"""History: opens lines of every kind for one caller and resolves the revisions that callers name."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from weftline.access.plan_warnings import Plans
from weftline.history.line_kinds import SESSION, LineBackends, has_acls, name_in
from weftline.history.lines import LineStore
from weftline.history.model import EMPTY, LATEST, Point, Tag, Version, no_snapshot
from weftline.history.revisions import find_snapshot, point_at, resolve_revision
from weftline.history.sql import CheckoutStore, ReviewStore
from weftline.history.three_way import state_by_key, states_apart
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import PermissionDenied, Unavailable, WeftlineError
from weftline.kernel.fields import is_name
from weftline.kernel.identity import Actor
from weftline.kernel.outbox import Outbox
from weftline.safety.trust.gate import ContentGate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from weftline.history.line_kinds import LockedLine, OpenLine, VersionReader
    from weftline.history.model import Head, StoredCommit
    from weftline.history.three_way import State
    from weftline.kernel.ports import Transactions

T = TypeVar("T")
N = TypeVar("N")


# Changes of so few keys are planned again in the transaction if others have written since.
SMALL_CHANGE = 100


class HeadPoint(Point, frozen=True):
    """The head of a line: its entries expire by the clock. At any older point they expire by the commit time."""


class SnapshotPoint(Point, frozen=True):
    """A snapshot as boards restore it: its entries expire by the time the snapshot was taken."""

    tag: Tag


class History(msgspec.Struct, frozen=True):
    """What the history operations need, built for the caller of one operation."""

    actor: Actor
    lines: LineStore
    checkouts: CheckoutStore
    reviews: ReviewStore
    backends: LineBackends
    clock: Clock
    outbox: Outbox
    plans: Plans
    gate: ContentGate

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    async def to_read(self, line_id: str) -> OpenLine:
        return await self.backends.of(line_id).to_read(line_id)

    async def to_write(self, line_id: str) -> LockedLine:
        return await self.backends.of(line_id).to_write(line_id)

    def may_list(self, line_id: str) -> bool:
        """Tell whether lists of all contexts include a line: a sub-agent has to name the session it works in."""
        if not self.actor.is_subagent or self.actor.bound_session is not None:
            return True
        return name_in(line_id, SESSION) is None

    async def resolve(self, line: OpenLine, revision: str | int) -> Point:
        return await resolve_revision(self.lines, head_point(line.head), revision)

    async def at(self, line: OpenLine, seq: int) -> Point:
        return await point_at(self.lines, line.head.line_id, seq)

    async def shown_hash(self, point: Point) -> str:
        """Return the hash of a version for any reader of its line.

        It is empty for a version without salt on a line with ACLs: values that the caller may not read could be guessed
        from it.
        """
        if has_acls(point.line_id) and not await self.lines.is_salted(point.line_id, point.seq):
            return ""
        return point.hash.hex()

    async def snapshot(self, line_id: str, label: str) -> SnapshotPoint:
        """Return the snapshot of a line with this label; raises SnapshotNotFound."""
        tag = await find_snapshot(self.lines, line_id, LATEST, label) if is_name(label) else None
        if tag is None:
            raise no_snapshot(label)
        point = await point_at(self.lines, line_id, tag.seq)
        return SnapshotPoint(point.line_id, point.seq, point.hash, tag)

    async def states(self, one: Point, other: Point, *, values: bool, whole: bool = False) -> tuple[State, State]:
        """Return the keys that may differ between two points (``whole``: all keys), without those expired by then."""
        if whole:
            before, after = [
                state_by_key(await self.lines.state_at(at.line_id, at.seq, values=values)) for at in (one, other)
            ]
        else:
            before, after = await states_apart(self.lines, one, other, values=values)
        return await self.unexpired(before, one), await self.unexpired(after, other)

    async def unexpired(self, state: Mapping[str, Version], at: Point) -> State:
        """Return the entries that had not expired at a point, whether or not their expiry was committed."""
        if all(version.change.meta.expires_at is None for version in state.values()):
            return dict(state)
        until = await self.timestamp(at)
        return {key: version for key, version in state.items() if not _expired(version, until)}

    async def timestamp(self, at: Point) -> int:
        """Return the time by which entries of a point expire. A numbered version always has the same content."""
        if isinstance(at, HeadPoint):
            return self.now
        if isinstance(at, SnapshotPoint):
            return at.tag.created_at
        commit = await self.lines.commit_at(at.line_id, at.seq)
        return commit.commit.committed_at if commit else 0


class ExpiryDue(Exception):
    """Entries of a line have expired, which locking it will commit: plans for it are made after that."""

    @staticmethod
    def check(head: Head, now: int) -> None:
        if head.has_expired(now):
            raise ExpiryDue


async def planned(
    actor: Actor,
    transactions: Transactions[N],
    plan: Callable[[N], Awaitable[T]],
    lock: Callable[[N], Awaitable[object]],
) -> T:
    """Run a plan in a heavy read, so that comparing large contexts holds up no writer.

    If it raises ExpiryDue, ``lock`` commits the expiry in its own transaction first. If it refuses the request
    for another reason than permission, callers that may not change the line are refused by ``lock`` instead.
    """
    try:
        return await transactions.read(actor, plan, heavy=True)
    except ExpiryDue:
        await transactions.write(actor, lock)
        return await transactions.read(actor, plan, heavy=True)
    except (PermissionDenied, Unavailable):
        raise
    except WeftlineError:
        await transactions.write(actor, lock)
        raise


def head_point(head: Head) -> HeadPoint:
    return HeadPoint(head.line_id, head.seq, head.hash)


def current_state(line_id: str) -> HeadPoint:
    """Return the head of a line for reading its state, without looking up its number and hash."""
    return HeadPoint(line_id, LATEST, EMPTY)


async def visible_state(line: VersionReader, state: Mapping[str, Version]) -> State:
    """Return the part of a state that the caller may read."""
    return {version.change.key: version for version in await line.visible(state.values())}


async def visible_changes(line: OpenLine, commits: Sequence[StoredCommit]) -> list[list[Version]]:
    """Return, for each commit, the changes that the caller may read."""
    versions = [[_version(commit, place) for place in range(len(commit.commit.changes))] for commit in commits]
    visible = await line.visible(version for of_commit in versions for version in of_commit)
    known = {(version.seq, version.change.key) for version in visible}
    return [[version for version in group if (version.seq, version.change.key) in known] for group in versions]


def _version(stored: StoredCommit, place: int) -> Version:
    commit = stored.commit
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
