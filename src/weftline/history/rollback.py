"""Rollback: return a context to an earlier version by adding a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from weftline.access.grants import check_clearance
from weftline.history.commits import tag_automatically
from weftline.history.composite_lines import seals_at
from weftline.history.line_kinds import (
    ROLLBACK_CLEARANCE,
    CommitMeta,
    RestorePoint,
    calls_implied_by,
    forbid_own_rules,
    is_composite,
    operations_that_edit,
    size_errors,
    write_errors,
)
from weftline.history.model import VersionConflict, VersionNotFound, VersionPruned, trunk_of
from weftline.history.revisions import ContextId, VersionName, audited_write
from weftline.history.service import (
    SMALL_CHANGE,
    ExpiryDue,
    History,
    SnapshotPoint,
    head_point,
    planned,
    visible_state,
)
from weftline.history.three_way import same_content
from weftline.kernel.errors import PermissionDenied, QuotaExceeded
from weftline.kernel.fields import Count, Reason, Step
from weftline.kernel.identity import Actor, PrincipalKind
from weftline.kernel.operation import PreparationOutdated, Request, Response
from weftline.kernel.ports import Transactions
from weftline.safety.guardrails.guard import GuardrailGuard
from weftline.safety.trust.gate import GATE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weftline.history.line_kinds import LockedLine, OpenLine
    from weftline.history.model import Head, Point, Version
    from weftline.history.three_way import State


class RollBack(Request):
    """Context to roll back, and the version to return to."""

    context_id: ContextId
    target_version: VersionName
    if_version: Annotated[
        Count | None,
        msgspec.Meta(description="Expected current version of the context; VERSION_CONFLICT if it differs."),
    ] = None
    reason: Reason = None
    step: Step = None


class RolledBack(Response, kw_only=True, omit_defaults=False):
    """The context has the content of the target version; ``snapshot_before`` names the state before the rollback."""

    on_record = ("from_version", "version", "snapshot_before")

    context_id: str
    rolled_back_to: int
    from_version: int
    version: int
    written: list[str]
    removed: list[str]
    snapshot_before: str | None


def _check_may_roll_back(actor: Actor) -> None:
    """Refuse callers that may roll back nothing: neither cleared nor above another agent, which a tenant may allow."""
    if actor.kind is PrincipalKind.AGENT and actor.has_agents_below:
        return
    check_clearance(actor, ROLLBACK_CLEARANCE, "A rollback", who="a human")


async def prepare_rollback(
    request: RollBack, actor: Actor, transactions: Transactions[History], implied: GuardrailGuard
) -> RestorePlan:
    """Plan the rollback before the transaction, and check what it implies."""

    async def plan(history: History) -> RestorePlan:
        await history.backends.of(request.context_id).check_rollback(request.context_id)
        line = await history.to_read(request.context_id)
        ExpiryDue.check(line.head, history.now)
        return await plan_restore(history, line, await history.resolve(line, request.target_version))

    made = await planned(actor, transactions, plan, lambda history: history.to_write(request.context_id))
    return await checked_plan(actor, made, implied)


@audited_write(
    "history.rollback",
    prepare=prepare_rollback,
    tool="rollback_context",
    http="POST /v1/history/{context_id}/rollback",
    requires=_check_may_roll_back,
    forbids=forbid_own_rules,
    errors=lambda: (
        *write_errors(),
        VersionNotFound,
        VersionPruned,
        VersionConflict,
        PermissionDenied,
        QuotaExceeded,
        *size_errors(),
        *GATE_ERRORS,
    ),
)
async def roll_back(request: RollBack, history: History, *, prepared: RestorePlan) -> RolledBack:
    """Return a context to an earlier version. History is not rewritten: the rollback is a new version.

    Needs clearance 3, 4 for persistent memory, 5 for the tenant's layer. With `rollback_by_tree` in the tenant's
    policy, an agent may roll back the memory and the definition of agents below it with any clearance that is not
    below theirs.
    """
    await history.backends.of(request.context_id).check_rollback(request.context_id)
    line = await history.to_write(request.context_id)
    before = line.head
    _check_version(before, request.if_version)
    target = await history.resolve(line, request.target_version)
    plan = await planned_now(history, line, target, prepared)
    reason = await history.gate.admit_note("reason", request.reason)
    meta = CommitMeta(noted(_rollback_to(target), reason), request.step)
    done = await restore(history, line, plan, meta, occasion="before-rollback")
    if done.snapshot_before is not None:
        data = {"context_id": before.line_id, "to": target.seq, "from": before.seq, "version": done.head.seq}
        await line.announce("history.rolled_back", before.line_id, data)
    return RolledBack(
        context_id=request.context_id,
        rolled_back_to=target.seq,
        from_version=before.seq,
        version=done.head.seq,
        written=done.written,
        removed=done.removed,
        snapshot_before=done.snapshot_before,
    )


def _check_version(head: Head, expected: int | None) -> None:
    """Refuse a rollback of changes that the caller has not seen."""
    if expected not in {None, head.seq}:
        raise VersionConflict(
            f"The context is at version {head.seq}, not {expected}: it was changed meanwhile.",
            hint="Compare it again with `history.diff`, and retry with if_version = current_version.",
            related=("context_history",),
            current_version=head.seq,
            expected_version=expected,
        )


class Restored(NamedTuple):
    """New head, keys that changed and that the caller may read, and label of the state before, if any key changed."""

    head: Head
    written: list[str]
    removed: list[str]
    snapshot_before: str | None


class RestorePlan(NamedTuple):
    """What returning a line from one point to another changes: ``known`` are the keys that the caller may read."""

    current: Point
    target: Point
    seals: bytes
    changed: Mapping[str, Version | None]
    known: frozenset[str]
    # Rules were checked for these keys: after a change they are checked again.
    ruled: bool = False

    async def is_current(self, history: History, line: OpenLine, target: Point) -> bool:
        """Tell whether the line is as it was when the plan was made, and nothing was redacted since."""
        if (self.current, self.target) != (head_point(line.head), target):
            return False
        return self.seals == await seals_at(history.lines, self.current, target)


async def plan_restore(
    history: History,
    line: OpenLine,
    target: Point,
    *,
    renew_ttl: bool = False,
    copied: Callable[[State], State] | None = None,
) -> RestorePlan:
    """Compute what returning a line to an earlier point would change.

    ``renew_ttl``: unchanged entries with a time to live are written too. The target may be a point of another line of
    the same kind: ``copied`` makes its state one of this line.
    """
    head = line.head
    seals = await seals_at(history.lines, head_point(head), target)
    whole = renew_ttl or trunk_of(target.line_id) != trunk_of(head.line_id)
    now, then = await history.states(head_point(head), target, values=True, whole=whole)
    then = then if copied is None else copied(then)
    changed = {
        key: then.get(key)
        for key in sorted(now.keys() | then.keys())
        if not same_content(now.get(key), then.get(key)) or (renew_ttl and then[key].change.meta.expires_at is not None)
    }
    touched = {key: version for key, version in {**now, **then}.items() if key in changed}
    return RestorePlan(head_point(head), target, seals, changed, frozenset(await visible_state(line, touched)))


async def checked_plan(actor: Actor, plan: RestorePlan, implied: GuardrailGuard) -> RestorePlan:
    """Return a plan whose every change the caller may make by itself."""
    line_id = plan.current.line_id
    calls = calls_implied_by(line_id, plan.changed)
    return plan._replace(ruled=await implied.check(actor, calls, operations_that_edit(line_id)))


async def restore(
    history: History, line: LockedLine, plan: RestorePlan, meta: CommitMeta, *, occasion: str
) -> Restored:
    """Carry out a plan as one new commit; the state before it is tagged with the occasion.

    Restored entries get the time to live they had left at the target. Raises QuotaExceeded if the plan of the tenant
    has no rollback.
    """
    (await history.plans.allowance()).check_rollback()
    head, target, changed = line.head, plan.target, plan.changed
    if not changed:
        return Restored(head, [], [], None)
    label = await tag_automatically(history.lines, head, occasion, history.actor.participant, history.now)
    name = target.tag.label if isinstance(target, SnapshotPoint) else f"version {target.seq}"
    restored = RestorePoint(name, await history.timestamp(target))
    head = await line.apply(changed, meta._replace(restored=restored))
    visible = [key for key in changed if key in plan.known]
    return Restored(
        head,
        written=[key for key in visible if changed[key] is not None],
        removed=[key for key in visible if changed[key] is None],
        snapshot_before=label,
    )


async def planned_now(
    history: History,
    line: LockedLine,
    target: Point,
    prepared: RestorePlan | None,
    *,
    renew_ttl: bool = False,
    copied: Callable[[State], State] | None = None,
) -> RestorePlan:
    """Return the plan of the preparation; a small one is made again after a change or a redaction since.

    Raises PreparationOutdated for a large one, and for one that rules are about.
    """
    if prepared is not None and await prepared.is_current(history, line, target):
        return prepared
    if prepared is not None and (prepared.ruled or len(prepared.changed) > SMALL_CHANGE):
        raise PreparationOutdated
    return await plan_restore(history, line, target, renew_ttl=renew_ttl, copied=copied)


def noted(what: str, reason: str | None) -> str:
    """Return the reason of a commit that returns to an earlier state: what it is, then why."""
    return what if reason is None else f"{what}: {reason}"


def _rollback_to(target: Point) -> str:
    # Parts of a composite line are rolled back to their own versions, so the number needs the line's id.
    of_root = f" {target.line_id}" if is_composite(target.line_id) else ""
    return f"roll back{of_root} to version {target.seq}"
