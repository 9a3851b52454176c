"""What differs between two states of a line, and what becomes of two that went apart from a third."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weft.capabilities.history.model import Point, meeting_point

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.capabilities.history.model import Change, Recorded, Stretch, Version
    from weft.capabilities.history.store import LineStore


class Difference(NamedTuple):
    """Keys whose state differs: there only after, there only before, there in both but not alike."""

    added: Sequence[str]
    removed: Sequence[str]
    modified: Sequence[str]


class Conflict(NamedTuple):
    """A key that both sides changed, each in its own way. None stands for a key that is not there."""

    key: str
    base: Version | None
    ours: Version | None
    theirs: Version | None


class Merge(NamedTuple):
    """What to take over from their side, by key (None: remove it), and what nobody but a human can decide."""

    taken: Mapping[str, Version | None]
    conflicts: Sequence[Conflict]


State = dict[str, "Version"]


def alike(one: Version | None, other: Version | None) -> bool:
    """Tell whether two versions say the same to the same readers and writers for the same time."""
    if one is None or other is None:
        return one is other
    return _said(one.change) == _said(other.change)


def difference(before: Mapping[str, Version], after: Mapping[str, Version]) -> Difference:
    both = before.keys() & after.keys()
    return Difference(
        added=sorted(after.keys() - before.keys()),
        removed=sorted(before.keys() - after.keys()),
        modified=sorted(key for key in both if not alike(before[key], after[key])),
    )


def three_way(base: Mapping[str, Version], ours: Mapping[str, Version], theirs: Mapping[str, Version]) -> Merge:
    """Merge two states that went apart from a common one. What only one side changed is not in question."""
    taken: dict[str, Version | None] = {}
    conflicts: list[Conflict] = []
    for key in sorted(base.keys() | ours.keys() | theirs.keys()):
        sides = Conflict(key, base.get(key), ours.get(key), theirs.get(key))
        if alike(sides.ours, sides.theirs) or alike(sides.base, sides.theirs):
            continue
        if alike(sides.base, sides.ours):
            taken[key] = sides.theirs
        else:
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
    """Return the last moment that both sides know of, counting what merges brought over; None if they never met.

    Where merges went both ways at once there may be several, none before the other; the latest is taken.
    """
    known_to_us, known_to_them = await _known(lines, ours), await _known(lines, theirs)
    both = known_to_us.keys() & known_to_them.keys()
    shared = {line_id: min(known_to_us[line_id], known_to_them[line_id]) for line_id in both}
    found = [commit for line_id, seq in shared.items() if (commit := await lines.commit_at(line_id, seq)) is not None]
    if not found:
        return Point(theirs.line_id, 0, bytes(32)) if shared else None
    last = max(await _furthest(lines, found), key=lambda known: (known.commit.committed_at, known.commit.seq))
    return _point(last)


def state_by_key(versions: Sequence[Version]) -> State:
    return {version.change.key: version for version in versions}


async def _known(lines: LineStore, point: Point) -> dict[str, int]:
    """Return how far each line is part of a moment's past, by descent or by merges."""
    known: dict[str, int] = {}
    open_points = [(point.line_id, point.seq)]
    while open_points:
        line_id, seq = open_points.pop()
        for stretch in await lines.past(line_id, seq):
            if known.get(stretch.line_id, -1) >= stretch.upto:
                continue
            known[stretch.line_id] = stretch.upto
            for merge in await lines.merges(stretch.line_id, stretch.upto):
                merged = merge.commit.merged
                if merged is not None and await _is_still_there(lines, merged):
                    open_points.append((merged.line_id, merged.seq))
    return known


async def _furthest(lines: LineStore, found: Sequence[Recorded]) -> list[Recorded]:
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


async def _is_still_there(lines: LineStore, merged: Point) -> bool:
    """Tell whether a merged moment can still be read: a branch of the same name may be another by now."""
    found = await lines.commit_at(merged.line_id, merged.seq)
    return found is not None and found.hash == merged.hash


def _point(recorded: Recorded) -> Point:
    return Point(recorded.commit.line_id, recorded.commit.seq, recorded.hash)


def _behind(past: Sequence[Stretch], seq: int) -> list[Stretch]:
    return [structs.replace(stretch, after=max(stretch.after, seq)) for stretch in past if stretch.upto > seq]


def _said(change: Change) -> tuple[object, ...]:
    meta = change.meta
    return change.blob_hash, meta.readable_by, meta.writable_by, meta.expires_at, meta.metadata_hash
