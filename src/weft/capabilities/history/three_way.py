"""What differs between two states of a line, and what becomes of two that went apart from a third."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from weft.capabilities.history.model import EMPTY, Point, meeting_point

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.capabilities.history.model import Change, CommitRange, StoredCommit, Version
    from weft.capabilities.history.store import LineStore


_encode = msgspec.json.Encoder().encode


class Difference(NamedTuple):
    """Keys whose state differs: there only after, there only before, there in both but not alike."""

    added: Sequence[str]
    removed: Sequence[str]
    modified: Sequence[str]


class MergeConflict(NamedTuple):
    """A key that both sides changed, each in its own way. None stands for a key that is not there."""

    key: str
    base: Version | None
    ours: Version | None
    theirs: Version | None


class Merge(NamedTuple):
    """What to take over from their side, by key (None: remove it), and what nobody but a human can decide."""

    taken: Mapping[str, Version | None]
    conflicts: Sequence[MergeConflict]


State = dict[str, "Version"]


class MergeBase(NamedTuple):
    """What two lines have in common, and the keys of which that cannot be said."""

    state: State
    disputed: frozenset[str]


def same_content(one: Version | None, other: Version | None) -> bool:
    """Tell whether two versions say the same to the same readers and writers for the same time."""
    if one is None or other is None:
        return one is other
    return _said(one.change) == _said(other.change)


def fingerprint(version: Version | None) -> str | None:
    """Return what tells a version from every other that is not alike; None for one that is not there."""
    return None if version is None else hashlib.sha256(_encode(_said(version.change))).hexdigest()


def difference(before: Mapping[str, Version], after: Mapping[str, Version]) -> Difference:
    both = before.keys() & after.keys()
    return Difference(
        added=sorted(after.keys() - before.keys()),
        removed=sorted(before.keys() - after.keys()),
        modified=sorted(key for key in both if not same_content(before[key], after[key])),
    )


def three_way(
    base: Mapping[str, Version],
    ours: Mapping[str, Version],
    theirs: Mapping[str, Version],
    disputed: frozenset[str] = frozenset(),
) -> Merge:
    """Merge two states that went apart from a common one. What only one side changed is not in question.

    Of disputed keys nobody knows what they said before, so nobody knows who changed them.
    """
    taken: dict[str, Version | None] = {}
    conflicts: list[MergeConflict] = []
    for key in sorted(base.keys() | ours.keys() | theirs.keys()):
        sides = MergeConflict(key, base.get(key), ours.get(key), theirs.get(key))
        if same_content(sides.ours, sides.theirs):
            continue
        if key in disputed:
            conflicts.append(sides._replace(base=None))
        elif same_content(sides.base, sides.ours):
            taken[key] = sides.theirs
        elif not same_content(sides.base, sides.theirs):
            conflicts.append(sides)
    return Merge(taken, conflicts)


async def states_apart(lines: LineStore, one: Point, other: Point, *, values: bool) -> tuple[State, State]:
    """Return of both moments those keys that may differ: what either did since their pasts were the same."""
    ours, theirs = await lines.past(one.line_id, one.seq), await lines.past(other.line_id, other.seq)
    met = meeting_point(ours, theirs)
    shared = met.upto if met else 0
    touched = [*_behind(ours, shared), *_behind(theirs, shared)]
    return (
        state_by_key(await lines.state_at(one.line_id, one.seq, touched, values=values)),
        state_by_key(await lines.state_at(other.line_id, other.seq, touched, values=values)),
    )


async def common_past(lines: LineStore, ours: Point, theirs: Point) -> Point | None:
    """Return the last moment that both sides know of, the latest if there are several; None if they never met."""
    pasts = await common_pasts(lines, ours, theirs)
    return pasts[0] if pasts else None


async def common_pasts(lines: LineStore, ours: Point, theirs: Point) -> list[Point]:
    """Return the last moments that both sides know of, counting what merges brought over, the latest first.

    Where merges went both ways at once there are several, none before another.
    """
    known_to_us, known_to_them = await _known(lines, ours), await _known(lines, theirs)
    both = known_to_us.keys() & known_to_them.keys()
    shared = {line_id: min(known_to_us[line_id], known_to_them[line_id]) for line_id in both}
    found = [commit for line_id, seq in shared.items() if (commit := await lines.commit_at(line_id, seq)) is not None]
    if not found:
        return [Point(theirs.line_id, 0, EMPTY)] if shared else []
    furthest = await _furthest(lines, found)
    furthest.sort(key=lambda known: (known.commit.committed_at, known.commit.seq, known.commit.line_id), reverse=True)
    return [_point(known) for known in furthest]


async def common_ground(lines: LineStore, pasts: Sequence[Point]) -> MergeBase:
    """Return the state that two lines went apart from: of the one moment they share, or of several put together.

    What those several say in different ways, nobody knows to have been common.
    """
    first, *others = pasts
    state = state_by_key(await lines.state_at(first.line_id, first.seq))
    disputed: set[str] = set()
    for other in others:
        theirs = state_by_key(await lines.state_at(other.line_id, other.seq))
        below = await common_pasts(lines, first, other)
        before = await common_ground(lines, below) if below else MergeBase({}, frozenset())
        merge = three_way(before.state, state, theirs, before.disputed)
        disputed |= {conflict.key for conflict in merge.conflicts}
        state = {key: version for key, version in {**state, **merge.taken}.items() if version is not None}
    return MergeBase(state, frozenset(disputed))


def state_by_key(versions: Sequence[Version]) -> State:
    return {version.change.key: version for version in versions}


async def _known(lines: LineStore, point: Point) -> dict[str, int]:
    """Return how far each line is part of a moment's past, by descent or by merges."""
    known: dict[str, int] = {}
    # The latest first, so that what lies before them is known by the time it is looked at.
    waiting = deque([(point.line_id, point.seq)])
    while waiting:
        line_id, seq = waiting.popleft()
        for stretch in await lines.past(line_id, seq):
            reached = known.get(stretch.line_id, -1)
            if reached >= stretch.upto:
                continue
            known[stretch.line_id] = stretch.upto
            waiting += await lines.merged_moments(stretch.line_id, max(reached, stretch.after), stretch.upto)
    return known


async def _furthest(lines: LineStore, found: Sequence[StoredCommit]) -> list[StoredCommit]:
    """Return the moments that are not part of another's past; clocks alone cannot tell which came first."""
    if len(found) == 1:
        return [*found]
    pasts = {one.commit.line_id: await _known(lines, _point(one)) for one in found}
    return [
        one
        for one in found
        if not any(
            line_id != one.commit.line_id and known.get(one.commit.line_id, -1) >= one.commit.seq
            for line_id, known in pasts.items()
        )
    ]


def _point(recorded: StoredCommit) -> Point:
    return Point(recorded.commit.line_id, recorded.commit.seq, recorded.hash)


def _behind(past: Sequence[CommitRange], seq: int) -> list[CommitRange]:
    return [structs.replace(stretch, after=max(stretch.after, seq)) for stretch in past if stretch.upto > seq]


def _said(change: Change) -> tuple[object, ...]:
    meta = change.meta
    return change.blob_hash, meta.readable_by, meta.writable_by, meta.expires_at, meta.metadata_hash
