"""The merge operation: takes what does not conflict, opens a review for a human otherwise."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from weftline.history.commits import tag_automatically
from weftline.history.composite_lines import merge_parts, seals_at
from weftline.history.line_kinds import (
    CommitMeta,
    calls_implied_by,
    forbid_own_rules,
    is_composite,
    kind_of,
    operations_that_edit,
    size_errors,
    write_errors,
)
from weftline.history.model import Point, Version, VersionPruned, is_metadata, metadata_key
from weftline.history.reviews import ConflictHashes, ReviewState, close_review, open_review
from weftline.history.revisions import ContextId, write_operation
from weftline.history.service import SMALL_CHANGE, ExpiryDue, History, head_point, planned, visible_state
from weftline.history.three_way import (
    Merge,
    MergeBase,
    MergeConflict,
    common_ground,
    common_pasts,
    fingerprint,
    same_content,
    state_by_key,
    three_way,
)
from weftline.kernel.clock import from_micros
from weftline.kernel.errors import Conflict, PermissionDenied
from weftline.kernel.fields import Reason, Step
from weftline.kernel.identity import Actor
from weftline.kernel.operation import PreparationOutdated, Request, Response
from weftline.kernel.ports import Transactions
from weftline.safety.guardrails.guard import GuardrailGuard
from weftline.safety.trust.gate import GATE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.history.line_kinds import LockedLine, OpenLine
    from weftline.history.model import Head
    from weftline.history.three_way import State


# Merge of two lines: the plan (changes to take, conflicts) and its commit.


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


class MergeLine(Request):
    """Contexts to merge."""

    context_id: Annotated[ContextId, msgspec.Meta(description="Context that receives the changes.")]
    from_context_id: Annotated[ContextId, msgspec.Meta(description="Context whose changes are merged.")]
    reason: Reason = None
    step: Step = None


class Side(Response, kw_only=True, omit_defaults=True):
    """One side of a conflict: text on a board, JSON elsewhere.

    ``value`` is null if it was ``pruned`` or is in object storage (``outside``).
    """

    value: Any
    key_version: int
    author: str
    agent_id: str
    at: datetime
    pruned: bool = False
    outside: bool = False


class ConflictInfo(Response, kw_only=True, omit_defaults=False):
    """A key that both sides changed: in the merge base, in ours and in theirs. Null: it does not exist there."""

    key: str
    base: Side | None
    ours: Side | None
    theirs: Side | None


class Merged(Response, kw_only=True, omit_defaults=True):
    """Result of a merge, or the review it waits for. ``hidden_conflicts`` counts keys you may not read."""

    on_record = ("merged", "version")

    context_id: str
    merged: bool
    version: int
    taken: tuple[str, ...] = ()
    review_id: str | None = None
    conflicts: tuple[ConflictInfo, ...] = ()
    hidden_conflicts: int = 0


class PlannedMerge(NamedTuple):
    """The plan of a merge, and what of it the caller may read."""

    plan: MergePlan
    conflicts: tuple[ConflictInfo, ...]
    known: list[str]
    # Rules were checked for these keys: after a change they are checked again.
    ruled: bool = False


async def prepare_merge(
    request: MergeLine, actor: Actor, transactions: Transactions[History], implied: GuardrailGuard
) -> PlannedMerge:
    """Plan the merge before the transaction, and check what it implies."""

    async def plan(history: History) -> PlannedMerge:
        line, source = await history.to_read(request.context_id), await history.to_read(request.from_context_id)
        ExpiryDue.check(line.head, history.now)
        return await plan_for_caller(history, line, source)

    made = await planned(actor, transactions, plan, lambda history: history.to_write(request.context_id))
    # What waits for a decision changes nothing yet.
    taken = {} if made.plan.outcome.conflicts else made.plan.outcome.taken
    line_id = made.plan.ours.line_id
    ruled = await implied.check(actor, calls_implied_by(line_id, taken), operations_that_edit(line_id))
    return made._replace(ruled=ruled)


async def plan_for_caller(history: History, line: OpenLine, source: OpenLine) -> PlannedMerge:
    """Plan a merge, and find out what of it the caller may read."""
    plan = await plan_merge(history, line, source)
    conflicts = await visible_conflicts(plan.outcome.conflicts, line, source)
    return PlannedMerge(plan, conflicts, await known_keys(plan, line, source))


@write_operation(
    "history.merge",
    forbids=forbid_own_rules,
    action="merge",
    http="POST /v1/history/{context_id}/merge",
    audited=True,
    prepare=prepare_merge,
    errors=lambda: (
        *write_errors(),
        UnrelatedContexts,
        VersionPruned,
        PermissionDenied,
        *size_errors(),
        *GATE_ERRORS,
    ),
)
async def merge_line(request: MergeLine, history: History, *, prepared: PlannedMerge) -> Merged:
    """Merge the changes of another context into this one. If both changed the same keys, a human decides.

    Works in both directions: a branch into its context, and the context into its branch.
    """
    line = await history.to_write(request.context_id)
    source = await history.to_read(request.from_context_id)
    plan, conflicts, known, _ = await merge_planned_now(prepared, history, line, source)
    reason = await history.gate.admit_note("reason", request.reason) or f"merge {plan.theirs.line_id}"
    if plan.outcome.conflicts:
        review = await open_review(history, line, plan, reason)
        return Merged(
            context_id=request.context_id,
            merged=False,
            version=plan.ours.seq,
            review_id=review.review_id,
            conflicts=conflicts,
            hidden_conflicts=len(plan.outcome.conflicts) - len(conflicts),
        )
    after = line.head
    if not plan.is_merged:
        after = await apply_merge(history, line, plan, plan.outcome.taken, CommitMeta(reason, request.step))
    waiting = await history.reviews.open_for(plan.ours.line_id, plan.theirs.line_id)
    if waiting is not None:
        await close_review(history, line, waiting, ReviewState.SUPERSEDED)
    return Merged(context_id=request.context_id, merged=True, version=after.seq, taken=tuple(known))


async def merge_planned_now(
    prepared: PlannedMerge | None, history: History, line: LockedLine, source: OpenLine
) -> PlannedMerge:
    """Return the plan of the preparation; a small one is made again after a change or a redaction since.

    Raises PreparationOutdated for a large one, and for one that rules are about.
    """
    if prepared is not None and await prepared.plan.is_current(history, line, source):
        return prepared
    if prepared is not None and (prepared.ruled or prepared.plan.size > SMALL_CHANGE):
        raise PreparationOutdated
    return await plan_for_caller(history, line, source)


async def known_keys(plan: MergePlan, line: OpenLine, source: OpenLine) -> list[str]:
    """Return the keys merged without conflict that the caller may read."""
    taken = plan.outcome.taken
    brought = {key: version for key, version in taken.items() if version is not None}
    gone = {key: plan.current[key] for key in taken if key not in brought and key in plan.current}
    return sorted({*await visible_state(source, brought), *await visible_state(line, gone)})


async def visible_conflicts(
    conflicts: Sequence[MergeConflict], line: OpenLine, source: OpenLine
) -> tuple[ConflictInfo, ...]:
    """Return the conflicts about keys that the caller may read on both sides."""
    ours = await visible_state(line, {c.key: c.ours for c in conflicts if c.ours is not None})
    theirs = await visible_state(source, {c.key: c.theirs for c in conflicts if c.theirs is not None})
    before = await visible_state(line, {c.key: c.base for c in conflicts if c.base is not None})
    sides = {"base": before, "ours": ours, "theirs": theirs}
    line_id = line.head.line_id
    return tuple(
        ConflictInfo(key=c.key, **{name: _side(line_id, side.get(c.key)) for name, side in sides.items()})
        for c in conflicts
        if (c.ours is None or c.key in ours)
        and (c.theirs is None or c.key in theirs)
        and (c.base is None or c.key in before)
    )


def _side(line_id: str, version: Version | None) -> Side | None:
    if version is None:
        return None
    meta = version.change.meta
    return Side(
        value=None if meta.outside else kind_of(line_id).decode(version.value, meta.media_type),
        key_version=version.change.version,
        author=version.author,
        agent_id=version.principal_id,
        at=from_micros(version.committed_at),
        pruned=version.value is None,
        outside=meta.outside,
    )
