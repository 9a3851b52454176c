"""A whole context as its entries: the root says where each part stands, and what people compare are its entries.

An entry of a part goes by the name PART/KEY there. No part has a slash in its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from weft.capabilities.agent_context.diff import parts_apart
from weft.capabilities.agent_context.model import DEFINITION, PART_MARK, ContextLine, PartAt
from weft.capabilities.history.three_way import (
    Merge,
    MergeBase,
    MergeConflict,
    common_ground,
    common_pasts,
    same_content,
    state_by_key,
    three_way,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weft.capabilities.history.model import Point, Version
    from weft.capabilities.history.store import LineStore
    from weft.capabilities.history.three_way import State


def is_whole_context(line_id: str) -> bool:
    return line_id.startswith("context:") and ContextLine.parse(line_id).part is None


async def entries_apart(
    lines: LineStore, one: Mapping[str, Version], other: Mapping[str, Version], *, values: bool
) -> tuple[State, State]:
    """Return the entries that may differ of those parts in which two moments of a whole context differ."""
    before: State = {}
    after: State = {}
    for part in sorted(one.keys() | other.keys()):
        if not same_content(one.get(part), other.get(part)):
            was, is_ = await parts_apart(lines, _at(one.get(part)), _at(other.get(part)), values=values)
            before |= _named(part, was)
            after |= _named(part, is_)
    return before, after


async def merge_parts(lines: LineStore, merge: Merge) -> Merge:
    """Merge entry by entry what both sides changed; what an agent is has no branches, and is never merged."""
    taken = {part: version for part, version in merge.taken.items() if part != DEFINITION}
    conflicts: list[MergeConflict] = []
    for part in merge.conflicts:
        if part.key != DEFINITION:
            merged = await _merge_part(lines, part)
            taken |= merged.taken
            conflicts += merged.conflicts
    return Merge(taken, conflicts)


async def entries_at(lines: LineStore, at: Point, *, values: bool) -> State:
    """Return what stood at a moment of any line; of a whole context the entries of its parts."""
    if not is_whole_context(at.line_id):
        return state_by_key(await lines.state_at(at.line_id, at.seq, values=values))
    found: State = {}
    for named in await lines.state_at(at.line_id, at.seq):
        part = PartAt.named_by(named)
        found |= _named(named.change.key, state_by_key(await lines.state_at(part.line, part.seq, values=values)))
    return found


async def entry_at(lines: LineStore, line_id: str, name: str, seq: int) -> Version | None:
    """Return what a key of any line said at a moment, or an entry of a whole context."""
    part, _, key = name.partition(PART_MARK)
    if not is_whole_context(line_id):
        return await lines.latest(line_id, name, seq)
    root = await lines.latest(line_id, part, seq)
    at = _at(root)
    found = None if at is None else await lines.latest(at.line, key, at.seq)
    return None if found is None else _renamed(part, found)


async def _merge_part(lines: LineStore, part: MergeConflict) -> Merge:
    base, ours, theirs = _at(part.base), _at(part.ours), _at(part.theirs)
    if base is None and ours is not None and theirs is not None:
        return await _merge_by_own_past(lines, part.key, ours, theirs)
    then, there = await parts_apart(lines, base, theirs, values=True)
    moved = {key for key in then.keys() | there.keys() if not same_content(then.get(key), there.get(key))}
    here, _ = await parts_apart(lines, ours, theirs, values=True)
    base_state, ours_state, theirs_state = (_named(part.key, _only(state, moved)) for state in (then, here, there))
    return three_way(base_state, ours_state, theirs_state)


async def _merge_by_own_past(lines: LineStore, part: str, ours: PartAt, theirs: PartAt) -> Merge:
    """Merge a part of which the whole context's past does not say what was common: its own line may."""
    pasts = await common_pasts(lines, ours.point, theirs.point)
    ground = await common_ground(lines, pasts) if pasts else MergeBase({}, frozenset())
    here, there = [state_by_key(await lines.state_at(side.line, side.seq)) for side in (ours, theirs)]
    disputed = frozenset(f"{part}{PART_MARK}{key}" for key in ground.disputed)
    return three_way(_named(part, ground.state), _named(part, here), _named(part, there), disputed)


def _at(version: Version | None) -> PartAt | None:
    return None if version is None else PartAt.named_by(version)


def _named(part: str, state: Mapping[str, Version]) -> State:
    return {named.change.key: named for version in state.values() for named in [_renamed(part, version)]}


def _renamed(part: str, version: Version) -> Version:
    name = f"{part}{PART_MARK}{version.change.key}"
    return structs.replace(version, change=structs.replace(version.change, key=name))


def _only(state: Mapping[str, Version], keys: Iterable[str]) -> State:
    return {key: state[key] for key in keys if key in state}
