"""Bringing two lines together: what is taken over, what is in conflict, and the review that a human decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from weft.capabilities.agent_context.model import is_metadata, metadata_key
from weft.capabilities.history.commits import tag_automatically
from weft.capabilities.history.composite_lines import is_whole_context, merge_parts
from weft.capabilities.history.line_ids import Review, ReviewState, Sides, UnrelatedLines
from weft.capabilities.history.model import Point
from weft.capabilities.history.service import present
from weft.capabilities.history.three_way import (
    Merge,
    MergeBase,
    common_ground,
    common_pasts,
    fingerprint,
    same_content,
    state_by_key,
    three_way,
)
from weft.kernel.ids import new_ordered_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.capabilities.history.line_backend import CommitMeta, LockedLine, OpenLine
    from weft.capabilities.history.model import Head, Version
    from weft.capabilities.history.service import History
    from weft.capabilities.history.three_way import MergeConflict, State


class MergePlan(NamedTuple):
    """Two lines that are to become one again: where each stands, where they parted, and what becomes of their keys."""

    ours: Point
    theirs: Point
    base: Point
    outcome: Merge = Merge({}, ())
    standing: Mapping[str, Version] = {}

    @property
    def is_over(self) -> bool:
        """Tell whether our line knows all that theirs says already."""
        return (self.base.seq, self.base.hash) == (self.theirs.seq, self.theirs.hash)

    @property
    def conflicts(self) -> tuple[Sides, ...]:
        return tuple(map(_sides, self.outcome.conflicts))


async def plan_merge(timelines: History, line: OpenLine, source: OpenLine) -> MergePlan:
    """Find out what merging a line into another would do."""
    ours, theirs = present(line.head), present(source.head)
    pasts = await common_pasts(timelines.lines, ours, theirs)
    if not pasts:
        raise UnrelatedLines(f"'{theirs.line_id}' and '{ours.line_id}' have no common past.")
    base = pasts[0]
    if MergePlan(ours, theirs, base).is_over:
        return MergePlan(ours, theirs, base)
    ground, here, there = await _three_states(timelines, pasts, ours, theirs)
    then = ground.state
    # What they left as it was is not in question, whatever became of it here.
    moved = {key for key in then.keys() | there.keys() if not same_content(then.get(key), there.get(key))}
    moved = (moved - _ran_out(then, there, timelines.now)) | ground.disputed
    outcome = three_way(_only(then, moved), _only(here, moved), _only(there, moved), ground.disputed)
    if is_whole_context(ours.line_id):
        outcome = await merge_parts(timelines.lines, outcome)
    return MergePlan(ours, theirs, base, _by_entry(outcome), here)


async def _three_states(
    timelines: History, pasts: Sequence[Point], ours: Point, theirs: Point
) -> tuple[MergeBase, State, State]:
    """Return what was common, what is here and what is there; only what may differ, if one moment was common."""
    if len(pasts) == 1:
        then, there = await timelines.states(pasts[0], theirs, values=True)
        here, _ = await timelines.states(ours, theirs, values=True)
        return MergeBase(then, frozenset()), here, there
    ground = await common_ground(timelines.lines, pasts)
    here, there = [
        await timelines.living(state_by_key(await timelines.lines.state_at(side.line_id, side.seq)), side)
        for side in (ours, theirs)
    ]
    return ground, here, there


def _ran_out(then: Mapping[str, Version], there: Mapping[str, Version], now: int) -> set[str]:
    """Return the keys that are gone there because their time was over, which nobody decided."""
    gone = then.keys() - there.keys()
    return {key for key in gone if (then[key].change.meta.expires_at or now + 1) <= now}


async def _where_it_is(timelines: History, moment: Point) -> Point:
    """Return a moment by the line that its commit is on: a branch without commits of its own stands on another's."""
    past = await timelines.lines.past(moment.line_id, moment.seq)
    return Point(past[0].line_id, moment.seq, moment.hash)


