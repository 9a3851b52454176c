"""The merge operation: takes what does not conflict, opens a review for a human otherwise."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from weftline.history.fields import ContextId, write_operation
from weftline.history.line_backend import CommitMeta
from weftline.history.line_kinds import (
    calls_implied_by,
    forbid_own_rules,
    kind_of,
    operations_that_edit,
    size_errors,
    write_errors,
)
from weftline.history.merge import MergePlan, UnrelatedContexts, apply_merge, plan_merge
from weftline.history.model import Version, VersionPruned
from weftline.history.reviews import ReviewState, close_review, open_review
from weftline.history.service import SMALL_CHANGE, ExpiryDue, History, planned, visible_state
from weftline.history.three_way import MergeConflict
from weftline.kernel.clock import from_micros
from weftline.kernel.errors import PermissionDenied
from weftline.kernel.fields import Reason, Step
from weftline.kernel.identity import Actor
from weftline.kernel.operation import PreparationOutdated, Request, Response
from weftline.kernel.ports import Transactions
from weftline.safety.guardrails.guard import GuardrailGuard
from weftline.safety.trust.gate import GATE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.history.line_backend import LockedLine, OpenLine


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
