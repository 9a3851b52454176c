"""Composite lines, such as the whole context of an agent: each entry of the root points at a version of a part.

Read, compared and merged are the entries of the parts, named PART/KEY. No part has a slash in its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from weftline.history.line_kinds import is_composite, kind_of
from weftline.history.model import Point, trunk_of
from weftline.history.three_way import (
    Merge,
    MergeBase,
    MergeConflict,
    common_ground,
    common_pasts,
    same_content,
    state_by_key,
    states_apart,
    three_way,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weftline.history.lines import LineStore
    from weftline.history.model import Version
    from weftline.history.three_way import State

# Between part and key in the name of an entry.
PART_MARK = "/"


class PartVersion(msgspec.Struct, frozen=True):
    """The version of a part that an entry of the root points at; the entry's value is this as JSON."""

    line: str
    seq: int
    hash: str

    @classmethod
    def of(cls, point: Point) -> PartVersion:
        return cls(point.line_id, point.seq, point.hash.hex())

    @classmethod
    def named_by(cls, version: Version) -> PartVersion:
        return msgspec.json.decode(version.value or "", type=cls)

    @property
    def point(self) -> Point:
        return Point(self.line, self.seq, bytes.fromhex(self.hash))

    def encode(self) -> str:
        return msgspec.json.encode(self, order="deterministic").decode()


async def part_states_apart(
    lines: LineStore, one: PartVersion | None, other: PartVersion | None, *, values: bool
) -> tuple[State, State]:
    """Return the entries that may differ between two versions of a part; None: the part does not exist."""
    if one is not None and other is not None:
        return await states_apart(lines, one.point, other.point, values=values)
    return await _state(lines, one, values=values), await _state(lines, other, values=values)


async def entries_apart(
    lines: LineStore, one: Mapping[str, Version], other: Mapping[str, Version], *, values: bool
) -> tuple[State, State]:
    """Return the entries that may differ between two states of a root. Only parts that differ are read."""
    before: State = {}
    after: State = {}
    for part in sorted(one.keys() | other.keys()):
        if not same_content(one.get(part), other.get(part)):
            old, new = await part_states_apart(lines, _at(one.get(part)), _at(other.get(part)), values=values)
            before |= _prefixed(part, old)
            after |= _prefixed(part, new)
    return before, after


async def merge_parts(lines: LineStore, root: str, merge: Merge) -> Merge:
    """Merge the parts that both sides changed entry by entry, leaving out parts that are never merged."""
    unmerged = kind_of(root).unmerged_parts
    taken = {part: version for part, version in merge.taken.items() if part not in unmerged}
    conflicts: list[MergeConflict] = []
    for part in merge.conflicts:
        if part.key not in unmerged:
            merged = await _merge_part(lines, part)
            taken |= merged.taken
            conflicts += merged.conflicts
    return Merge(taken, conflicts)


async def entries_at(lines: LineStore, at: Point, *, values: bool) -> State:
    """Return the state at a point of any line; of a root, the entries of its parts."""
    if not is_composite(at.line_id):
        return state_by_key(await lines.state_at(at.line_id, at.seq, values=values))
    found: State = {}
    for pointer in await lines.state_at(at.line_id, at.seq):
        part = PartVersion.named_by(pointer)
        found |= _prefixed(pointer.change.key, await _state(lines, part, values=values))
    return found


async def seals_at(lines: LineStore, *points: Point) -> bytes:
    """Return a digest of what redactions show in the lines of these points.

    Read it before the values: while it is the same, they are what readers get.
    """
    trunks: set[str] = set()
    for at in points:
        if is_composite(at.line_id):
            pointers = await lines.state_at(at.line_id, at.seq)
            trunks.update(trunk_of(PartVersion.named_by(pointer).line) for pointer in pointers)
        else:
            trunks.add(trunk_of(at.line_id))
    return await lines.seals(sorted(trunks))


async def entry_at(lines: LineStore, line_id: str, name: str, seq: int) -> Version | None:
    """Return one key at a version of any line; of a root, the entry PART/KEY."""
    if not is_composite(line_id):
        return await lines.latest(line_id, name, seq)
    part, _, key = name.partition(PART_MARK)
    at = _at(await lines.latest(line_id, part, seq))
    found = None if at is None else await lines.latest(at.line, key, at.seq)
    return None if found is None else _renamed(part, found)


async def _merge_part(lines: LineStore, part: MergeConflict) -> Merge:
    base, ours, theirs = _at(part.base), _at(part.ours), _at(part.theirs)
    if base is None and ours is not None and theirs is not None:
        return await _merge_without_base(lines, part.key, ours, theirs)
    old, there = await part_states_apart(lines, base, theirs, values=True)
    changed = {key for key in old.keys() | there.keys() if not same_content(old.get(key), there.get(key))}
    here, _ = await part_states_apart(lines, ours, theirs, values=True)
    base_state, our_state, their_state = (_prefixed(part.key, _only(state, changed)) for state in (old, here, there))
    return three_way(base_state, our_state, their_state)


async def _merge_without_base(lines: LineStore, part: str, ours: PartVersion, theirs: PartVersion) -> Merge:
    """Merge a part that is not in the merge base of the roots: its own line may have a merge base."""
    pasts = await common_pasts(lines, ours.point, theirs.point)
    ground = await common_ground(lines, pasts) if pasts else MergeBase({}, frozenset())
    here, there = [await _state(lines, side, values=True) for side in (ours, theirs)]
    disputed = frozenset(f"{part}{PART_MARK}{key}" for key in ground.disputed)
    return three_way(_prefixed(part, ground.state), _prefixed(part, here), _prefixed(part, there), disputed)


async def _state(lines: LineStore, at: PartVersion | None, *, values: bool) -> State:
    return {} if at is None else state_by_key(await lines.state_at(at.line, at.seq, values=values))


def _at(version: Version | None) -> PartVersion | None:
    return None if version is None else PartVersion.named_by(version)


def _prefixed(part: str, state: Mapping[str, Version]) -> State:
    return {named.change.key: named for version in state.values() for named in [_renamed(part, version)]}


def _renamed(part: str, version: Version) -> Version:
    name = f"{part}{PART_MARK}{version.change.key}"
    return structs.replace(version, change=structs.replace(version.change, key=name))


def _only(state: Mapping[str, Version], keys: Iterable[str]) -> State:
    return {key: state[key] for key in keys if key in state}
