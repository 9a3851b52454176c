"""Three-way merge of states, and the merge base of two lines."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from weftline.history.model import EMPTY, Point, shared_commits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.history.lines import LineStore
    from weftline.history.model import Change, CommitRange, StoredCommit, Version


_encode = msgspec.json.Encoder().encode


class MergeConflict(NamedTuple):
    """A key that both sides changed differently. None: the key does not exist."""

    key: str
    base: Version | None
    ours: Version | None
    theirs: Version | None


class Merge(NamedTuple):
    """Changes to take from their side, by key (None: delete it), and conflicts for a human."""

    taken: Mapping[str, Version | None]
    conflicts: Sequence[MergeConflict]


State = dict[str, "Version"]


class MergeBase(NamedTuple):
    """The common state of two lines, and keys whose common state is ambiguous."""

    state: State
    disputed: frozenset[str]


def same_content(one: Version | None, other: Version | None) -> bool:
    """Tell whether two versions have the same value, type, ACLs, expiry and metadata."""
    if one is None or other is None:
        return one is other
    return _content(one.change) == _content(other.change)


def fingerprint(version: Version | None) -> str | None:
    """Return a hash of what ``same_content`` compares; None for a missing version."""
    return None if version is None else hashlib.sha256(_encode(_content(version.change))).hexdigest()


def three_way(
    base: Mapping[str, Version],
    ours: Mapping[str, Version],
    theirs: Mapping[str, Version],
    disputed: frozenset[str] = frozenset(),
) -> Merge:
    """Merge two states with a common base. Changes of one side only are taken; the rest are conflicts.

    Disputed keys have no usable base, so any difference in them is a conflict.
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
    """Return the states of the keys that may differ between two points: those changed since the shared ancestry."""
    ours, theirs = await lines.past(one.line_id, one.seq), await lines.past(other.line_id, other.seq)
    met = shared_commits(ours, theirs)
    shared = met.upto if met else 0
    touched = [*_after(ours, shared), *_after(theirs, shared)]
    return (
        state_by_key(await lines.state_at(one.line_id, one.seq, touched, values=values)),
        state_by_key(await lines.state_at(other.line_id, other.seq, touched, values=values)),
    )


async def common_past(lines: LineStore, ours: Point, theirs: Point) -> Point | None:
    """Return the merge base of two points, the latest if there are several; None if they are unrelated."""
    pasts = await common_pasts(lines, ours, theirs)
    return pasts[0] if pasts else None


async def common_pasts(lines: LineStore, ours: Point, theirs: Point) -> list[Point]:
    """Return all merge bases of two points, latest first. Criss-cross merges leave several."""
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
    """Return the base state of a merge: of the one merge base, or of several merged recursively.

    Keys in conflict between several merge bases are disputed.
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
    """Return up to which commit each line is an ancestor of a point, by branching or by merges."""
    known: dict[str, int] = {}
    # Breadth first, newest first: older commits of a line are mostly covered when they are reached.
    waiting = deque([(point.line_id, point.seq)])
    while waiting:
        line_id, seq = waiting.popleft()
        for commits in await lines.past(line_id, seq):
            reached = known.get(commits.line_id, -1)
            if reached >= commits.upto:
                continue
            known[commits.line_id] = commits.upto
            waiting += await lines.merged_points(commits.line_id, max(reached, commits.after), commits.upto)
    return known


async def _furthest(lines: LineStore, found: Sequence[StoredCommit]) -> list[StoredCommit]:
    """Return the commits that are no ancestors of another; timestamps alone cannot tell the order."""
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


def _after(past: Sequence[CommitRange], seq: int) -> list[CommitRange]:
    return [structs.replace(commits, after=max(commits.after, seq)) for commits in past if commits.upto > seq]


def _content(change: Change) -> tuple[object, ...]:
    meta = change.meta
    return change.blob_hash, meta.media_type, meta.readable_by, meta.writable_by, meta.expires_at, meta.metadata_hash
