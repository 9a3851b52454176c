"""Merging lines: what goes together by itself does, and what does not is put before a human."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from weft.capabilities.history.line_backend import CommitMeta
from weft.capabilities.history.line_ids import (
    ROOM_ERRORS,
    TOOL,
    WRITE_ERRORS,
    ContextId,
    ReviewState,
    UnrelatedLines,
)
from weft.capabilities.history.merge import (
    MergePlan,
    apply_merge,
    close_review,
    open_review,
    plan_merge,
)
from weft.capabilities.history.model import Version, VersionPruned
from weft.capabilities.history.service import History, seen
from weft.capabilities.history.three_way import MergeConflict
from weft.capabilities.history.values import value_shown
from weft.kernel.clock import from_micros
from weft.kernel.errors import PermissionDenied
from weft.kernel.fields import Reason, Step
from weft.kernel.identity import Permission
from weft.kernel.operation import Effect, RateClass, Request, Response, operation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.history.line_backend import OpenLine


class MergeLine(Request):
    """What to merge into what."""

    context_id: Annotated[ContextId, msgspec.Meta(description="The line that takes over what the other one changed.")]
    from_context_id: Annotated[ContextId, msgspec.Meta(description="The line whose changes are brought in.")]
    reason: Reason = None
    step: Step = None


class Side(Response, kw_only=True, omit_defaults=True):
    """What a key in conflict says on one side: a board's value is text, all others are JSON.

    ``value`` is null if it was ``pruned`` or is kept ``outside`` the database.
    """

    value: Any
    key_version: int
    author: str
    agent_id: str
    at: datetime
    pruned: bool = False
    outside: bool = False


class ConflictInfo(Response, kw_only=True, omit_defaults=False):
    """A key that both sides changed: as it was, as it is here and as it is there. Null: it is not there."""

    key: str
    base: Side | None
    ours: Side | None
    theirs: Side | None


class Merged(Response, kw_only=True, omit_defaults=True):
    """The lines are merged, or a human has to decide first. ``hidden_conflicts`` counts keys you may not read."""

    on_record = ("merged", "version")

    context_id: str
    merged: bool
    version: int
    taken: tuple[str, ...] = ()
    review_id: str | None = None
    conflicts: tuple[ConflictInfo, ...] = ()
    hidden_conflicts: int = 0


@operation(
    "history.merge",
    tool=TOOL,
    action="merge",
    http="POST /v1/history/{context_id}/merge",
    permission=Permission.WRITE,
    rate=RateClass.BOARD,
    effect=Effect.WRITE,
    audited=True,
    errors=(*WRITE_ERRORS, UnrelatedLines, VersionPruned, PermissionDenied, *ROOM_ERRORS),
)
async def merge_line(request: MergeLine, timelines: History) -> Merged:
    """Bring what another line changed into this one. If both changed the same keys, a human is asked to decide.

    Works both ways: a branch into its line, and the line into its branch.
    """
    line = await timelines.to_write(request.context_id)
    source = await timelines.to_read(request.from_context_id)
    meeting = await plan_merge(timelines, line, source)
    reason = request.reason or f"merge {meeting.theirs.line_id}"
    if meeting.outcome.conflicts:
        review = await open_review(timelines, line, meeting, reason)
        conflicts = await visible_conflicts(meeting.outcome.conflicts, line, source)
        return Merged(
            context_id=request.context_id,
            merged=False,
            version=meeting.ours.seq,
            review_id=review.review_id,
            conflicts=conflicts,
            hidden_conflicts=len(meeting.outcome.conflicts) - len(conflicts),
        )
    known = await known_keys(meeting, line, source)
    after = line.head
    if not meeting.is_over:
        after = await apply_merge(timelines, line, meeting, meeting.outcome.taken, CommitMeta(reason, request.step))
    waiting = await timelines.reviews.open_for(meeting.ours.line_id, meeting.theirs.line_id)
    if waiting is not None:
        await close_review(timelines, line, waiting, ReviewState.SUPERSEDED)
    return Merged(context_id=request.context_id, merged=True, version=after.seq, taken=tuple(known))


async def known_keys(meeting: MergePlan, line: OpenLine, source: OpenLine) -> list[str]:
    """Return those of the keys that go together by themselves which the caller may know of."""
    taken = meeting.outcome.taken
    brought = {key: version for key, version in taken.items() if version is not None}
    gone = {key: meeting.standing[key] for key in taken if key not in brought and key in meeting.standing}
    return sorted({*await seen(source, brought), *await seen(line, gone)})


async def visible_conflicts(
    conflicts: Sequence[MergeConflict], line: OpenLine, source: OpenLine
) -> tuple[ConflictInfo, ...]:
    """Return the conflicts about keys that the caller may read on both sides."""
    ours = await seen(line, {c.key: c.ours for c in conflicts if c.ours is not None})
    theirs = await seen(source, {c.key: c.theirs for c in conflicts if c.theirs is not None})
    before = await seen(line, {c.key: c.base for c in conflicts if c.base is not None})
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
    is_outside = version.change.meta.outside
    return Side(
        value=None if is_outside else value_shown(line_id, version.value),
        key_version=version.change.version,
        author=version.author,
        agent_id=version.principal_id,
        at=from_micros(version.committed_at),
        pruned=version.value is None,
        outside=is_outside,
    )
