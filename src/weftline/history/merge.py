"""Merge of two lines: the plan (changes to take, conflicts) and its commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.history.commits import tag_automatically
from weftline.history.composite_lines import merge_parts, seals_at
from weftline.history.line_kinds import is_composite
from weftline.history.model import Point, is_metadata, metadata_key
from weftline.history.reviews import ConflictHashes
from weftline.history.service import head_point
from weftline.history.three_way import (
    Merge,
    MergeBase,
    common_ground,
    common_pasts,
    fingerprint,
    same_content,
    state_by_key,
    three_way,
)
from weftline.kernel.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.history.line_backend import CommitMeta, LockedLine, OpenLine
    from weftline.history.model import Head, Version
    from weftline.history.service import History
    from weftline.history.three_way import MergeConflict, State


class UnrelatedContexts(Conflict):
    """The two contexts have no common ancestor, so there is no merge base."""

    code = "UNRELATED_CONTEXTS"
    hint = "Merge a branch with the context it came from, or with another branch of that context."
    related = ("context_history",)


class MergePlan(NamedTuple):
    """What a merge would do. ``current`` are our versions of the keys that may differ."""

    ours: Point
    theirs: Point
    base: Point
    seals: bytes
    outcome: Merge = Merge({}, ())
    current: Mapping[str, Version] = {}

    @property
    def is_merged(self) -> bool:
        """Whether our line already contains all of theirs."""
        return (self.base.seq, self.base.hash) == (self.theirs.seq, self.theirs.hash)

    @property
    def size(self) -> int:
        """The number of keys that were compared, or that change."""
        return max(len(self.current), len(self.outcome.taken) + len(self.outcome.conflicts))

    async def is_current(self, history: History, line: OpenLine, source: OpenLine) -> bool:
        """Tell whether both lines are as they were when the merge was planned, and nothing was redacted since."""
        if (self.ours, self.theirs) != (head_point(line.head), head_point(source.head)):
            return False
        return self.seals == await seals_at(history.lines, self.ours, self.theirs)

    @property
    def conflicts(self) -> tuple[ConflictHashes, ...]:
        return tuple(map(_hashes, self.outcome.conflicts))


async def plan_merge(history: History, line: OpenLine, source: OpenLine) -> MergePlan:
    """Compute what merging ``source`` into ``line`` would do."""
    ours, theirs = head_point(line.head), head_point(source.head)
    seals = await seals_at(history.lines, ours, theirs)
    pasts = await common_pasts(history.lines, ours, theirs)
    if not pasts:
        raise UnrelatedContexts(f"'{theirs.line_id}' and '{ours.line_id}' have no common ancestor.")
    base = pasts[0]
    if MergePlan(ours, theirs, base, seals).is_merged:
        return MergePlan(ours, theirs, base, seals)
    ground, here, there = await _three_states(history, pasts, ours, theirs)
    old = ground.state
    # Only keys that their side changed matter.
    changed = {key for key in old.keys() | there.keys() if not same_content(old.get(key), there.get(key))}
    changed = (changed - _expired_keys(old, there, history.now)) | ground.disputed
    outcome = three_way(_only(old, changed), _only(here, changed), _only(there, changed), ground.disputed)
    if is_composite(ours.line_id):
        outcome = await merge_parts(history.lines, ours.line_id, outcome)
    return MergePlan(ours, theirs, base, seals, _without_metadata_conflicts(outcome), here)


async def _three_states(
    history: History, pasts: Sequence[Point], ours: Point, theirs: Point
) -> tuple[MergeBase, State, State]:
    """Return the base state, ours and theirs; with one merge base, only the keys that may differ."""
    if len(pasts) == 1:
        old, there = await history.states(pasts[0], theirs, values=True)
        here, _ = await history.states(ours, theirs, values=True)
        return MergeBase(old, frozenset()), here, there
    ground = await common_ground(history.lines, pasts)
    here, there = [
        await history.unexpired(state_by_key(await history.lines.state_at(side.line_id, side.seq)), side)
        for side in (ours, theirs)
    ]
    return ground, here, there


def _expired_keys(old: Mapping[str, Version], there: Mapping[str, Version], now: int) -> set[str]:
    """Return the keys that are missing there because they expired, which is not a change to merge."""
    missing = old.keys() - there.keys()
    return {key for key in missing if (old[key].change.meta.expires_at or now + 1) <= now}


async def _on_own_line(history: History, point: Point) -> Point:
    """Return a point by the line that holds its commit: a branch without commits shares its base's."""
    past = await history.lines.past(point.line_id, point.seq)
    return Point(past[0].line_id, point.seq, point.hash)


async def apply_merge(
    history: History, line: LockedLine, plan: MergePlan, taken: Mapping[str, Version | None], commit_meta: CommitMeta
) -> Head:
    """Commit the changes of a merge; the state before it is tagged."""
    if taken:
        await tag_automatically(history.lines, line.head, "before-merge", history.actor.participant, history.now)
    after = await line.apply(taken, commit_meta._replace(merged=await _on_own_line(history, plan.theirs)))
    data = {"context_id": line.head.line_id, "from": plan.theirs.line_id, "version": after.seq}
    await line.announce("history.merged", plan.theirs.line_id, data)
    return after


def _without_metadata_conflicts(outcome: Merge) -> Merge:
    """Leave out the metadata of entries in conflict: it follows the decision about its entry."""
    conflicts = [conflict for conflict in outcome.conflicts if not is_metadata(conflict.key)]
    undecided = {metadata_key(conflict.key) for conflict in conflicts}
    return Merge({key: version for key, version in outcome.taken.items() if key not in undecided}, conflicts)


def _hashes(conflict: MergeConflict) -> ConflictHashes:
    return ConflictHashes(conflict.key, *map(fingerprint, (conflict.base, conflict.ours, conflict.theirs)))


def _only(state: Mapping[str, Version], keys: set[str]) -> dict[str, Version]:
    return {key: version for key, version in state.items() if key in keys}