async def apply_merge(
    timelines: History, line: LockedLine, meeting: MergePlan, taken: Mapping[str, Version | None], why: CommitMeta
) -> Head:
    """Take over what was decided, as one commit that says from where; the state before it gets a name."""
    if taken:
        await tag_automatically(timelines.lines, line.head, "before-merge", timelines.actor.participant, timelines.now)
    after = await line.apply(taken, why._replace(merged=await _where_it_is(timelines, meeting.theirs)))
    told = {"context_id": line.head.line_id, "from": meeting.theirs.line_id, "version": after.seq}
    await line.announce("history.merged", meeting.theirs.line_id, told)
    return after


async def open_review(timelines: History, line: LockedLine, meeting: MergePlan, reason: str) -> Review:
    """Have a human decide. A merge that waits for a decision already is not put up twice."""
    known = await timelines.reviews.open_for(meeting.ours.line_id, meeting.theirs.line_id)
    if known is not None:
        return await refresh_review(timelines, known, meeting)
    review = _of_meeting(
        Review(
            review_id=f"review_{new_ordered_id()}",
            line_id=meeting.ours.line_id,
            source_line=meeting.theirs.line_id,
            state=ReviewState.OPEN,
            ours_seq=0,
            theirs_seq=0,
            base_line="",
            base_seq=0,
            conflicts=(),
            reason=reason,
            opened_by=timelines.actor.participant,
            opened_at=timelines.now,
        ),
        meeting,
    )
    await timelines.reviews.add(review)
    await _hold(timelines, review)
    told = {"context_id": review.line_id, "from": review.source_line, "conflicts": len(review.conflicts)}
    await line.announce("history.review_opened", review.review_id, told)
    return review


async def refresh_review(timelines: History, review: Review, meeting: MergePlan) -> Review:
    """Bring a review up to date with two lines that went on meanwhile."""
    refreshed = _of_meeting(review, meeting)
    await timelines.reviews.update(refreshed)
    await timelines.lines.unpin(review.holder)
    await _hold(timelines, refreshed)
    return refreshed


async def close_review(timelines: History, line: LockedLine, review: Review, state: ReviewState) -> Review:
    """Put on record how a review ended, let go of what was kept for it, and tell those who waited."""
    closed = structs.replace(review, state=state, decided_by=timelines.actor.participant, decided_at=timelines.now)
    await timelines.reviews.update(closed)
    await timelines.lines.unpin(review.holder)
    ended = {"context_id": review.line_id, "from": review.source_line, "state": state}
    await line.announce("history.review_closed", review.review_id, ended)
    return closed


async def _hold(timelines: History, review: Review) -> None:
    """Keep what the review is about from being pruned until it is decided."""
    for line_id, seq in (
        (review.line_id, review.ours_seq),
        (review.source_line, review.theirs_seq),
        (review.base_line, review.base_seq),
    ):
        await timelines.lines.pin(line_id, seq, review.holder)


def _of_meeting(review: Review, meeting: MergePlan) -> Review:
    return structs.replace(
        review,
        ours_seq=meeting.ours.seq,
        theirs_seq=meeting.theirs.seq,
        base_line=meeting.base.line_id,
        base_seq=meeting.base.seq,
        conflicts=meeting.conflicts,
    )


def _by_entry(outcome: Merge) -> Merge:
    """Leave out what was said about entries in conflict: it goes where its entry goes."""
    conflicts = [conflict for conflict in outcome.conflicts if not is_metadata(conflict.key)]
    undecided = {metadata_key(conflict.key) for conflict in conflicts}
    return Merge({key: version for key, version in outcome.taken.items() if key not in undecided}, conflicts)


def _sides(conflict: MergeConflict) -> Sides:
    return Sides(conflict.key, *map(fingerprint, (conflict.base, conflict.ours, conflict.theirs)))


def _only(state: Mapping[str, Version], keys: set[str]) -> dict[str, Version]:
    return {key: version for key, version in state.items() if key in keys}
