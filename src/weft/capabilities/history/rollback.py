"""Rollback: return a context to an earlier version by adding a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.capabilities.access.grants import check_clearance
from weft.capabilities.history.commits import tag_automatically
from weft.capabilities.history.fields import ContextId
from weft.capabilities.history.line_backend import CommitMeta, RestorePoint
from weft.capabilities.history.line_kinds import is_composite, size_errors, write_errors
from weft.capabilities.history.model import VersionNotFound, VersionPruned
from weft.capabilities.history.revisions import HEAD, VersionName
from weft.capabilities.history.service import History, sorted_keys, visible_state
from weft.capabilities.history.three_way import same_content
from weft.kernel.errors import PermissionDenied
from weft.kernel.fields import Reason, Step
from weft.kernel.identity import Permission
from weft.kernel.operation import Audience, Effect, RateClass, Request, Response, operation

if TYPE_CHECKING:
    from weft.capabilities.history.line_backend import LockedLine
    from weft.capabilities.history.model import Point, Version
    from weft.capabilities.history.three_way import State


class RollBack(Request):
    """Context to roll back, and the version to return to."""

    context_id: ContextId
    target_version: VersionName
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


@operation(
    "history.rollback",
    tool="rollback_context",
    http="POST /v1/history/{context_id}/rollback",
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=lambda: (
        *write_errors(),
        VersionNotFound,
        VersionPruned,
        PermissionDenied,
        *size_errors(),
    ),
)
async def roll_back(request: RollBack, history: History) -> RolledBack:
    """Return a context to an earlier version. History is not rewritten: the rollback is a new version.

    Needs clearance 3 for a board or an agent definition, clearance 4 for persistent memory.
    """
    needed = history.backends.of(request.context_id).rollback_clearance(request.context_id)
    check_clearance(history.actor, needed, "A rollback")
    line = await history.to_write(request.context_id)
    before = line.head
    target = await history.resolve(line, request.target_version)
    changed, known = await _difference(history, line, target)
    label, after = None, before
    if changed:
        label = await tag_automatically(
            history.lines, before, "before-rollback", history.actor.participant, history.now
        )
        reason = request.reason or _default_reason(target)
        restored = await _restore_point(history, target)
        after = await line.apply(changed, CommitMeta(reason, request.step, restored=restored))
        data = {"context_id": before.line_id, "to": target.seq, "from": before.seq, "version": after.seq}
        await line.announce("history.rolled_back", before.line_id, data)
    return RolledBack(
        context_id=request.context_id,
        rolled_back_to=target.seq,
        from_version=before.seq,
        version=after.seq,
        written=sorted_keys(version for key, version in known.items() if changed.get(key) is not None),
        removed=sorted_keys(version for key, version in known.items() if key in changed and changed[key] is None),
        snapshot_before=label,
    )


async def _difference(history: History, line: LockedLine, target: Point) -> tuple[dict[str, Version | None], State]:
    """Return the changes that lead back to the target, and the versions involved that the caller may read."""
    now, then = await history.states(await history.resolve(line, HEAD), target, values=True)
    changed = {
        key: then.get(key) for key in sorted(now.keys() | then.keys()) if not same_content(now.get(key), then.get(key))
    }
    return changed, await visible_state(line, {**now, **then})


async def _restore_point(history: History, target: Point) -> RestorePoint:
    """Return the point whose remaining times to live are restored."""
    commit = await history.lines.commit_at(target.line_id, target.seq)
    return RestorePoint(f"version {target.seq}", commit.commit.committed_at if commit else history.now)


def _default_reason(target: Point) -> str:
    # Parts of a composite line are rolled back to their own versions, so the number needs the line's id.
    of_root = f" {target.line_id}" if is_composite(target.line_id) else ""
    return f"roll back{of_root} to version {target.seq}"
